"""How clusters run: each `XlaLaunch` is one call of its function, compiled or fused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph, Instances
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.evaluate import StraightLine, numpy_kernel
from cfgraph.ops.op import Kernel
from cfgraph.ops.variables import Variable
from cfgraph.runtime.compiled import Compiled, Traceable, compiling, first_place, has_jax, jax

ENGINES: Final = ("numpy", "xla")
# signatures of one cluster that stay compiled; the oldest goes first
KEPT: Final = 64
# a cluster that was compiled more often than this, and ran fewer times for each, is not any more
_MOST_COMPILATIONS: Final = 10
_RUNS_FOR_EACH: Final = 50

Signature = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a cluster; `changed` says what differs from the signature before.

    `refused` is why it was not to be had, and the fused call stands for it; `` where it was.
    """

    function: str
    node: str
    seconds: float
    changed: str
    refused: str


@dataclass(slots=True)
class Cluster:
    """A function that launches call, and how it ran so far."""

    name: str
    function: FunctionGraph
    line: StraightLine
    traceable: Traceable | None
    refused: str = ""
    calls: int = 0
    fused: int = 0
    compiled: dict[Signature, Compiled | None] = field(default_factory=dict)
    seen: dict[Signature, None] = field(default_factory=dict)
    last: Signature | None = None
    compilations: list[Compilation] = field(default_factory=list)


class Launches:
    """The clusters of a session: `engine` runs them, `lazy` compiles on a signature's second use.

    Without an engine XLA is taken where jax is installed. Raises UsageError for another engine.
    """

    def __init__(self, engine: str | None = None, *, lazy: bool = False) -> None:
        if engine not in (None, *ENGINES):
            message = f"unknown engine {engine!r}"
            raise UsageError(message, hint=f"one of {', '.join(ENGINES)}")
        if engine == "xla":
            jax()
        self.engine = engine or ("xla" if has_jax() else "numpy")
        self.lazy = lazy
        self.clusters: dict[Any, Cluster] = {}
        self._instances: Instances | None = None

    def kernel(self, graph: Graph, node: Node) -> Kernel:
        """What a launch does: a callable over a step and the inputs."""
        cluster = self._cluster(graph, node)
        line, name = cluster.line, node.name

        def fused(step: Any, *inputs: Any) -> Any:
            cluster.calls += 1
            cluster.fused += 1
            try:
                return line.run(step, *inputs)
            except Exception as error:
                raise line.located(error, name) from error.__cause__

        if cluster.traceable is None:
            return fused
        call = _Call(cluster, node, fused, lazy=self.lazy)
        return call.run

    def running(self) -> AbstractContextManager[None]:
        """Where launches run."""
        used = any(cluster.traceable for cluster in self.clusters.values())
        return compiling() if used else nullcontext()

    def _cluster(self, graph: Graph, node: Node) -> Cluster:
        """The cluster of a launch; one for all launches of a function."""
        if self._instances is None or self._instances.library != graph.functions:
            self._instances = Instances(dict(graph.functions))
        func, constants = node.attr("function"), len(node.attr("Tconstants"))
        function = self._instances.get(func.name, func.attrs)
        key = function, constants
        if key not in self.clusters:
            self.clusters[key] = self._made(func.name, function, constants)
        return self.clusters[key]

    def _made(self, name: str, function: FunctionGraph, constants: int) -> Cluster:
        cluster = Cluster(name, function, StraightLine(function, numpy_kernel), None)
        if self.engine == "xla":
            try:
                cluster.traceable = Traceable(function, constants)
            except Unsupported as error:
                cluster.refused = f"{error.node}: {error.message}" if error.node else error.message
        return cluster


class _Call:
    """One launch that XLA runs: it finds the compiled body of a signature, or has it made."""

    def __init__(self, cluster: Cluster, node: Node, fused: Kernel, *, lazy: bool) -> None:
        assert cluster.traceable is not None
        self.cluster, self.node, self.fused, self.lazy = cluster, node, fused, lazy
        self.body = cluster.traceable
        self.constant = sorted(self.body.constant)
        types = cluster.function.input_types
        handles = [place for place, dtype in enumerate(types) if dtype.kind == "resource"]
        # several handles may be of one variable
        self.handles = handles if len(handles) > 1 else []
        # the constants of the last run, and what they are in a signature
        self.known: tuple[Any, ...] = ()
        self.told: Signature = ()

    def run(self, step: Any, *inputs: Any) -> Any:
        """Run the cluster."""
        cluster = self.cluster
        key = self.signature(inputs)
        try:
            compiled = cluster.compiled[key]
        except KeyError:
            compiled = self.compile(key, inputs)
        if compiled is None:
            return self.fused(step, *inputs)
        cluster.calls += 1
        return compiled.run(inputs)

    def signature(self, inputs: Sequence[Any]) -> Signature:
        """What a compiled body is for: shapes, the values of constants, the variables' types."""
        shapes = tuple([_shape(item) for item in inputs])
        if self.handles:
            shapes += tuple([first_place(inputs, place) for place in self.handles])
        if not self.constant:
            return shapes, ()
        known = tuple([inputs[place] for place in self.constant])
        if len(known) != len(self.known) or any(
            one is not other for one, other in zip(known, self.known, strict=True)
        ):
            self.known, self.told = known, tuple([item.tobytes() for item in known])
        return shapes, self.told

    def compile(self, key: Signature, inputs: Sequence[Any]) -> Compiled | None:
        """The body compiled for a signature that is new; None where the fused call is to run."""
        cluster = self.cluster
        if self.lazy and key not in cluster.seen:
            cluster.seen[key] = None
            return None
        made: Compiled | None = None
        refused, began = "", time.perf_counter()
        if _changes_too_often(cluster):
            refused = "its signature changes too often"
        else:
            try:
                made = self.body.compile(inputs)
            except Exception as error:
                refused = self.body.why_not(error)
        seconds = time.perf_counter() - began
        changed = _difference(cluster, cluster.last, key)
        cluster.compilations.append(
            Compilation(cluster.name, self.node.name, seconds, changed, refused)
        )
        cluster.last = key
        while len(cluster.compiled) >= KEPT:
            del cluster.compiled[next(iter(cluster.compiled))]
        cluster.compiled[key] = made
        return made


def _shape(item: Any) -> Any:
    """What a signature says of one input; its type is the function's."""
    if isinstance(item, Variable):
        return item.dtype, None if item.value is None else item.value.shape
    return item.shape


def _changes_too_often(cluster: Cluster) -> bool:
    count = len(cluster.compilations)
    return count >= _MOST_COMPILATIONS and cluster.calls < _RUNS_FOR_EACH * count


def _difference(cluster: Cluster, before: Signature | None, now: Signature) -> str:
    """Which arguments differ between two signatures, in words."""
    if before is None or cluster.traceable is None:
        return ""
    arguments, told = cluster.function.arguments, list[str]()
    for argument, old, new in zip(arguments, before[0], now[0], strict=False):
        if old != new:
            told.append(f"{argument.name} is {_words(new)}, was {_words(old)}")
    for place, old, new in zip(sorted(cluster.traceable.constant), before[1], now[1], strict=True):
        if old != new and before[0][place] == now[0][place]:
            told.append(f"constant {arguments[place].name} has another value")
    return "; ".join(told) or "variables are shared otherwise"


def _words(shape: Any) -> str:
    if len(shape) == len(("type", "shape")) and isinstance(shape[0], DType):
        return f"{shape[0]}{Shape(shape[1])}" if shape[1] is not None else "without a value"
    return str(Shape(shape))
