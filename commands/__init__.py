"""Subcommands, one per file: parse options, call the library, print."""
