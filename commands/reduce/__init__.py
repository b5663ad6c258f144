"""Reduce a graph to the smallest one for which a command fails, or that differs from another."""
