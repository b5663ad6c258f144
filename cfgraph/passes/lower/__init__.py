"""Lowering: conditionals, loops and calls to the five primitives."""
