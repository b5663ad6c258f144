"""Preparation of a run: from a graph and a `RunSpec` to one plan per device, or generated code.

    open clusters ─▶ lower ─▶ place and partition ─▶ cluster ─▶ plan ─▶ abstract values

Each step returns a spec, over a copy of the graph where the step edits it. Runs share the plans of
a fetch-set, and link simulators from them.

Generated code merges the devices of a run, so that its graph is placed and not partitioned:

    lower ─▶ place ─▶ plan ─▶ generate               (partition ─▶ plan, once the token executor
                                                      explains an error, or a run is traced)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.devices import is_gpu, short_device_names
from cfgraph.ir.function_graph import OutputPorts
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions, copy_graph, remove_uncalled_functions
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ir.traversal import ancestors, is_partitioned
from cfgraph.ops.opdef.op import is_functional, lookup
from cfgraph.passes.place.rules import PlacementRules
from cfgraph.runtime.abstract_run import use_abstract_values
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.plan import (
    ClusterKernels,
    Plan,
    RunSpec,
    is_replaced_by_feed,
    make_plans,
)
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.gpu.context import GpuContext
from cfgraph.runtime.gpu.plan import GpuPlan
from cfgraph.runtime.io_policy import ALLOW_IO_HINT, FORBIDDEN_FILE_CODE, IoPolicy
from cfgraph.runtime.memory.swapping import DEFAULT_SWAP_ABOVE
from cfgraph.runtime.quiescent_state import QuiescentState
from cfgraph.runtime.run_names import InlinedClusters, recluster_run
from cfgraph.runtime.trace.events import Observer

if TYPE_CHECKING:
    from cfgraph.runtime.code_cache import CacheEntry
    from cfgraph.runtime.compiled.engine import CompiledRun
    from cfgraph.runtime.remote.workers import WorkerOptions

SCHEDULES: Final = ("fifo", "random")
ENGINES: Final = ("auto", "tokens", "compiled", "xla")
DEFAULT_DEVICE: Final = "cpu:0"


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Options of a session, which `Session` documents. Raises UsageError for conflicting ones."""

    devices: tuple[str, ...] = ()
    soft_placement: bool = False
    rules: PlacementRules = field(default_factory=PlacementRules)
    schedule: str = "fifo"
    schedule_seed: int = 0
    seed: int = 0
    costs: CostModel | None = None
    jit: str | None = None
    engine: str | None = None
    lazy: bool = False
    regions: bool = False
    memory: Mapping[str, int] | None = None
    swap_above: float = DEFAULT_SWAP_ABOVE
    gpu: GpuContext | str | None = None
    io: IoPolicy = field(default_factory=IoPolicy)
    blas_threads: int | str | None = None
    workers: WorkerOptions | None = None

    def __post_init__(self) -> None:
        if self.costs is not None and self.schedule != "fifo":
            message = "the virtual clock supports only the fifo schedule"
            raise UsageError(message, hint='schedule="fifo"')
        if self.schedule not in SCHEDULES:
            message = f"unknown schedule {self.schedule!r}"
            raise UsageError(message, hint=f"one of {', '.join(SCHEDULES)}")
        if self.engine is not None and self.engine not in ENGINES:
            message = f"unknown engine {self.engine!r}"
            raise UsageError(message, hint=f"one of {', '.join(ENGINES)}")
        if self.rules != PlacementRules() and len(self.devices) < 2:
            message = "placement rules need more than one device"
            raise UsageError(message, hint="name several devices, such as cpu:0,gpu:0")
        if self.workers is not None:
            self._require_remote()

    def _require_remote(self) -> None:
        """Raise UsageError for an option that a run on workers does not support."""
        for name, value in (
            ("costs", self.costs),
            ("memory", self.memory),
            ("jit", self.jit),
            ('schedule="random"', self.schedule == "random" or None),
        ):
            if value is not None:
                raise UsageError(f"{name} cannot be combined with workers", hint=f"omit {name}")


def prepare(
    spec: RunSpec,
    opened: InlinedClusters,
    config: RunConfig,
    clusters: ClusterKernels,
    *,
    without_values: bool = False,
) -> tuple[RunSpec, list[Plan]]:
    """Return the run as the token executor executes it, and its plans.

    `opened` contains the clusters to run in part.
    """
    return prepare_lowered(
        lowered_run(spec, opened), config, clusters, without_values=without_values
    )


def prepare_lowered(
    spec: RunSpec, config: RunConfig, clusters: ClusterKernels, *, without_values: bool
) -> tuple[RunSpec, list[Plan]]:
    """Place, partition, cluster, and plan the run of a lowered graph."""
    device: str | None = config.devices[0] if config.devices else DEFAULT_DEVICE
    if len(config.devices) > 1 or (config.devices and is_partitioned(spec.graph)):
        spec, device = partition_run(spec, config), None
    elif config.workers is not None and not is_partitioned(spec.graph):
        message = "workers run the devices of a partitioned graph"
        raise UsageError(message, hint="name several devices, such as cpu:0-3")
    if config.jit is not None:
        spec = cluster_run(spec, regions=config.regions)
    plans = runnable_plans(spec, device, config, clusters)
    if without_values:
        use_abstract_values(spec.graph, plans, distinct=config.memory is not None)
    return spec, plans


def lowered_run(spec: RunSpec, opened: InlinedClusters) -> RunSpec:
    """Lower the graph of a run, in which the opened clusters run in part."""
    return lower_run(recluster_run(opened.groups, spec) if opened.groups else spec)


def runnable_plans(
    spec: RunSpec, device: str | None, config: RunConfig, clusters: ClusterKernels
) -> list[Plan]:
    """The plans of a run. Raises the errors of `make_plans`, and Unsupported without permission."""
    plans = make_plans(spec, device, clusters)
    if not config.io.allow_all:
        _require_no_writes(spec.graph, [node for plan in plans for node in plan.nodes])
    return plans


def _require_no_writes(graph: Graph, nodes: Collection[Node]) -> None:
    """Raise Unsupported for a node that writes files, also in a function that a node calls.

    Nothing has run yet. Reads are decided when the path is known.
    """
    run: list[Node | BodyNode] = [*nodes]
    for name in called_functions(graph, nodes=nodes) if graph.functions else ():
        run += graph.functions[name].definition.nodes
    for node in run:
        op = lookup(node.op)
        if op is not None and op.file_access(node) == "write":
            message = f"{node.op} writes a file, which a graph may not do by itself"
            raise Unsupported(message, node=node, hint=ALLOW_IO_HINT, code=FORBIDDEN_FILE_CODE)


def lower_run(spec: RunSpec) -> RunSpec:
    """Lower a copy of the graph; return the spec unchanged if it needs no functional node.

    Raises the errors of `lower`.
    """
    graph = spec.graph
    if not is_functional(graph, graph):
        return spec
    if not is_functional(graph, ancestors(graph, spec.roots, frozenset(spec.feeds))):
        return spec
    from cfgraph.passes.lower.lower import lower

    copy = copy_graph(graph, ancestors(graph, [*spec.roots, *_nodes_of(spec.feeds)]))
    remove_uncalled_functions(copy)  # the run does not depend on errors in them
    feeds = {tensor: _lowered_feed(copy, _copied(tensor, copy)) for tensor in spec.feeds}
    lower(copy)
    return _with_feeds(spec, copy, feeds)


def _copied(tensor: Output, graph: Graph) -> Output:
    return Output(graph[tensor.node.name], tensor.port)


def _with_feeds(spec: RunSpec, graph: Graph, feeds: dict[Output, Output]) -> RunSpec:
    """The run on a copy of its graph in which `feeds` are fed instead of the original outputs."""
    fetches = tuple(feeds.get(tensor) or _copied(tensor, graph) for tensor in spec.fetches)
    targets = tuple(graph[node.name] for node in spec.targets)
    return RunSpec(graph, fetches, targets, tuple(feeds.values()))


def _lowered_feed(graph: Graph, tensor: Output) -> Output:
    """The output to feed: functional nodes lose their consumers by lowering."""
    return feed_placeholder(graph, tensor) if is_functional(graph, [tensor.node]) else tensor


def feed_placeholder(graph: Graph, tensor: Output) -> Output:
    """Replace an output by a placeholder; return the output itself if its type is unknown."""
    dtype = OutputPorts(graph.functions).dtype(tensor)
    if dtype is None:
        return tensor
    name = graph.unique_name(f"{tensor.node.name}/fed")
    attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
    placeholder = graph.create(name, "Placeholder", attrs=attrs, device=tensor.node.device).output()
    graph.replace_uses(tensor, placeholder)
    return placeholder


def partition_run(spec: RunSpec, config: RunConfig) -> RunSpec:
    """Place and partition a copy of the part of a lowered graph that the run needs.

    A partitioned graph is used unchanged. Raises the errors of `place` and `partition`, and
    UsageError for a partitioned graph that names other devices or is combined with placement rules.
    """
    from cfgraph.passes.partition.partition import partition

    graph = spec.graph
    if is_partitioned(graph):
        if config.rules != PlacementRules():
            message = "placement rules do not apply to a partitioned graph"
            raise UsageError(message, hint="omit the rules, or partition the original graph again")
        require_known_devices(graph, config.devices)
        return spec
    run = place_run(spec, config)
    partition(run.graph)
    return run


def place_run(spec: RunSpec, config: RunConfig) -> RunSpec:
    """Place a copy of the part of a lowered graph that the run needs.

    Raises the errors of `place`.
    """
    from cfgraph.passes.place.place import place

    graph = spec.graph
    copy = copy_graph(graph, ancestors(graph, [*spec.roots, *_nodes_of(spec.feeds)]))
    feeds = {tensor: _partitioned_feed(copy, _copied(tensor, copy)) for tensor in spec.feeds}
    run = _with_feeds(spec, copy, feeds)
    part = copy
    if any(tensor.node.name != feed.node.name for tensor, feed in feeds.items()):
        # a placeholder has replaced what only a fed node reads
        part = copy_graph(copy, ancestors(copy, [*run.roots, *_nodes_of(run.feeds)]))
    place(part, devices=config.devices, rules=config.rules, soft_placement=config.soft_placement)
    return run.on(part)


def require_known_devices(graph: Graph, devices: Collection[str]) -> None:
    """Raise UsageError for a node of a partitioned graph that is on none of the devices."""
    for node in graph:
        if node.device and node.device not in devices:
            message = f"the graph is partitioned for {node.device}, which is not among the devices"
            hint = f"omit the devices, or include it; devices: {short_device_names(devices)}"
            raise UsageError(message, node=node, hint=hint)


def _partitioned_feed(graph: Graph, tensor: Output) -> Output:
    """The output to feed: a placeholder if the fed node runs all the same."""
    return tensor if is_replaced_by_feed(tensor.node) else feed_placeholder(graph, tensor)


def _nodes_of(items: Iterable[Output]) -> list[Node]:
    return [tensor.node for tensor in items]


def cluster_run(spec: RunSpec, *, regions: bool = False) -> RunSpec:
    """Cluster nodes that compile together in a copy of the graph; with `regions`, also whole loops.

    Fetches, feeds, and targets keep their names. Raises the errors of `cluster`.
    """
    from cfgraph.passes.cluster.cluster import cluster

    graph = spec.graph
    copy = copy_graph(graph, ancestors(graph, [*spec.roots, *_nodes_of(spec.feeds)]))
    fetches = [*(tensor.name for tensor in spec.fetches), *(node.name for node in spec.targets)]
    cluster(copy, fetches=fetches, feeds=[tensor.name for tensor in spec.feeds], regions=regions)
    return spec.on(copy)


class ExecutorPlans:
    """The run as the token executor executes it, and its plans; made when first used."""

    def __init__(self, make: Callable[[], tuple[RunSpec, Sequence[Plan]]]) -> None:
        self._make = make
        self._made: tuple[RunSpec, Sequence[Plan]] | None = None
        self._lock = Lock()

    def get(self) -> tuple[RunSpec, Sequence[Plan]]:
        """The spec and the plans."""
        with self._lock:
            if self._made is None:
                with paused_gc():
                    self._made = self._make()
            return self._made


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A planned run: its generated function, or None and the reason, and its token executor.

    `spec` and `plans` are those of the engine that runs it.
    """

    spec: RunSpec
    plans: Sequence[Plan]
    executor: ExecutorPlans
    compiled: CompiledRun | None
    fallback: str


def plan_run(
    spec: RunSpec,
    opened: InlinedClusters,
    config: RunConfig,
    clusters: ClusterKernels,
    observed: str,
    *,
    without_values: bool = False,
    entry: CacheEntry | None = None,
) -> PlannedRun:
    """Plan a run for generated code where that is possible, else for the token executor.

    A run that is `observed`, for a reason that is not empty, uses the token executor. Generated
    code merges the devices of a run: a graph that is not partitioned is only placed for it.
    """
    spec = lowered_run(spec, opened)
    if not observed and len(config.devices) > 1 and not is_partitioned(spec.graph):
        return _plan_placed(spec, config, clusters, entry)
    spec, plans = prepare_lowered(spec, config, clusters, without_values=without_values)
    executor = ExecutorPlans(lambda: (spec, plans))
    devices = {plan.device for plan in plans} - {DEFAULT_DEVICE}
    if not observed and any(map(is_gpu, devices)):
        observed = "devices are GPUs"
    if observed:
        return PlannedRun(spec, plans, executor, None, observed)
    compiled, reason = _compiled(spec, plans, entry=entry)
    return PlannedRun(spec, plans, executor, compiled, reason)


def _plan_placed(
    spec: RunSpec, config: RunConfig, clusters: ClusterKernels, entry: CacheEntry | None
) -> PlannedRun:
    """Plan a run on several devices without partitioning its graph, if it compiles."""
    from cfgraph.passes.partition.partition import partition, partition_devices

    spec = place_run(spec, config)
    device_of = partition_devices(spec.graph)
    plans: Sequence[Plan] = runnable_plans(spec, DEFAULT_DEVICE, config, clusters)

    def partitioned() -> tuple[RunSpec, Sequence[Plan]]:
        run = spec.on(copy_graph(spec.graph))
        partition(run.graph)
        return run, runnable_plans(run, None, config, clusters)

    executor = ExecutorPlans(partitioned)
    compiled, reason = _compiled(spec, plans, device_of, entry)
    if compiled is None:
        spec, plans = executor.get()
    return PlannedRun(spec, plans, executor, compiled, reason)


def _compiled(
    spec: RunSpec,
    plans: Sequence[Plan],
    device_of: Mapping[Node, str] | None = None,
    entry: CacheEntry | None = None,
) -> tuple[CompiledRun | None, str]:
    """The generated function of a run, or None and the reason why the token executor runs it."""
    from cfgraph.runtime.compiled.engine import compile_run
    from cfgraph.runtime.compiled.program import NotCompiled

    try:
        return compile_run(spec, plans, device_of, entry), ""
    except NotCompiled as error:
        return None, error.text


# simulators that stay linked per fetch-set while no run uses them
MAX_IDLE_SIMULATORS: Final = 8


class RunExecutor(Protocol):
    """An engine with the state of one run: a simulator, or generated code."""

    results: list[Any]
    step: RunStep
    run_start: int
    gpus: tuple[str, ...]
    elapsed: float | None
    allow_dead: bool  # a dead fetch is no error of this run
    fallback: str  # the reason why generated code was not used in this run, or empty

    @property
    def fetches(self) -> tuple[Output, ...]:
        """The fetched tensors, in the graph of `quiescent_state`."""

    @property
    def gpu_plan(self) -> GpuPlan | None:
        """The plan on a real GPU, or None without one."""

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run until nothing is ready."""

    def clear(self) -> None:
        """Drop the values of the run."""

    def quiescent_state(self) -> QuiescentState:
        """The state of the run for explanations."""

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""


SimulatorMaker = Callable[[PlannedRun, Observer | None], RunExecutor]


@dataclass(slots=True, eq=False)
class PreparedRun:
    """A fetch-set that is ready to run.

    `guard` is held during a run. If it is a lock, runs wait for each other, and linking changes the
    plans: a second simulator needs its own plans.
    """

    run: PlannedRun
    make: SimulatorMaker
    guard: AbstractContextManager[object]
    blas_threads: int | None = None
    idle: list[RunExecutor] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        """The graph as the token executor executes it."""
        return self.run.executor.get()[0].graph

    @property
    def is_shared(self) -> bool:
        """True if several simulators may be linked from the plans."""
        return isinstance(self.guard, nullcontext)

    def acquire(self, observer: Observer | None) -> RunExecutor:
        """A simulator for one run; an observed run has a new one."""
        if observer is None or not self.is_shared:
            try:
                return self.idle.pop()
            except IndexError:
                pass
        with self.run.spec.graph.paused_gc():
            return self.make(self.run, observer)

    def release(self, simulator: RunExecutor) -> None:
        """Make a simulator available to later runs. Only one keeps the values of its last run."""
        if self.idle:
            simulator.clear()
        self.idle.append(simulator)
        # after the append, so that the bound holds for concurrent calls
        del self.idle[MAX_IDLE_SIMULATORS:]
