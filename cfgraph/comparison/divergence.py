"""The first divergent token of two runs, among nodes of both graphs.

Both runs are traced. The tokens of the first run are recorded, and the tokens of the second run are
compared with them in causal order: the inputs of the first wrong token were right, as far as both
graphs have nodes of the same name. The recording is bounded: longer runs are compared window by
window, each in a separate run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.comparison.differences import Divergence
from cfgraph.comparison.sample_point import EvaluationPoint
from cfgraph.comparison.value_difference import value_difference
from cfgraph.errors import CfgraphError
from cfgraph.ops.families.variables import Variable
from cfgraph.runtime.engine.token_trace import message_bytes
from cfgraph.runtime.trace.events import TraceEvent

RunFunction = Callable[[EvaluationPoint, Any], object]
TokenKey = tuple[str, str]

WINDOW_BYTES: Final = 1 << 28  # maximum size of recorded values
_TOKEN_OVERHEAD: Final = 500  # bytes of a token without values


def first_divergence(
    a: EvaluationPoint,
    b: EvaluationPoint,
    run: RunFunction,
    common: Collection[str],
    rtol: float | None,
    atol: float | None,
    window: int = WINDOW_BYTES,
) -> Divergence | None:
    """Return the first token at which the runs of two points differ, or None if they agree.

    `run` executes a point under an observer; a run that fails is compared up to the failure. Only
    `common` nodes are compared. A live token that occurs in one run only is returned if all
    other tokens agree. About `window` bytes are recorded at a time; longer runs are repeated for
    each window.
    """
    start, unmatched = 0, _UnmatchedTokens()
    while True:
        recorded = _RecordedTokens(common, start, window)
        _run_point(run, a, recorded)
        compared = _TokenComparison(recorded, common, unmatched, rtol, atol)
        failed = _run_point(run, b, compared)
        if compared.divergence:
            return compared.divergence
        unmatched.add_missing(recorded, failed)
        if recorded.stopped is None:
            return unmatched.missing or unmatched.extra
        start = recorded.stopped


def _run_point(run: RunFunction, point: EvaluationPoint, observer: Any) -> str | None:
    """Run a point; return the node at which it failed, None if it did not."""
    try:
        run(point, observer)
    except CfgraphError as error:
        return error.node or ""
    return None


class _RecordedTokens:
    """Recorder of tokens of common nodes, from number `start` on, up to a size limit."""

    def __init__(self, common: Any, start: int, free_bytes: int) -> None:
        self.common = common
        self.start = start
        self.free_bytes = free_bytes
        self.seen = 0
        self.stopped: int | None = None
        self.tokens: dict[TokenKey, TraceEvent] = {}
        self.before: set[TokenKey] = set()

    def event(self, event: TraceEvent) -> None:
        """Process one token."""
        if event.kind in _IGNORED_KINDS or event.node not in self.common:
            return
        number = self.seen
        self.seen += 1
        if number < self.start or self.stopped is not None:
            self.before.add((event.node, event.frame))
            return
        self.tokens[event.node, event.frame] = event
        self.free_bytes -= _TOKEN_OVERHEAD + sum(message_bytes(value) for value in event.outputs)
        if self.free_bytes < 0:
            self.stopped = self.seen


_IGNORED_KINDS: Final = ("note",)


class _UnmatchedTokens:
    """The first tokens of only one of the two runs."""

    def __init__(self) -> None:
        self.missing: Divergence | None = None
        self.extra: Divergence | None = None

    def add_missing(self, recorded: _RecordedTokens, failed: str | None) -> None:
        """Note a live token without counterpart, preferably of the node at which the run failed."""
        live = [event for event in recorded.tokens.values() if not event.dead]
        at_fault = [event for event in live if event.node == failed]
        for event in (at_fault or live)[:1]:
            if self.missing is None or at_fault:
                self.missing = _make_divergence(event, "runs in A, not in B")

    def add_extra(self, event: TraceEvent) -> None:
        """Note a live token of only the second run."""
        if self.extra is None and not event.dead:
            self.extra = _make_divergence(event, "runs in B, not in A")


class _TokenComparison:
    """Comparison of tokens with recorded ones, each used once, up to the first difference."""

    def __init__(
        self,
        recorded: _RecordedTokens,
        common: Any,
        unmatched: _UnmatchedTokens,
        rtol: float | None,
        atol: float | None,
    ) -> None:
        self.recorded = recorded
        self.common = common
        self.unmatched = unmatched
        self.limits = (rtol, atol)
        self.divergence: Divergence | None = None

    def event(self, event: TraceEvent) -> None:
        """Process one token."""
        if self.divergence or event.kind in _IGNORED_KINDS or event.node not in self.common:
            return
        key = (event.node, event.frame)
        expected = self.recorded.tokens.pop(key, None)
        if expected is not None:
            self.divergence = self.compare(expected, event)
        elif key not in self.recorded.before:
            self.unmatched.add_extra(event)

    def compare(self, a: TraceEvent, b: TraceEvent) -> Divergence | None:
        """Compare a token with the recorded one."""
        if a.dead != b.dead:
            return _make_divergence(b, _LIVENESS_MESSAGES[a.dead])
        for port, (before, after) in enumerate(zip(a.outputs, b.outputs, strict=False)):
            message = difference_message(before, after, *self.limits)
            if message is not None:
                return _make_divergence(b, message, port, before, after)
        return None


_LIVENESS_MESSAGES: Final = {True: "dead in A, live in B", False: "live in A, dead in B"}


def _make_divergence(event: TraceEvent, message: str, *rest: Any) -> Divergence:
    return Divergence(event.node, event.op, event.frame, event.iteration, message, *rest)


def difference_message(
    before: Any, after: Any, rtol: float | None = None, atol: float | None = None
) -> str | None:
    """Describe the difference between two values, or return None if they are equal.

    A dead value is None. Resources and lists are always treated as equal, and a reference as equal
    to everything.
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
        return f"an array only in {'AB'[arrays[1]]}"
    difference = value_difference(after, before, rtol, atol)
    return difference.description if difference else None


def _as_array(value: Any) -> Any:
    """Convert a scalar string to an array."""
    return np.array(value, dtype=object) if isinstance(value, bytes | str) else value


def _is_comparable(value: Any) -> bool:
    """Return true for numbers, and for object arrays of bytes."""
    array = isinstance(value, np.ndarray | np.generic)
    first: Sequence[Any] = value.ravel()[:1].tolist() if array and value.dtype == object else ()
    return array and all(isinstance(element, bytes | str) for element in first)
