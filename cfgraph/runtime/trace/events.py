"""Events of a run, the observers that receive them, and the timing of copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

ROOT_FRAME: Final = "/"
_TOKENS: Final = ("op", "send", "recv")


class TraceEvent(NamedTuple):
    """One token's work on one device.

    `frame` is the path of loops with the iteration of each, `/while[3]/inner[0]`, and `/` for the
    root; `iteration` is the last of them. `outputs` holds a value for each output, None for one
    that is dead. Times are nanoseconds since the run began. Both ends of a transfer share `flow`,
    which is `cpu:0>gpu:0 NAME FRAME`. A note says in `text` what happened to the node. A copy is
    what moves to the host or back beside the tokens, for a `node` that pushed it. `memory` is what
    the device holds after the token, in bytes; None where it is not counted. A gpu on a card is
    `real`.
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
    kind: str = "op"  # or "send", "recv", "frame", "note", "copy"
    flow: str | None = None
    bytes: int = 0
    text: str = ""
    memory: int | None = None
    real: bool = False

    @property
    def is_token(self) -> bool:
        """True for a token's work; notes and copies come between."""
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
        """The device at the other end of a transfer; `` for what is none."""
        ends = (self.flow or "").partition(" ")[0].partition(">")
        return ends[2] if self.is_send else ends[0]


class Observer(Protocol):
    """What a run tells its events to, in the order in which they happen.

    One with a true attribute `deferred` may hear of those on a card when the run is over: it gets
    the times of the card then, and outlines of large values.
    """

    def event(self, event: TraceEvent) -> None:
        """Take one event; it may keep it, but must not change its outputs."""


class Recorder:
    """Keeps all events; their outputs as short descriptions unless `values` are wanted."""

    def __init__(self, *, values: bool = False, describe: Callable[[Any], str] = str) -> None:
        self.events: list[TraceEvent] = []
        self._values = values
        self._describe = describe

    def event(self, event: TraceEvent) -> None:
        """Keep one event."""
        if not self._values:
            describe = self._describe
            descriptions = tuple(
                None if value is None else describe(value) for value in event.outputs
            )
            event = event._replace(outputs=descriptions)
        self.events.append(event)


class Tee:
    """Hands each event to several observers."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers = tuple(observers)

    def event(self, event: TraceEvent) -> None:
        """Hand on one event."""
        for observer in self.observers:
            observer.event(event)


# what a trace calls copies to the host and back: of stacks, and on a card of all else
SWAP_OUT: Final = "swap out"
SWAP_IN: Final = "swap in"
TO_HOST: Final = "to host"
FROM_HOST: Final = "from host"


class CopyTimer(Protocol):
    """What dates copies: in virtual time they take as long as their wire needs."""

    def now(self) -> float:
        """The time, in seconds."""

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Copy bytes between a device and its host; when they are there."""


class InstantCopyTimer:
    """Copies take no time: what the real clock knows of simulated devices."""

    def __init__(self, observer: Observer | None = None, run_start: int = 0) -> None:
        self.observer = observer
        self.run_start = run_start

    def now(self) -> float:
        """No time passes."""
        return 0.0

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """They are there."""
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
    """Tell of a copy of what a node pushed; `span` are its times in nanoseconds."""
    if observer is not None:
        event = TraceEvent(device, node, "", ROOT_FRAME, 0, False, *span, kind="copy")
        observer.event(event._replace(bytes=size, text=SWAP_OUT if out else SWAP_IN))
