"""The virtual clock and its cost model."""
