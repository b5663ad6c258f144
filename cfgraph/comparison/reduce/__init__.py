"""Reduction of failing graphs: edits that make a graph smaller, and the search among them."""
