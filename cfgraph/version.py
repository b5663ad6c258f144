"""The version of cfgraph."""

__version__ = "0.2.0"
