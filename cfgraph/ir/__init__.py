"""Graphs in memory: nodes, edges, dtypes, shapes, functions, and the files they come from."""
