"""Preparation of a run: from a graph and a `RunSpec` to one plan per device, or generated code.

    inline clusters ─▶ lower ─▶ place and partition ─▶ cluster ─▶ plan ─▶ abstract values

Each step returns a spec, over a copy of the graph where the step edits it. Runs share the plans of
a fetch-set, and link drivers from them. Loops and conditionals that clusters can contain in the
form of the graph are not lowered:

    inline clusters ─▶ inline calls ─▶ cluster ─▶ plan

Generated code merges the devices of a run, so that its graph is placed and not partitioned:

    lower ─▶ place ─▶ plan ─▶ generate               (partition ─▶ plan, once the token executor
                                                      explains an error, or a run is traced)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.devices import is_gpu
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_functions
from cfgraph.ir.traversal import ancestors, is_partitioned
from cfgraph.ops.opdef.op import is_functional, lookup
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.engine.joint_products import join_products
from cfgraph.runtime.engine.plan import (
    ClusterKernels,
    Plan,
    RunSpec,
    make_plans,
)
from cfgraph.runtime.io_policy import ALLOW_IO_HINT, FORBIDDEN_FILE_CODE
from cfgraph.runtime.preparation.run_config import ON_GPUS, RunConfig
from cfgraph.runtime.preparation.run_names import recluster_run
from cfgraph.runtime.preparation.run_passes import (
    assign_devices,
    cluster_functional_run,
    cluster_run,
    lowered_copy,
    partition_run,
    without_faults,
)
from cfgraph.runtime.program import NotCompiled

# late imports: a run on the token executor starts without generated code

if TYPE_CHECKING:
    from cfgraph.runtime.code_cache import CacheEntry
    from cfgraph.runtime.compiled.compiled_run import CompiledRun

# changes plans so that only values that affect control flow are computed
ValueOmission = Callable[[Graph, Sequence[Plan]], None]
DEFAULT_DEVICE: Final = "cpu:0"
_LARGEST_BLOCK: Final = (32 << 20) - (64 << 10)


def prepare(
    spec: RunSpec,
    config: RunConfig,
    clusters: ClusterRunner,
    omit_values: ValueOmission | None = None,
) -> tuple[RunSpec, list[Plan]]:
    """Return the run as the token executor executes it, and its plans.

    Loops and conditionals are lowered, unless clusters contain them in the form of the graph.
    """
    spec = recluster_run(spec) if spec.groups else spec
    device: str | None = config.devices[0] if config.devices else DEFAULT_DEVICE
    clustered = None
    if config.regions and config.jit and len(config.devices) < 2 and config.workers is None:
        clustered = cluster_functional_run(spec)
    if clustered is None:
        spec, device = _prepare_lowered(lower_run(spec), config, device)
    else:
        spec, functions = clustered
        clusters.share(functions)
    plans = runnable_plans(spec, device, config, clusters)
    if omit_values is not None:
        omit_values(spec.graph, plans)
    return spec, plans


def _prepare_lowered(
    spec: RunSpec, config: RunConfig, device: str | None
) -> tuple[RunSpec, str | None]:
    """Place, partition, and cluster the run of a lowered graph; its device, None for several."""
    if len(config.devices) > 1 or (config.devices and is_partitioned(spec.graph)):
        spec, device = partition_run(spec, config), None
    elif config.workers is not None and not is_partitioned(spec.graph):
        message = "workers run the devices of a partitioned graph"
        raise UsageError(message, hint="name several devices, such as cpu:0-3")
    if config.jit is not None:
        spec = cluster_run(spec, regions=config.regions)
    return spec, device


def runnable_plans(
    spec: RunSpec,
    device: str | None,
    config: RunConfig,
    clusters: ClusterKernels,
    device_of: Mapping[Node, str] | None = None,
) -> list[Plan]:
    """The plans of a run, whose nodes are on the devices `device_of` if that is not None.

    Raises the errors of `make_plans`, and Unsupported without permission.
    """
    plans = make_plans(spec, device, clusters)
    for plan in plans:
        plan.devices = device_of or {}
    # with counted memory each node computes its own value
    if config.memory is None:
        join_products(plans)
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
    ops = {name: lookup(name) for name in {node.op for node in run}}
    stateful = {name: op for name, op in ops.items() if op is not None and op.effects.stateful}
    for node in run if stateful else ():
        op = stateful.get(node.op)
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
    return lowered_copy(spec)


class TokenPlans:
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
    """A planned run: its generated function, or None and the reason, and its token plans.

    `spec` and `plans` are those of the engine that runs it.
    """

    spec: RunSpec
    plans: Sequence[Plan]
    token_plans: TokenPlans
    compiled: CompiledRun | None
    fallback: str


def plan_run(
    spec: RunSpec,
    config: RunConfig,
    clusters: ClusterRunner,
    token_reason: str,
    *,
    omit_values: ValueOmission | None = None,
    entry: CacheEntry | None = None,
    is_local: bool = True,
) -> PlannedRun:
    """Plan a run for generated code where that is possible, else for the token executor.

    `token_reason` is the reason why the token executor must run it, or empty. An engine that is not
    local generates its own code. Generated code merges the devices of a run: a graph that is not
    partitioned is only placed for it. Faulty nodes that may be dead are errors where they run.
    """
    _retain_freed_memory()
    plan = partial(
        _plan_run,
        config,
        clusters,
        token_reason,
        omit_values=omit_values,
        entry=entry,
        is_local=is_local,
    )
    try:
        return plan(spec)
    except InvalidInput:
        deferred = without_faults(spec)
        if deferred is None:
            raise
        return plan(deferred)


def _plan_run(
    config: RunConfig,
    clusters: ClusterRunner,
    token_reason: str,
    spec: RunSpec,
    *,
    omit_values: ValueOmission | None,
    entry: CacheEntry | None,
    is_local: bool,
) -> PlannedRun:
    is_placed = len(config.devices) > 1 and not is_partitioned(spec.graph)
    if not token_reason and is_local and is_placed and config.jit is None:
        spec = lower_run(recluster_run(spec) if spec.groups else spec)
        return _plan_placed(spec, config, clusters, entry)
    spec, plans = prepare(spec, config, clusters, omit_values)
    token_plans = TokenPlans(lambda: (spec, plans))
    devices = {plan.device for plan in plans} - {DEFAULT_DEVICE}
    if not token_reason and any(map(is_gpu, devices)):
        token_reason = ON_GPUS
    if token_reason or not is_local:
        return PlannedRun(spec, plans, token_plans, None, token_reason)
    compiled, token_reason = _compiled(spec, plans, config, entry=entry)
    return PlannedRun(spec, plans, token_plans, compiled, token_reason)


@cache
def _retain_freed_memory() -> None:
    """Let the allocator of glibc keep up to 64 MiB that a run frees, for the next run.

    Without this it returns the stacks of a loop to the system after each run, and the next run
    takes a page fault for every 4 KiB. The allocator raises its thresholds (`mallopt(3)`,
    M_MMAP_THRESHOLD) to the size of the largest block that was freed, of up to 32 MiB.
    """
    with suppress(MemoryError):
        np.empty(_LARGEST_BLOCK, np.uint8)


def _plan_placed(
    spec: RunSpec, config: RunConfig, clusters: ClusterKernels, entry: CacheEntry | None
) -> PlannedRun:
    """Plan a run on several devices without partitioning its graph, if it compiles."""
    original = spec
    spec, device_of = assign_devices(spec, config)
    plans: Sequence[Plan] = runnable_plans(spec, DEFAULT_DEVICE, config, clusters, device_of)

    def partitioned() -> tuple[RunSpec, Sequence[Plan]]:
        run = partition_run(original, config)
        return run, runnable_plans(run, None, config, clusters)

    token_plans = TokenPlans(partitioned)
    compiled, token_reason = _compiled(spec, plans, config, device_of, entry)
    if compiled is None:
        spec, plans = token_plans.get()
    return PlannedRun(spec, plans, token_plans, compiled, token_reason)


def _compiled(
    spec: RunSpec,
    plans: Sequence[Plan],
    config: RunConfig,
    device_of: Mapping[Node, str] | None = None,
    entry: CacheEntry | None = None,
) -> tuple[CompiledRun | None, str]:
    """The function of a run, or None and the reason why the token executor runs it.

    The first run is interpreted if the session chooses the engine, since it may be the only one.
    """
    from cfgraph.runtime.compiled.engine import compile_run

    interprets = config.is_auto and config.jit is None
    try:
        return compile_run(spec, plans, device_of, entry, interprets=interprets), ""
    except NotCompiled as error:
        return None, error.text
