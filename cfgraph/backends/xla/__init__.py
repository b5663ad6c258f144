"""Compilation of clusters by XLA, through jax."""
