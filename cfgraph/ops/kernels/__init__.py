"""Arithmetic and array functions that kernels of several families share."""
