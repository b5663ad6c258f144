"""Reverse-mode differentiation of lowered graphs."""
