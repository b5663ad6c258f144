"""Functionalization: lowered loops and conditionals back in functional form."""
