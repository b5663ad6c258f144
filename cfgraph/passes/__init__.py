"""Rewrites of graphs: one file or one folder a pass."""
