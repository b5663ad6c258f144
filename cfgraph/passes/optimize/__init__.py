"""Rewrites that make a graph smaller and faster, and preserve every value and every liveness."""
