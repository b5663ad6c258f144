"""How long copies between a device and its host take."""

from __future__ import annotations

from typing import Protocol


class Times(Protocol):
    """What dates copies: in virtual time they take as long as their wire needs."""

    def now(self) -> float:
        """The time, in seconds."""

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Copy bytes between a device and its host; when they are there."""


class AtOnce:
    """Copies take no time: what the real clock knows of simulated devices."""

    def now(self) -> float:
        """No time passes."""
        return 0.0

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """They are there."""
        return 0.0
