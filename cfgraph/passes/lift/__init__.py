"""Raise loops and conditionals of primitives to functions that are called."""
