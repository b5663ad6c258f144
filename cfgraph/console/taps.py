"""`--tap`: print the outputs of chosen nodes as a run computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TextIO

import numpy as np

from cfgraph.cli.name_scopes import NameHeadings
from cfgraph.console.documents import ValueReport
from cfgraph.console.values import statistics_text, type_text, value_report, value_text
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.printable import clean, clean_lines
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import function_calls
from cfgraph.reports import Count, Inline, Maybe, Record
from cfgraph.runtime.fetches import is_glob
from cfgraph.runtime.preparation.taps import TapPattern, check_patterns
from cfgraph.runtime.trace.events import ROOT_FRAME, TraceEvent

# a node at the border of a loop runs in the frame that is printed; its value is in the other one
_CROSSINGS: Final[dict[Role | None, str]] = {
    Role.ENTER: " (enters a loop)",
    Role.EXIT: " (leaves the loop)",
}


# iterations of which a variable may be missing
_MAX_WAITING: Final = 32


def complete_pattern(text: str, complete: Callable[[str], str | None]) -> str:
    """A pattern for whose node, if it is one, the complete name is written."""
    pattern = TapPattern(text)
    if pattern.by_op or is_glob(pattern.tensor):
        return text
    return text.replace(pattern.tensor, complete(pattern.tensor) or pattern.tensor, 1)


class TappedValue(Record):
    """A value of a tapped node."""

    tensor: str
    frame: str
    iteration: Count
    value: Inline[ValueReport | None]
    dead: Maybe[bool]
    variable: Maybe[str]  #: With --tap-state, the index and the name of the variable.


class NonfiniteValue(Record):
    """A value with NaN or Inf, and the numbers of these."""

    tensor: str
    op: str
    frame: str
    iteration: Count
    nan: Count
    inf: Count


def _print_heading(stream: TextIO | None, text: str) -> None:
    print(clean(text), file=stream)


class _OrderedStates:
    """Values of an iteration in the order of the variables of its loop, not of their nodes.

    An iteration waits for all of its variables as long as few iterations do.
    """

    def __init__(
        self,
        states: Sequence[Mapping[str, str]],
        emit: Callable[[TraceEvent, int, Any], None],
    ) -> None:
        self._places = {
            tensor: (number, len(state)) for state in states for number, tensor in enumerate(state)
        }
        self._emit = emit
        self._waiting: dict[str, dict[int, tuple[TraceEvent, int, Any]]] = {}

    def add(self, event: TraceEvent, port: int, value: Any) -> None:
        """Emit a value, or let it wait for other variables of its iteration."""
        number, count = self._places.get(f"{event.node}:{port}", (0, 1))
        if count == 1:
            self._emit(event, port, value)
            return
        iteration = self._waiting.setdefault(event.frame, {})
        iteration[number] = event, port, value
        if len(iteration) == count:
            self._end(event.frame)
        elif len(self._waiting) > _MAX_WAITING:
            self._end(next(iter(self._waiting)))

    def flush(self) -> None:
        """Emit all that wait."""
        for frame in list(self._waiting):
            self._end(frame)

    def _end(self, frame: str) -> None:
        for _, value in sorted(self._waiting.pop(frame).items(), key=lambda item: item[0]):
            self._emit(*value)


class TapPrinter:
    """An observer that prints or collects the outputs of tapped nodes.

    `fed` are the fed tensors, whose nodes do not run; `states` are the variables of loops, each in
    the order in which the values of an iteration appear, with other names of the tensors.
    Raises UsageError for a pattern that matches no node of the graph or of its lowered form.
    """

    def __init__(
        self,
        graph: Graph,
        patterns: Iterable[str],
        stream: TextIO | None,
        full: bool,
        fed: Iterable[Output] = (),
        states: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.patterns = tuple(map(TapPattern, dict.fromkeys(patterns)))
        check_patterns(graph, self.patterns)
        self.unseen = dict.fromkeys(pattern.text for pattern in self.patterns)
        self.stream = stream
        self.full = full
        self._labels = dict(item for state in states for item in state.items())
        self._names = NameHeadings(partial(_print_heading, stream), self._labels)
        self._ordered = _OrderedStates(states, self._emit)
        self.values: list[TappedValue] = []
        self._known: dict[str, list[TapPattern]] = {}
        # the last iteration that a pattern did not name, and its frame
        self._latest: dict[str, tuple[int, str]] = {}
        self._fed = [tensor.node for tensor in fed]
        self._functions = frozenset(graph.functions)
        self._calling_ops = {node.op for node in graph if function_calls(node.op).kind}

    @property
    def texts(self) -> list[str]:
        """The patterns as texts, with complete names."""
        return [pattern.text for pattern in self.patterns]

    def event(self, event: TraceEvent) -> None:
        """Print or collect the outputs of a tapped node."""
        patterns = self._known.get(event.node)
        if patterns is None:
            patterns = self._known[event.node] = [
                pattern for pattern in self.patterns if pattern.matches(event.node, event.op)
            ]
        if not patterns:
            return
        wanted = set()
        for pattern in patterns:
            if pattern.iteration in (None, event.iteration):
                wanted.add(pattern.port)
                self.unseen.pop(pattern.text, None)
            elif event.is_token:
                current = event.iteration, event.frame
                self._latest[pattern.text] = max(current, self._latest.get(pattern.text, current))
        for port, value in enumerate(event.outputs):
            if port in wanted or None in wanted:
                self._ordered.add(event, port, value)

    def close(self) -> None:
        """Print or collect the values of iterations in which not all variables had one."""
        self._ordered.flush()

    def _emit(self, event: TraceEvent, port: int, value: Any) -> None:
        if self.stream is None:
            self._collect(event, port, value)
        else:
            self._print(event, port, value)

    def _collect(self, event: TraceEvent, port: int, value: Any) -> None:
        tensor = f"{event.node}:{port}"
        shown = None if value is None else value_report(value, self.full)
        dead, variable = True if value is None else None, self._labels.get(tensor)
        where = tensor, event.frame, event.iteration
        self.values.append(TappedValue(*where, shown, dead, variable))

    def _print(self, event: TraceEvent, port: int, value: Any) -> None:
        name = clean(self._names.label(f"{event.node}:{port}", event.frame))
        if value is None:
            print(f"{name}  dead", file=self.stream)
            return
        name += _CROSSINGS.get(ROLES[event.op], "")
        text = value_text(value, self.full)
        gap = "\n" if "\n" in text else " "
        print(clean_lines(f"{name}  {type_text(value)} ={gap}{text}"), file=self.stream)
        if statistics := statistics_text(value, self.full):
            print(f"  {statistics}", file=self.stream)

    def silent(self) -> dict[str, str]:
        """Return the patterns that matched no executed node, and the likely reasons."""
        return dict(map(self._reason, self.unseen))

    def _reason(self, pattern: str) -> tuple[str, str]:
        last, frame = self._latest.get(pattern, (0, ""))
        if frame:
            ended = f"its loop ended after {last} iteration{'s' * (last != 1)}"
            return pattern, "it is in no loop" if frame == ROOT_FRAME else ended
        function, _, node = pattern.partition("/")
        if function in self._functions:
            return pattern, f"nodes of functions have the names of their callers; use '*/{node}'"
        tapped = TapPattern(pattern)
        if tapped.matches_any(self._fed):
            return pattern, "a fed node does not run"
        if tapped.by_op and any(tapped.matches("", op) for op in self._calling_ops):
            return pattern, "a run replaces calls of functions by their nodes"
        return pattern, "no fetch depends on it"


# values that are printed
_MAX_SHOWN: Final = 10


class NonfiniteTap:
    """An observer that prints or collects the first values with NaN or Inf, in order."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self._names = NameHeadings(partial(_print_heading, stream))
        self.values: list[NonfiniteValue] = []
        self.count = 0

    def event(self, event: TraceEvent) -> None:
        """Count the outputs of a node with NaN or Inf, and record the first ones."""
        for port, value in enumerate(event.outputs):
            nan, infinite = count_nonfinite(value)
            if nan or infinite:
                self.count += 1
                if len(self.values) < _MAX_SHOWN:
                    self._record(event, port, value, nan, infinite)

    def _record(self, event: TraceEvent, port: int, value: Any, nan: int, infinite: int) -> None:
        where = f"{event.node}:{port}", event.op, event.frame, event.iteration
        self.values.append(NonfiniteValue(*where, nan, infinite))
        if self.stream is not None:
            name = clean(self._names.label(f"{event.node}:{port}", event.frame))
            print(f"{name}  {type_text(value)}  {nan} NaN, {infinite} Inf", file=self.stream)

    def summary(self) -> str:
        """Describe where the first such value appeared."""
        if not self.values:
            return "no NaN or Inf"
        first = self.values[0]
        where = f"frame {first.frame}, iteration {first.iteration}"
        return clean(
            f"first NaN or Inf: {first.tensor} ({first.op}), {where}; "
            f"{self.count} value{'s' * (self.count != 1)} in all"
        )


def count_nonfinite(value: Any) -> tuple[int, int]:
    """The numbers of NaN and of infinite elements of a floating-point or complex value."""
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "fcV":
        return 0, 0
    try:
        if np.isfinite(value).all():
            return 0, 0
        return int(np.isnan(value).sum()), int(np.isinf(value).sum())
    except TypeError:  # integers of ml_dtypes
        return 0, 0
