"""What a notebook shows of a graph, through IPython."""
