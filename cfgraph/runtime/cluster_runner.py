"""Execution of clusters: an `XlaLaunch` calls its function on NumPy, or by a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import RLock, local
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.errors import UsageError
from cfgraph.extensions import AUTO, COMPILER, extension, extension_names
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.units import format_duration
from cfgraph.limits import DeadlinePassed, timeout_error
from cfgraph.ops.families.tensor_list import ListGrowth, TensorList
from cfgraph.ops.opdef.function_bodies import require_bounded
from cfgraph.ops.opdef.op import Kernel, Op, is_cluster_call, lookup, numpy_kernel
from cfgraph.runtime.straight_line import (
    KernelBinder,
    StraightLine,
    compile_numpy,
    library_kernel,
    scoped_step,
)

if TYPE_CHECKING:
    from cfgraph.runtime.code_cache import CodeCache


NUMPY: Final = "numpy"


class ClusterTarget(Protocol):
    """A device with arrays of its own that clusters run on."""

    def line(
        self, function: FunctionGraph, instances: FunctionInstances, bind_host: KernelBinder
    ) -> StraightLine:
        """A function's body on the device; `bind_host` binds a node's kernel over NumPy arrays."""

    def transfer(self) -> Any:
        """The transfer of arrays to compiled functions. Raises Unsupported if there is none."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a cluster; `changed` describes the difference from the last signature.

    `refused` is the reason why it failed, `` if it succeeded; NumPy kernels run instead. With
    `is_stored` a cache had the executable. `local_reason` says why this process compiled it, which
    is left to another one.
    """

    cluster: str
    node: str
    seconds: float
    changed: str
    refused: str
    is_stored: bool = False
    local_reason: str = ""

    def __str__(self) -> str:
        if self.refused:
            again = f", as {self.changed}" if self.changed else ""
            return f"{self.cluster} runs as one call of NumPy{again}: {self.refused}"
        time = format_duration(self.seconds * 1e9)
        origin = ", the executable was stored" if self.is_stored else ""
        if self.local_reason:
            origin = f", in this process: {self.local_reason}"
        if self.changed:
            return f"{self.cluster} recompiled in {time}, as {self.changed}{origin}"
        return f"{self.cluster} compiled in {time}{origin}"


@dataclass(slots=True)
class Cluster:
    """A function that cluster calls run, and its statistics.

    `refused` is the reason why it is not compiled. `fused` of the `calls` ran on NumPy kernels:
    nothing was compiled yet, or the cluster is `small`. Concurrent runs count calls and compile
    under `lock`. `growths` counts the lengths of lists on NumPy kernels, by the node that makes
    one.
    """

    name: str
    function: FunctionGraph
    line: StraightLine
    growths: dict[Node, ListGrowth]
    refused: str = ""
    calls: int = 0
    fused: int = 0
    small: bool = False
    compilations: list[Compilation] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock, repr=False)

    @property
    def has_effects(self) -> bool:
        """True if a node of the function is stateful."""
        return any(call.takes_step for call in self.line.calls)

    @property
    def is_compiled(self) -> bool:
        """True if calls run compiled functions, in the context of their compiler."""
        return False

    def call_kernel(self, node: Node, fused: Kernel, runner: ClusterRunner, device: str) -> Kernel:
        """The kernel of a call; `fused` runs it on the kernels of `line`."""
        return fused

    def count_call(self, *, fused: bool) -> None:
        """Count a call of the cluster; `fused` is true if its NumPy kernels ran."""
        with self.lock:
            self.calls += 1
            self.fused += fused

    @property
    def seconds(self) -> float:
        """The total time of all compilations."""
        return sum(value.seconds for value in self.compilations)

    @property
    def compiled_times(self) -> int:
        """The number of successful compilations."""
        return sum(not value.refused for value in self.compilations)


class ClusterCompiler(Protocol):
    """A compiler of clusters, such as XLA."""

    @staticmethod
    def is_installed() -> bool:
        """True if its library is installed."""

    @staticmethod
    def require() -> None:
        """Raise Unsupported if its library is not installed."""

    @staticmethod
    def cluster(
        cluster: Cluster,
        node: Node,
        instances: FunctionInstances,
        target: ClusterTarget | None,
    ) -> Cluster:
        """A cluster that compiles its function, called by `node`, or has the reason against it."""


class SignatureCounts(local):
    """The new signatures of the run of this thread, since several runs may share the clusters.

    Without permission (`may_compile`) a signature that is not compiled runs on NumPy kernels, and
    so does one whose compilation beside the runs is `pending`. `failed` is the reason why a
    compiled function failed, or empty.
    """

    may_compile = True
    compiled = 0
    missed = 0
    failed = ""
    pending: Sequence[Any] = ()

    def start_run(self, *, may_compile: bool) -> None:
        """Count the signatures of a new run."""
        self.may_compile, self.compiled, self.missed, self.failed = may_compile, 0, 0, ""
        self.pending = ()


class ClusterRunner:
    """Clusters of a session, run by `engine`; with `lazy`, compiled on a signature's second use.

    Executables come from the `cache`, or are stored there.

    The default engine is a compiler that is installed, for clusters that are large enough to gain
    by it. Errors name a node with its cluster as a prefix, or by itself without `prefixes_errors`.
    With `compiles_later` runs do not wait for a compilation.

    Raises UsageError for an unknown engine, Unsupported for a compiler that is not installed.
    """

    def __init__(
        self,
        engine: str | None = None,
        *,
        lazy: bool = False,
        prefixes_errors: bool = True,
        compiles_later: bool = False,
        cache: CodeCache | None = None,
    ) -> None:
        engines = AUTO, NUMPY, *extension_names(COMPILER)
        if engine not in (None, *engines):
            message = f"unknown engine {engine!r}"
            raise UsageError(message, hint=f"one of {', '.join(engines)}")
        self.auto_engine = engine in (None, AUTO)
        self.compiles_later = compiles_later
        self._requested = AUTO if engine is None else engine
        if not self.auto_engine and self.compiler is not None:
            self.compiler.require()
        self.lazy, self.cache = lazy, cache
        self._prefixes_errors = prefixes_errors
        self.signatures = SignatureCounts()
        self.clusters: dict[Any, Cluster] = {}
        self._instances: FunctionInstances | None = None

    @cached_property
    def engine(self) -> str:
        """The name of the compiler, or of the kernels that run clusters instead."""
        if not self.auto_engine:
            return self._requested
        names = extension_names(COMPILER)
        return next((x for x in names if extension(COMPILER, x).is_installed()), NUMPY)

    @cached_property
    def compiler(self) -> ClusterCompiler | None:
        """The compiler of clusters, None if NumPy kernels run them."""
        compiler: ClusterCompiler | None
        compiler = None if self.engine == NUMPY else extension(COMPILER, self.engine)
        return compiler

    def kernel(
        self, graph: Graph, node: Node, device: str, target: ClusterTarget | None = None
    ) -> Kernel:
        """The kernel of a cluster call: a callable of the step and the inputs.

        That of a node that combines elements by functions takes the inputs alone. `target` is a
        device with arrays of its own, None on the host.
        """
        if not is_cluster_call(op := lookup(node.op)) and op is not None:
            return library_kernel(node, op, self._functions(graph))
        cluster = self._cluster(graph, node, target)
        line, name = cluster.line, node.name if self._prefixes_errors else ""

        def fused(step: Any, *inputs: Any) -> Any:
            cluster.count_call(fused=True)
            try:
                return line.run(step, *inputs)
            except (DeadlinePassed, Exception) as error:
                raise _located(line, error, name, node.inputs) from error.__cause__

        kernel = cluster.call_kernel(node, fused, self, device)
        return _with_locked_state(kernel) if cluster.has_effects else kernel

    def _cluster(self, graph: Graph, node: Node, target: ClusterTarget | None) -> Cluster:
        """The cluster of a call; calls of one function on one device share it."""
        instances = self._functions(graph)
        func, constant_count = node.attr("function"), len(node.attr("Tconstants"))
        function = instances.get(func.name, func.attrs)
        key = function, constant_count, target
        if key not in self.clusters:
            self.clusters[key] = self._make_cluster(func.name, function, node, instances, target)
        return self.clusters[key]

    def share(self, functions: FunctionInstances) -> None:
        """Run the functions that a pass has read, unless those of the same library are known."""
        if self._instances is None or self._instances.library != functions.library:
            self._instances = functions.extended({})  # of the library as it is now

    def _functions(self, graph: Graph) -> FunctionInstances:
        """The functions of a graph, shared by its calls."""
        if self._instances is None or self._instances.library != graph.functions:
            self._instances = FunctionInstances(dict(graph.functions))
        return self._instances

    def _make_cluster(
        self,
        name: str,
        function: FunctionGraph,
        node: Node,
        instances: FunctionInstances,
        target: ClusterTarget | None,
    ) -> Cluster:
        require_bounded(function, instances)
        growths: dict[Node, ListGrowth] = {}
        bind = partial(_cluster_kernel, growths)
        make_line = compile_numpy if target is None else target.line
        cluster = Cluster(name, function, make_line(function, instances, bind), growths)
        if self.compiler is None or (target is not None and self.auto_engine):
            return cluster
        return self.compiler.cluster(cluster, node, instances, target)


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
        scoped = scoped_step(step)
        run, call = scoped.step, scoped.step.node
        run.run_inside(node, scoped.scope)
        try:
            return kernel(run, *inputs)
        finally:
            run.node = call

    return draw


def _counted_list(
    growths: dict[Node, ListGrowth], node: Node, kernel: Kernel, *inputs: Any
) -> TensorList:
    """A new list whose lengths are counted."""
    made: TensorList = kernel(*inputs)
    made.growth = growths.setdefault(node, ListGrowth(made.length))
    made.growth.add(made.length)
    return made


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
