"""Runs on a virtual clock, and runs without values."""

from typing import Final

PROVIDES: Final = {("session option", "costs"): "engine:VirtualClockEngine"}
