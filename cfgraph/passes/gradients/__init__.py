"""Reverse-mode gradients of any lowered graph."""
