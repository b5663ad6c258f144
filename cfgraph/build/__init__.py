"""The Builder: a Python interface that writes graphs with conditionals and loops."""
