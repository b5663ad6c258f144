"""Freezing: variables that nothing assigns, and inputs of one value, become constants."""
