"""Parts of a graph to show: selected nodes, tables, DOT, SavedModels, and StableHLO modules."""
