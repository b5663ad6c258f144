"""Bindings generated from `schemas/`; `pytest --update tests/proto` writes them anew."""
