"""Compiled engine: straight-line Python for the plans of a run."""
