"""Stacks and TensorArrays of loops as TensorLists."""
