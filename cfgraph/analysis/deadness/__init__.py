"""Deadness: for every output and control edge, the condition under which it is live."""
