"""Pictures of graphs and runs: pages that open from a file, and drawings by Graphviz."""
