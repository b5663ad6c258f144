"""Deadness: the liveness condition of every output and control edge."""
