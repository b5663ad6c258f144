"""The version of cfgraph."""

__version__ = "0.1.0"
