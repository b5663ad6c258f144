"""Validity rules for graphs and function bodies."""
