"""Runs on a virtual clock, and runs without values."""
