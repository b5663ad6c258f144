"""Execution of clusters: an `XlaLaunch` calls its function, compiled by XLA or on NumPy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import local
from typing import TYPE_CHECKING, Any, Final

from cfgraph.backends.gpu.kernels import gpu_line
from cfgraph.backends.xla.compile import (
    CompilationFailed,
    CompiledFunction,
    TraceableFunction,
    first_occurrences,
    gpu_transfer,
)
from cfgraph.backends.xla.compiled_cluster import (
    Compilation,
    CompiledCluster,
    InputSignature,
    constant_text,
)
from cfgraph.backends.xla.deferred_checks import DeferredCheckFailed, guard_arguments
from cfgraph.backends.xla.tensor_lists import UnknownCapacity
from cfgraph.backends.xla.transfer import HostTransfer
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.attrs import content_key
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.limits import DeadlinePassed, current_limits, timeout_error
from cfgraph.ops.families.tensor_list import ListGrowth, TensorList
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.function_bodies import require_bounded
from cfgraph.ops.opdef.jax_library import has_jax, load_jax, xla_context
from cfgraph.ops.opdef.op import Kernel, Op, function_calls, numpy_kernel
from cfgraph.ops.opdef.random_streams import GRAPH
from cfgraph.runtime.straight_line import StraightLine, compile_numpy

if TYPE_CHECKING:
    from cfgraph.backends.gpu.stream import GpuStream
    from cfgraph.runtime.code_cache import CodeCache


AUTO: Final = "auto"
ENGINES: Final = ("numpy", "xla")
# signatures of one cluster that stay compiled; the oldest is dropped first
MAX_SIGNATURES: Final = 64
# stop compiling a cluster that exceeds this count without enough runs per compilation
_MAX_COMPILATIONS: Final = 10
_MIN_RUNS_PER_COMPILATION: Final = 50
# cost of one call of a compiled function, in calls of kernels on this many elements each
_CALL_COST_IN_KERNELS: Final = 20
_CALL_COST_IN_ELEMENTS: Final = 1000
_UNKNOWN_SIZE: Final = 1 << 30


class SignatureCounts(local):
    """The new signatures of the run of this thread, since several runs may share the clusters.

    Without permission (`may_compile`) a signature that is not compiled runs on NumPy kernels.
    `failed` is the reason why a compiled function failed, or empty.
    """

    may_compile = True
    compiled = 0
    missed = 0
    failed = ""

    def start_run(self, *, may_compile: bool) -> None:
        """Count the signatures of a new run."""
        self.may_compile, self.compiled, self.missed, self.failed = may_compile, 0, 0, ""


class ClusterRunner:
    """Clusters of a session, run by `engine`; with `lazy`, compiled on a signature's second use.

    Executables of XLA come from the `cache`, or are stored there.

    The default engine is XLA if jax is installed, for clusters that are large enough to gain by it.
    Errors name a node with its cluster as a prefix, or by itself without `prefixes_errors`.

    Raises UsageError for an unknown engine, Unsupported for XLA without jax.
    """

    def __init__(
        self,
        engine: str | None = None,
        *,
        lazy: bool = False,
        prefixes_errors: bool = True,
        cache: CodeCache | None = None,
    ) -> None:
        if engine not in (None, AUTO, *ENGINES):
            message = f"unknown engine {engine!r}"
            raise UsageError(message, hint=f"one of {', '.join((AUTO, *ENGINES))}")
        if engine == "xla":
            load_jax()
        self.auto_engine = engine in (None, AUTO)
        self.engine = ("xla" if has_jax() else "numpy") if self.auto_engine else str(engine)
        self.lazy, self.cache = lazy, cache
        self._prefixes_errors = prefixes_errors
        self.signatures = SignatureCounts()
        self.clusters: dict[Any, CompiledCluster] = {}
        self._instances: FunctionInstances | None = None

    def kernel(
        self, graph: Graph, node: Node, device: str, stream: GpuStream | None = None
    ) -> Kernel:
        """The kernel of a cluster call: a callable of the step and the inputs.

        `stream` is the stream of a real GPU, None on the host.
        """
        cluster = self._cluster(graph, node, stream)
        line, name = cluster.line, node.name if self._prefixes_errors else ""

        def fused(step: Any, *inputs: Any) -> Any:
            cluster.count_call(fused=True)
            try:
                return line.run(step, *inputs)
            except (DeadlinePassed, Exception) as error:
                raise _located(line, error, name, node.inputs) from error.__cause__

        kernel: Kernel = fused
        if cluster.traceable is not None:
            kernel = _XlaCall(cluster, node, fused, self, device).run
        return _with_locked_state(kernel) if cluster.has_effects else kernel

    def running(self) -> AbstractContextManager[None]:
        """Context in which clusters run."""
        used = any(cluster.traceable for cluster in list(self.clusters.values()))
        return xla_context() if used else nullcontext()

    def _cluster(self, graph: Graph, node: Node, stream: GpuStream | None) -> CompiledCluster:
        """The cluster of a call; calls of one function on one device share it."""
        if self._instances is None or self._instances.library != graph.functions:
            self._instances = FunctionInstances(dict(graph.functions))
        func, constant_count = node.attr("function"), len(node.attr("Tconstants"))
        function = self._instances.get(func.name, func.attrs)
        key = function, constant_count, stream
        if key not in self.clusters:
            self.clusters[key] = self._make_cluster(
                func.name, function, constant_count, self._instances, stream
            )
        return self.clusters[key]

    def _make_cluster(
        self,
        name: str,
        function: FunctionGraph,
        constant_count: int,
        instances: FunctionInstances,
        stream: GpuStream | None,
    ) -> CompiledCluster:
        require_bounded(function, instances)
        growths: dict[Node, ListGrowth] = {}
        bind = partial(_cluster_kernel, growths)
        if stream is None:
            line = compile_numpy(function, instances, bind)
        else:
            line = gpu_line(function, instances, bind, stream)
        cluster = CompiledCluster(name, function, line, None, growths=growths)
        if self.engine == "xla" and not (stream and self.auto_engine):
            try:
                transfer = gpu_transfer(stream) if stream else None
                cluster.traceable = TraceableFunction(function, constant_count, instances, transfer)
            except Unsupported as error:
                cluster.refused = f"{error.node}: {error.message}" if error.node else error.message
        return cluster


def _with_locked_state(kernel: Kernel) -> Kernel:
    """A cluster's kernel during which no other run changes the state."""

    def run(step: Any, *inputs: Any) -> Any:
        with step.state.lock:
            return kernel(step, *inputs)

    return run


def _cluster_kernel(growths: dict[Node, ListGrowth], node: Node, op: type[Op]) -> Kernel:
    """The kernel of a node in a cluster; a random one draws from its own stream, not the call's.

    `growths` counts the lengths of the lists that it makes.
    """
    kernel = numpy_kernel(node, op)
    if op.compilation.row_operation in ("empty", "reserve"):
        return partial(_counted_list, growths, node, kernel)
    if not (op.effects.stateful and op.effects.random):
        return kernel

    def draw(step: Any, *inputs: Any) -> Any:
        call = step.node
        step.run_inside(node, GRAPH.inside(call))
        try:
            return kernel(step, *inputs)
        finally:
            step.node = call

    return draw


def _counted_list(
    growths: dict[Node, ListGrowth], node: Node, kernel: Kernel, *inputs: Any
) -> TensorList:
    """A new list whose lengths are counted."""
    made: TensorList = kernel(*inputs)
    made.growth = growths.setdefault(node, ListGrowth(made.length))
    made.growth.add(made.length)
    return made


class _XlaCall:
    """One cluster call through XLA, which compiles a function per signature."""

    def __init__(
        self, cluster: CompiledCluster, node: Node, fused: Kernel, owner: ClusterRunner, device: str
    ) -> None:
        assert cluster.traceable is not None
        self.cluster, self.node, self.fused, self.device = cluster, node, fused, device
        self.owner, self.lazy, self.auto_engine = owner, owner.lazy, owner.auto_engine
        self.body = cluster.traceable
        self.constant = sorted(self.body.constant)
        # the arguments whose values the host must know when they are on a GPU
        self.constant_slots = (
            set() if isinstance(self.body.transfer, HostTransfer) else self.body.constant
        )
        types = cluster.function.input_types
        handles = [index for index, dtype in enumerate(types) if dtype.kind == "resource"]
        # several handles may refer to one variable
        self.handles = handles if len(handles) > 1 else []
        # the constants of the last call, and their bytes in its signature; replaced as a pair
        self.last_constants: tuple[tuple[Any, ...], InputSignature] = (), ()

    def run(self, step: Any, *inputs: Any) -> Any:
        """Compute the outputs; a new signature of inputs compiles the function again."""
        cluster = self.cluster
        if self.constant_slots:
            inputs = tuple(
                self.body.transfer.host_value(value) if index in self.constant_slots else value
                for index, value in enumerate(inputs)
            )
        key = self.signature(inputs)
        body = self.body
        if body.has_loops and (limits := current_limits()).bounds_loops:
            body = body.with_limits()
            key = *key, len(guard_arguments(limits))
        try:
            compiled = cluster.compiled[key]
        except KeyError:
            with cluster.lock:
                try:
                    compiled = self.compile(step, key, inputs, body)
                except UnknownCapacity:
                    return self.measure(step, key, inputs)
        if compiled is None:
            return self.fused(step, *inputs)
        try:
            result = compiled.run(inputs)
        except DeferredCheckFailed:
            reason = "a list is accessed beyond its capacity, or a matrix has no finite result"
        except RuntimeError as error:  # of XLA, such as exhausted memory; nothing is assigned
            reason = str(error).partition("\n")[0]
        else:
            cluster.count_call(fused=False)
            return result
        result = self.fused(step, *inputs)  # reports an index or a limit
        self.reject(step, key, inputs, reason)
        return result

    def signature(self, inputs: Sequence[Any]) -> InputSignature:
        """The key of a compiled function: shapes, values of constants, types of variables."""
        shapes = tuple([_input_signature(value) for value in inputs])
        if self.handles:
            shapes += tuple(first_occurrences(inputs, self.handles))
        if not self.constant:
            return shapes, ()
        constants = tuple([inputs[index] for index in self.constant])
        last, contents = self.last_constants
        if len(constants) != len(last) or any(
            a is not b for a, b in zip(constants, last, strict=True)
        ):
            contents = tuple(map(content_key, constants))
            self.last_constants = constants, contents
        return shapes, contents

    def compile(
        self, step: Any, key: InputSignature, inputs: Sequence[Any], body: TraceableFunction
    ) -> CompiledFunction | None:
        """Compile a new signature; return None if NumPy kernels run it."""
        cluster = self.cluster
        if key in cluster.compiled:  # by another run meanwhile
            return cluster.compiled[key]
        if cluster.stopped_compiling:
            return None
        if not self.owner.signatures.may_compile:
            self.owner.signatures.missed += 1
            return None
        if self.auto_engine and _is_small(cluster, inputs):
            cluster.small = True
            _store(cluster.compiled, key, None)
            return None
        if self.lazy and key not in cluster.seen:
            _store(cluster.seen, key, None)
            return None
        compiled: CompiledFunction | None = None
        refused, start = "", time.perf_counter()
        if _changes_too_often(cluster):
            refused, cluster.stopped_compiling = "its signature changes too often", True
        else:
            try:
                compiled = body.compile(inputs, cluster.lengths.get(key), self.owner.cache)
            except CompilationFailed as error:
                refused = str(error)
        seconds = time.perf_counter() - start
        self.owner.signatures.compiled += 1
        self.record(step, key, inputs, compiled, seconds, refused)
        return compiled

    def measure(self, step: Any, key: InputSignature, inputs: Sequence[Any]) -> Any:
        """Run on NumPy kernels, and store the lengths of lists, for which the next run compiles."""
        cluster = self.cluster
        cluster.growths.clear()
        result = self.fused(step, *inputs)
        _store(
            cluster.lengths,
            key,
            {node: growth.largest for node, growth in [*cluster.growths.items()]},
        )
        self.owner.signatures.compiled += 1
        return result

    def reject(self, step: Any, key: InputSignature, inputs: Sequence[Any], reason: str) -> None:
        """Run a signature on NumPy kernels from now on, since its compiled function fails."""
        self.owner.signatures.failed = reason
        with self.cluster.lock:
            self.record(step, key, inputs, None, 0.0, reason)

    def record(
        self,
        step: Any,
        key: InputSignature,
        inputs: Sequence[Any],
        compiled: CompiledFunction | None,
        seconds: float,
        refused: str,
    ) -> None:
        """Store and report the result of a compilation."""
        cluster = self.cluster
        constants = tuple([constant_text(inputs[index]) for index in self.constant])
        changed = cluster.difference(key, self.node, constants)
        compilation = Compilation(
            cluster.name,
            self.node.name,
            seconds,
            changed,
            refused,
            is_stored=compiled is not None and compiled.is_stored,
        )
        cluster.compilations.append(compilation)
        step.note(self.device, str(compilation), seconds)
        cluster.last, cluster.last_constants = key, constants
        _store(cluster.compiled, key, compiled)


def _store(entries: dict[InputSignature, Any], key: InputSignature, entry: Any) -> None:
    """Store the entry of a signature, and drop the oldest beyond the limit."""
    while len(entries) >= MAX_SIGNATURES:
        del entries[next(iter(entries))]
    entries[key] = entry


def _input_signature(value: Any) -> Any:
    """The part of a signature for one input; its dtype is fixed by the function."""
    if isinstance(value, Variable):
        return value.dtype, None if value.value is None else value.value.shape
    return value.shape


def _is_small(cluster: CompiledCluster, inputs: Sequence[Any]) -> bool:
    """True if the kernels finish before a compiled function would be called.

    A cluster with a loop is never small, since its trip count is unknown.
    """
    if any(function_calls(node.op).kind == "while" for node in cluster.line.order):
        return False
    largest = max((int(getattr(value, "size", _UNKNOWN_SIZE)) for value in inputs), default=0)
    return len(cluster.line.order) * (1 + largest / _CALL_COST_IN_ELEMENTS) < _CALL_COST_IN_KERNELS


def _changes_too_often(cluster: CompiledCluster) -> bool:
    count = len(cluster.compilations)
    return count >= _MAX_COMPILATIONS and cluster.calls < _MIN_RUNS_PER_COMPILATION * count


def _located(
    line: StraightLine, error: Exception | DeadlinePassed, name: str, inputs: Sequence[Output]
) -> Exception:
    """The error of a cluster with its node, also if the deadline passes while it is located."""
    failure = error
    if isinstance(failure, DeadlinePassed):
        failure = timeout_error().with_traceback(error.__traceback__)
    while True:
        # no context manager, whose entry could be interrupted as well
        try:
            return line.located(failure, name, inputs)
        except DeadlinePassed:
            pass
