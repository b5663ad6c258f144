"""The Builder: a Python interface that builds graphs with conditionals and loops."""
