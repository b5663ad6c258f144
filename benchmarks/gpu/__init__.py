"""Figures of a real GPU, compared with jax and PyTorch: `python -m benchmarks.gpu`."""
