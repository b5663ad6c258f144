"""Clustering: groups of nodes that XLA compiles together."""
