"""Figures of a real card, beside jax and PyTorch: `python -m benchmarks.gpu`."""
