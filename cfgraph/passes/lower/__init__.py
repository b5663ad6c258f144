"""Lowering of functional control flow to Switch, Merge, Enter, Exit and NextIteration."""
