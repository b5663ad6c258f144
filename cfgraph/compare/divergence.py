"""The first divergent token of two runs, among nodes that both graphs have.

Both runs are traced. The tokens of the first run are recorded, and those of the second compared
with them in causal order: the inputs of the first wrong token were right, as far as both graphs
have nodes of the same name. The recording is bounded: longer runs are compared window by window,
each in a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.compare.evaluation_point import EvaluationPoint
from cfgraph.compare.value_difference import value_difference
from cfgraph.errors import CfgraphError
from cfgraph.ops.families.variables import Variable
from cfgraph.runtime.engine.tracing import message_bytes
from cfgraph.runtime.trace.events import TraceEvent

RunFunction = Callable[[EvaluationPoint, Any], object]
TokenKey = tuple[str, str]

WINDOW_BYTES: Final = 1 << 28  # bytes of values kept at once
_TOKEN_OVERHEAD: Final = 500  # bytes that a token without values takes


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first wrong token: of which node, in which frame and iteration, and what is wrong.

    `before` and `after` are the two values of an output, where there are two.
    """

    node: str
    op: str
    frame: str
    iteration: int
    message: str
    port: int | None = None
    before: Any = None
    after: Any = None

    def to_json(self) -> dict[str, Any]:
        """The divergence as a member of a command's JSON document."""
        return {
            "node": self.node,
            "op": self.op,
            "frame": self.frame,
            "iteration": self.iteration,
            "port": self.port,
            "message": self.message,
        }


def first_divergence(
    a: EvaluationPoint,
    b: EvaluationPoint,
    run: RunFunction,
    rtol: float | None,
    atol: float | None,
    window: int = WINDOW_BYTES,
) -> Divergence | None:
    """The first wrong token of the runs at two points; None where no node of both differs.

    `run` runs a point under an observer; a failure of it ends a run like any other end. Tokens that
    only one of the two has count where all that both have are alike.
    """
    start, lone = 0, _UnmatchedTokens()
    while True:
        kept = _RecordedTokens(b.graph.nodes, start, window)
        _run_point(run, a, kept)
        compared = _TokenComparison(kept, a.graph.nodes, lone, rtol, atol)
        failed = _run_point(run, b, compared)
        if compared.found:
            return compared.found
        lone.miss(kept, failed)
        if kept.stopped is None:
            return lone.missing or lone.extra
        start = kept.stopped


def _run_point(run: RunFunction, point: EvaluationPoint, observer: Any) -> str | None:
    """Run a point; the node at which it failed."""
    try:
        run(point, observer)
    except CfgraphError as error:
        return error.node or ""
    return None


class _RecordedTokens:
    """Keeps tokens of common nodes, from the one of this number, until they take too much."""

    def __init__(self, common: Any, start: int, room: int) -> None:
        self.common = common
        self.start = start
        self.room = room
        self.seen = 0
        self.stopped: int | None = None
        self.tokens: dict[TokenKey, TraceEvent] = {}
        self.before: set[TokenKey] = set()

    def event(self, event: TraceEvent) -> None:
        """Take one token."""
        if event.kind in _IGNORED_KINDS or event.node not in self.common:
            return
        number = self.seen
        self.seen += 1
        if number < self.start or self.stopped is not None:
            self.before.add((event.node, event.frame))
            return
        self.tokens[event.node, event.frame] = event
        self.room -= _TOKEN_OVERHEAD + sum(message_bytes(value) for value in event.outputs)
        if self.room < 0:
            self.stopped = self.seen


_IGNORED_KINDS: Final = ("frame", "note")


class _UnmatchedTokens:
    """The first tokens that only one of the two runs has."""

    def __init__(self) -> None:
        self.missing: Divergence | None = None
        self.extra: Divergence | None = None

    def miss(self, kept: _RecordedTokens, failed: str | None) -> None:
        """Note a live token that did not come; best of the node at which the run failed."""
        left = [event for event in kept.tokens.values() if not event.dead]
        at_fault = [event for event in left if event.node == failed]
        for event in (at_fault or left)[:1]:
            if self.missing is None or at_fault:
                self.missing = _make_divergence(event, "runs in A, not in B")

    def add(self, event: TraceEvent) -> None:
        """Note a live token that the first run does not have."""
        if self.extra is None and not event.dead:
            self.extra = _make_divergence(event, "runs in B, not in A")


class _TokenComparison:
    """Compares tokens with kept ones, which are used up, until one is wrong."""

    def __init__(
        self,
        kept: _RecordedTokens,
        common: Any,
        lone: _UnmatchedTokens,
        rtol: float | None,
        atol: float | None,
    ) -> None:
        self.kept = kept
        self.common = common
        self.lone = lone
        self.limits = (rtol, atol)
        self.found: Divergence | None = None

    def event(self, event: TraceEvent) -> None:
        """Take one token."""
        if self.found or event.kind in _IGNORED_KINDS or event.node not in self.common:
            return
        key = (event.node, event.frame)
        wanted = self.kept.tokens.pop(key, None)
        if wanted is not None:
            self.found = self.compare(wanted, event)
        elif key not in self.kept.before:
            self.lone.add(event)

    def compare(self, a: TraceEvent, b: TraceEvent) -> Divergence | None:
        """How a token differs from the one that was kept."""
        if a.dead != b.dead:
            return _make_divergence(b, _LIVENESS_MESSAGES[a.dead])
        for port, (before, after) in enumerate(zip(a.outputs, b.outputs, strict=False)):
            told = difference_message(before, after, *self.limits)
            if told is not None:
                return _make_divergence(b, told, port, before, after)
        return None


_LIVENESS_MESSAGES: Final = {True: "dead in A, live in B", False: "live in A, dead in B"}


def _make_divergence(event: TraceEvent, message: str, *rest: Any) -> Divergence:
    return Divergence(event.node, event.op, event.frame, event.iteration, message, *rest)


def difference_message(
    before: Any, after: Any, rtol: float | None = None, atol: float | None = None
) -> str | None:
    """How two values differ, None for a dead one.

    Resources, lists and the like are never different from each other, references from nothing.
    """
    if before is after or isinstance(before, Variable) or isinstance(after, Variable):
        return None
    if before is None or after is None:
        return _LIVENESS_MESSAGES[before is None]
    before, after = _as_array(before), _as_array(after)
    arrays = _is_comparable(before), _is_comparable(after)
    if arrays == (False, False):
        return None
    if not all(arrays):
        return f"an array in {'AB'[arrays[1]]} alone"
    found = value_difference(after, before, rtol, atol)
    return found.message if found else None


def _as_array(value: Any) -> Any:
    """A text of rank 0 as the array that it stands for."""
    return np.array(value, dtype=object) if isinstance(value, bytes | str) else value


def _is_comparable(value: Any) -> bool:
    """True for what can be compared: numbers, and bytes in arrays of objects."""
    array = isinstance(value, np.ndarray | np.generic)
    items: Sequence[Any] = value.ravel()[:1].tolist() if array and value.dtype == object else ()
    return array and all(isinstance(item, bytes | str) for item in items)
