"""How clusters run: each `XlaLaunch` is one call of its function, compiled or fused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.evaluate import numpy_kernel
from cfgraph.ops.evaluate_control import numpy_line
from cfgraph.ops.op import Kernel, Op, lookup
from cfgraph.ops.variables import Variable
from cfgraph.runtime.clusters import Cluster, Compilation, Signature
from cfgraph.runtime.compiled import (
    Compiled,
    Traceable,
    compiling,
    first_place,
    has_jax,
    jax,
    on_card,
)
from cfgraph.runtime.devices.card_line import card_line
from cfgraph.runtime.handover import OnHost

if TYPE_CHECKING:
    from cfgraph.runtime.devices.lane import Lane

AUTO: Final = "auto"
ENGINES: Final = ("numpy", "xla")
# signatures of one cluster that stay compiled; the oldest goes first
KEPT: Final = 64
# a cluster that was compiled more often than this, and ran fewer times for each, is not any more
_MOST_COMPILATIONS: Final = 10
_RUNS_FOR_EACH: Final = 50
# a call of a compiled function takes as long as so many calls of kernels, on so many elements each
_KERNELS_OF_A_CALL: Final = 20
_ELEMENTS_OF_A_CALL: Final = 1000
_MANY: Final = 1 << 30


class Launches:
    """The clusters of a session: `engine` runs them, `lazy` compiles on a signature's second use.

    Without an engine XLA is taken where jax is installed, for what is large enough to gain by it.
    Raises UsageError for an engine that is none, Unsupported for XLA without jax.
    """

    def __init__(self, engine: str | None = None, *, lazy: bool = False) -> None:
        if engine not in (None, AUTO, *ENGINES):
            message = f"unknown engine {engine!r}"
            raise UsageError(message, hint=f"one of {', '.join((AUTO, *ENGINES))}")
        if engine == "xla":
            jax()
        self.spares = engine in (None, AUTO)
        self.engine = ("xla" if has_jax() else "numpy") if self.spares else str(engine)
        self.lazy = lazy
        self.clusters: dict[Any, Cluster] = {}
        self._instances: FunctionInstances | None = None

    def kernel(self, graph: Graph, node: Node, device: str, lane: Lane | None = None) -> Kernel:
        """What a launch does: a callable over a step and the inputs.

        `lane` is the stream of a real GPU, None on the host.
        """
        cluster = self._cluster(graph, node, lane)
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
        call = _Call(cluster, node, fused, self, device)
        return call.run

    def running(self) -> AbstractContextManager[None]:
        """Where launches run."""
        used = any(cluster.traceable for cluster in self.clusters.values())
        return compiling() if used else nullcontext()

    def _cluster(self, graph: Graph, node: Node, lane: Lane | None) -> Cluster:
        """The cluster of a launch; one for all launches of a function on the host, or on a gpu."""
        if self._instances is None or self._instances.library != graph.functions:
            self._instances = FunctionInstances(dict(graph.functions))
        func, constants = node.attr("function"), len(node.attr("Tconstants"))
        function = self._instances.get(func.name, func.attrs)
        key = function, constants, lane
        if key not in self.clusters:
            self.clusters[key] = self._made(func.name, function, constants, self._instances, lane)
        return self.clusters[key]

    def _made(
        self,
        name: str,
        function: FunctionGraph,
        constants: int,
        instances: FunctionInstances,
        lane: Lane | None,
    ) -> Cluster:
        if lane is None:
            line = numpy_line(function, instances, _fused_kernel)
        else:
            line = card_line(function, instances, _fused_kernel, lane)
        cluster = Cluster(name, function, line, None)
        if self.engine == "xla" and not (lane and self.spares):
            try:
                handover = on_card(lane) if lane else None
                cluster.traceable = Traceable(function, constants, instances, handover)
            except Unsupported as error:
                cluster.refused = f"{error.node}: {error.message}" if error.node else error.message
        return cluster


class _Drawing(NamedTuple):
    """The random op that runs, as its numbers are keyed: by the launch that it is in, too."""

    name: str
    launch: Node


def _fused_kernel(node: Node, op: type[Op]) -> Kernel:
    """The kernel of a node in a fused call; a random one draws as itself, not as the launch."""
    kernel = numpy_kernel(node, op)
    if not (op.stateful and op.random):
        return kernel

    def draw(step: Any, *inputs: Any) -> Any:
        launch = getattr(step.node, "launch", step.node)
        step.node = _Drawing(f"{launch.name}/{node.name}", launch)
        return kernel(step, *inputs)

    return draw


class _Call:
    """One launch that XLA runs: it finds the compiled body of a signature, or has it made."""

    def __init__(
        self, cluster: Cluster, node: Node, fused: Kernel, owner: Launches, device: str
    ) -> None:
        assert cluster.traceable is not None
        self.cluster, self.node, self.fused, self.device = cluster, node, fused, device
        self.lazy, self.spares = owner.lazy, owner.spares
        self.body = cluster.traceable
        self.constant = sorted(self.body.constant)
        # on a card, what must be known to the host
        self.by_value = set() if isinstance(self.body.handover, OnHost) else self.body.constant
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
        if self.by_value:
            inputs = tuple(
                self.body.handover.known(item) if place in self.by_value else item
                for place, item in enumerate(inputs)
            )
        key = self.signature(inputs)
        try:
            compiled = cluster.compiled[key]
        except KeyError:
            compiled = self.compile(step, key, inputs)
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

    def compile(self, step: Any, key: Signature, inputs: Sequence[Any]) -> Compiled | None:
        """The body compiled for a signature that is new; None where the fused call is to run."""
        cluster = self.cluster
        if cluster.given_up:
            return None
        if self.spares and _is_small(cluster, inputs):
            cluster.small = True
            _keep(cluster.compiled, key, None)
            return None
        if self.lazy and key not in cluster.seen:
            _keep(cluster.seen, key, None)
            return None
        made: Compiled | None = None
        refused, began = "", time.perf_counter()
        if _changes_too_often(cluster):
            refused, cluster.given_up = "its signature changes too often", True
        else:
            try:
                made = self.body.compile(inputs)
            except Exception as error:
                refused = self.body.why_not(error)
        seconds = time.perf_counter() - began
        done = Compilation(cluster.name, self.node.name, seconds, cluster.difference(key), refused)
        cluster.compilations.append(done)
        step.tell(self.device, str(done))
        cluster.last = key
        _keep(cluster.compiled, key, made)
        return made


def _keep(known: dict[Signature, Any], key: Signature, made: Any) -> None:
    """Remember something of a signature; the oldest goes where there are too many."""
    while len(known) >= KEPT:
        del known[next(iter(known))]
    known[key] = made


def _shape(item: Any) -> Any:
    """What a signature says of one input; its type is the function's."""
    if isinstance(item, Variable):
        return item.dtype, None if item.value is None else item.value.shape
    return item.shape


def _is_small(cluster: Cluster, inputs: Sequence[Any]) -> bool:
    """True where the kernels are done before a compiled function is called.

    What goes round in a loop is never small: nobody knows how often.
    """
    if any(getattr(lookup(node.op), "functional", "") == "while" for node in cluster.line.order):
        return False
    largest = max((int(getattr(item, "size", _MANY)) for item in inputs), default=0)
    return len(cluster.line.order) * (1 + largest / _ELEMENTS_OF_A_CALL) < _KERNELS_OF_A_CALL


def _changes_too_often(cluster: Cluster) -> bool:
    count = len(cluster.compilations)
    return count >= _MOST_COMPILATIONS and cluster.calls < _RUNS_FOR_EACH * count
