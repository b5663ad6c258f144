"""Gradient checkpointing: the loops to recompute, their purity, and their split into segments."""
