"""Commands that change a graph, their driver, and pipelines of them."""
