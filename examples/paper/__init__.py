"""Experiments of the paper on dynamic control flow: `python -m examples.paper`."""
