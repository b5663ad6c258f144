"""Preparation of runs: names, passes, plans, engines, and what the next run reuses."""
