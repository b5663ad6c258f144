"""Events of a run, the observers that receive them, and the timing of copies."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

ROOT_FRAME: Final = "/"
_TOKENS: Final = ("op", "send", "recv")


class TraceEvent(NamedTuple):
    """Work of one token on one device.

    `frame` is the path of loops and iterations, `/while[3]/inner[0]`, or `/` for the root;
    `iteration` is the last of them. `outputs` has a value per output, None for a dead one. Times
    are nanoseconds since the start of the run. Both ends of a transfer share `flow`, `cpu:0>gpu:0
    NAME FRAME`. `text` is the message of a note. A copy moves a value of `node` to the host or
    back, parallel to tokens. `memory` is the memory use of the device after the token, in bytes,
    None if not counted. `real` is true on a real GPU, `joint` for a node that computes jointly with
    others, so that its time is not that of its op.
    """

    device: str
    node: str
    op: str
    frame: str
    iteration: int
    dead: bool
    start_ns: int
    end_ns: int
    outputs: tuple[Any, ...] = ()
    kind: str = "op"  # or "send", "recv", "note", "copy"
    flow: str | None = None
    bytes: int = 0
    text: str = ""
    memory: int | None = None
    real: bool = False
    joint: bool = False

    @property
    def is_token(self) -> bool:
        """True for a token, false for notes and copies."""
        return self.kind in _TOKENS

    @property
    def is_send(self) -> bool:
        """True for the sending end of a transfer."""
        return self.kind == "send"

    @property
    def is_recv(self) -> bool:
        """True for the receiving end of a transfer."""
        return self.kind == "recv"

    @property
    def peer(self) -> str:
        """The device at the other end of a transfer; `` for other events."""
        ends = (self.flow or "").partition(" ")[0].partition(">")
        return ends[2] if self.is_send else ends[0]


class Observer(Protocol):
    """Receiver of a run's events, in the order in which they happen.

    One with a true attribute `deferred` may receive the events of a real GPU after the run, with
    GPU times, and abstract tensors for large values. One with an attribute `only_node` receives the
    events of that node; other tokens may be skipped.
    """

    def event(self, event: TraceEvent) -> None:
        """Receive one event; it may be kept, but its outputs must not be changed."""


class Tee:
    """Observer that forwards each event to several others."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers = tuple(observers)

    def event(self, event: TraceEvent) -> None:
        """Forward one event."""
        for observer in self.observers:
            observer.event(event)


# names of copies in a trace: of swapped stacks, and on a real GPU of other values
SWAP_OUT: Final = "swap out"
SWAP_IN: Final = "swap in"
TO_HOST: Final = "to host"
FROM_HOST: Final = "from host"


class CopyTimer(Protocol):
    """Clock of copies; in virtual time they take as long as their wire needs."""

    def now(self) -> float:
        """The current time in seconds, of the real or the virtual clock."""

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Copy bytes between a device and its host; return the time of arrival."""


class InstantCopyTimer:
    """Copies that take no time, as on simulated devices with the real clock."""

    def __init__(self, observer: Observer | None = None, run_start: int = 0) -> None:
        self.observer = observer
        self.run_start = run_start

    def now(self) -> float:
        """Always 0."""
        return 0.0

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Record the copy; it arrives at once."""
        now = time.perf_counter_ns() - self.run_start
        record_copy(self.observer, device, node, size, (now, now), out=out)
        return 0.0


def record_copy(
    observer: Observer | None,
    device: str,
    node: str,
    size: int,
    span: tuple[int, int],
    *,
    out: bool,
) -> None:
    """Report a copy of a value that a node pushed; `span` are its times in nanoseconds."""
    if observer is not None:
        event = TraceEvent(device, node, "", ROOT_FRAME, 0, False, *span, kind="copy")
        observer.event(event._replace(bytes=size, text=SWAP_OUT if out else SWAP_IN))
