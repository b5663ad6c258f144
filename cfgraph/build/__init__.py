"""Graphs written in Python: a builder, conditionals and loops."""
