"""Values inside of a run: patterns of nodes, and their arrays per iteration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.runtime.fetches import is_glob, matching_nodes
from cfgraph.runtime.preparation.run_passes import lowered_graph
from cfgraph.runtime.trace.events import ROOT_FRAME, TraceEvent

_ITERATION: Final = re.compile(r"(.+)\[(\d{1,18})\]")
_ITERATIONS: Final = re.compile(r"(.+)\[[\d,]*,(\d{1,18})\]")
_FRAME_ITERATION: Final = re.compile(r"\[(\d+)\]")


class TapPattern:
    """A pattern of nodes to tap: `GLOB`, `GLOB:PORT` for one output, or `op:GLOB`.

    With a suffix `[13]`, only iteration 13 of a loop.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        one = _ITERATION.fullmatch(text)
        self.iteration = int(one[2]) if one else None
        nodes = one[1].rstrip() if one else text
        self.by_op = nodes.startswith("op:")
        self.tensor = nodes
        base, port = split_tensor_name(nodes)
        self.glob = nodes.removeprefix("op:") if self.by_op else base
        self.port = None if self.by_op or base == nodes else port

    def matches(self, name: str, op: str) -> bool:
        """True for a node to tap."""
        return fnmatchcase(op if self.by_op else name, self.glob)

    def matches_any(self, nodes: Iterable[Node | BodyNode]) -> bool:
        """True if one of the nodes is one to tap."""
        return any(self.matches(node.name, node.op) for node in nodes)

    def check(self, graph: Graph) -> None:
        """Raise UsageError for a pattern that matches nothing in this graph."""
        several = _ITERATIONS.fullmatch(self.text)
        if several and not self.matches_any(graph):
            message = f"{self.text!r} names iterations of several loops"
            innermost = f"{several[1]}[{several[2]}]"
            raise UsageError(message, hint=f"write {innermost}, for the innermost loop of the node")
        if not self.by_op:
            if self.port is not None and not is_glob(self.glob):
                graph.tensor(self.tensor)
            matching_nodes(graph, self.glob)
        elif not self.matches_any(graph):
            hint = did_you_mean(self.tensor, {f"op:{node.op}" for node in graph})
            raise UsageError(f"no node matches {self.text!r}", hint=hint)


def check_patterns(graph: Graph, patterns: Sequence[TapPattern]) -> None:
    """Raise UsageError for a pattern that matches nothing, also after lowering."""
    inner: list[TapPattern] = []
    for pattern in patterns:
        if not graph.functions or pattern.matches_any(graph):
            pattern.check(graph)
        elif pattern.tensor.partition("/")[0] not in graph.functions:
            inner.append(pattern)
    if not inner:
        return
    try:
        lowered = lowered_graph(graph)
    except CfgraphError:  # the run reports it, if it needs the node
        return
    # nodes of clusters, and of calls that are not lowered
    bodies = [function.definition.nodes for function in lowered.functions.values()]
    for pattern in inner:
        if not any(map(pattern.matches_any, bodies)):
            pattern.check(lowered)


@dataclass(slots=True)
class TappedTensor:
    """The values of a tensor in a run, in the order of the iterations of its loops.

    `iterations` has the number of the iteration of each loop, the outermost first; none outside of
    loops. A value is None where the tensor was dead; the iteration that only ends a loop counts
    if a value is live in it.
    """

    name: str
    values: list[Any] = field(default_factory=list)
    iterations: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def live(self) -> Any:
        """An array with an axis for each loop: true where the tensor has a value."""
        live = np.zeros(self._lengths(), np.bool_)
        for iteration, value in zip(self.iterations, self.values, strict=True):
            live[iteration] = value is not None
        return live

    def stacked(self) -> Any:
        """The values as an array with an axis for each loop, zero where `live` is false.

        Raises UsageError for values of several shapes, and for handles.
        """
        arrays = [None if value is None else np.asarray(value) for value in self.values]
        kinds = {(array.dtype, array.shape) for array in arrays if array is not None}
        shapes = sorted({shape for _, shape in kinds})
        if len(shapes) > 1:
            message = f"{self.name} has values of {len(shapes)} shapes: {shapes[0]}, {shapes[1]}"
            raise UsageError(message, hint="read them one by one: `values` of a tapped tensor")
        dtype, shape = kinds.pop() if kinds else (np.dtype(np.float32), ())
        stack = np.zeros((*self._lengths(), *shape), dtype)
        for iteration, array in zip(self.iterations, arrays, strict=True):
            if array is not None:
                stack[iteration] = array
        return stack

    def _lengths(self) -> tuple[int, ...]:
        return tuple(max(numbers) + 1 for numbers in zip(*self.iterations, strict=True))


class Taps(Mapping[str, TappedTensor]):
    """Arrays of nodes per iteration, which `session.run(..., taps=taps)` collects.

    A pattern is `NODE`, `NODE:PORT`, a glob, or `op:GLOB`; with a suffix `[3]`, of iteration 3
    alone. The tapped tensors are by name, as `taps["while/mul"]` or `taps["while/mul:0"]`.

    Raises UsageError in a run of a graph in which a pattern matches no node.
    """

    def __init__(self, *patterns: str) -> None:
        self.patterns = tuple(map(TapPattern, dict.fromkeys(patterns)))
        self._known: dict[str, list[TapPattern]] = {}
        self._values: dict[str, dict[str, tuple[tuple[int, ...], Any]]] = {}
        self._last: dict[str, int] = {}
        self._tensors: dict[str, TappedTensor] | None = None

    def start(self, graph: Graph) -> None:
        """Check the patterns, and forget the values of an earlier run."""
        check_patterns(graph, self.patterns)
        self._known, self._values, self._last, self._tensors = {}, {}, {}, None

    def event(self, event: TraceEvent) -> None:
        """Collect the outputs of a tapped node."""
        if not event.is_token:
            return
        loop = event.frame.rpartition("[")[0]
        self._last[loop] = max(event.iteration, self._last.get(loop, 0))
        patterns = self._known.get(event.node)
        if patterns is None:
            patterns = self._known[event.node] = [
                pattern for pattern in self.patterns if pattern.matches(event.node, event.op)
            ]
        if not patterns:
            return
        ports = {item.port for item in patterns if item.iteration in (None, event.iteration)}
        self._tensors = None
        leaves = ROLES[event.op] is Role.EXIT
        # the value of an Exit is in the outer frame, and it is dead in all iterations but one
        frame = (loop.rpartition("/")[0] or ROOT_FRAME) if leaves else event.frame
        iteration = tuple(map(int, _FRAME_ITERATION.findall(frame)))
        for port, value in enumerate(event.outputs):
            if port in ports or None in ports:
                values = self._values.setdefault(f"{event.node}:{port}", {})
                if value is not None or not leaves or frame not in values:
                    values[frame] = iteration, value

    def __getitem__(self, name: str) -> TappedTensor:
        tensors = self._collected()
        return tensors[name if name in tensors else f"{name}:0"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._collected())

    def __len__(self) -> int:
        return len(self._collected())

    def _collected(self) -> dict[str, TappedTensor]:
        if self._tensors is None:
            self._tensors = {name: self._tensor(name) for name in sorted(self._values)}
        return self._tensors

    def _tensor(self, name: str) -> TappedTensor:
        tensor = TappedTensor(name)
        frames = self._values[name]
        for frame, (iteration, value) in sorted(frames.items(), key=lambda item: item[1][0]):
            only_ends = value is None and frame != ROOT_FRAME and self._is_last(frame, iteration)
            if not only_ends:
                tensor.iterations.append(iteration)
                tensor.values.append(value)
        return tensor

    def _is_last(self, frame: str, iteration: tuple[int, ...]) -> bool:
        return iteration[-1] == self._last.get(frame.rpartition("[")[0])
