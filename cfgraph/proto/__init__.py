"""Bindings generated from `schemas/`; `pytest --update tests/proto` rewrites them."""
