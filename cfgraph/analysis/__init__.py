"""Analyses of graphs: properties that follow without running them."""
