"""How long copies between a device and its host take."""

from __future__ import annotations

import time
from typing import Final, Protocol

from cfgraph.runtime.trace import ROOT_FRAME, Observer, TraceEvent

# what a trace calls copies to the host and back: of stacks, and on a card of all else
OUT: Final = "swap out"
IN: Final = "swap in"
TO_HOST: Final = "to host"
FROM_HOST: Final = "from host"


class Times(Protocol):
    """What dates copies: in virtual time they take as long as their wire needs."""

    def now(self) -> float:
        """The time, in seconds."""

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Copy bytes between a device and its host; when they are there."""


class AtOnce:
    """Copies take no time: what the real clock knows of simulated devices."""

    def __init__(self, observer: Observer | None = None, began: int = 0) -> None:
        self.observer = observer
        self.began = began

    def now(self) -> float:
        """No time passes."""
        return 0.0

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """They are there."""
        now = time.perf_counter_ns() - self.began
        tell_copy(self.observer, device, node, size, (now, now), out=out)
        return 0.0


def tell_copy(
    observer: Observer | None,
    device: str,
    node: str,
    size: int,
    span: tuple[int, int],
    *,
    out: bool,
) -> None:
    """Tell of a copy of what a node pushed; `span` are its times in nanoseconds."""
    if observer is not None:
        event = TraceEvent(device, node, "", ROOT_FRAME, 0, False, *span, kind="copy")
        observer.event(event._replace(bytes=size, text=OUT if out else IN))
