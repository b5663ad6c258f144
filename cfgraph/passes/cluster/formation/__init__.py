"""Cluster formation: the nodes that compile, the rules for merging them, and the resulting plan."""
