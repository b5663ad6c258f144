"""Clusters for XLA: which nodes compile together, and why others do not."""
