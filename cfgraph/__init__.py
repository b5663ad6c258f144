"""Dataflow graphs with control flow: look at them, check, transform and run them."""

from __future__ import annotations

__version__ = "0.1.0"
