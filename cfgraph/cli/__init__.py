"""The command line: options, limits, signals, and output of all commands."""
