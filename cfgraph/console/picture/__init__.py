"""Pictures of graphs and runs: self-contained HTML pages, and SVG drawings by Graphviz."""
