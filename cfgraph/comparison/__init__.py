"""Comparison of graphs: structural diff, equivalence by running, finite differences."""
