"""Sessions: runs of one graph that share variables."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from traceback import clear_frames
from typing import Any

import numpy as np

from cfgraph.analysis.feeds_and_fetches import fed_tensor, fetched_tensor
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.errors import CfgraphError, ExecutionError, UsageError
from cfgraph.ir.devices import parse_devices
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output, require_graph
from cfgraph.passes.place.rules import PlacementRules, PlacementRulesLike
from cfgraph.runtime.abstract_run import use_abstract_values
from cfgraph.runtime.cluster_members import ClusterMembers, InlinedClusters, recluster_run
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.deadlock import explain_dead_fetch, explain_missing_fetch
from cfgraph.runtime.engine.executor import MISSING
from cfgraph.runtime.engine.plan import make_plans
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.feeds.feeds import feed_value
from cfgraph.runtime.gpu.context import GpuContext
from cfgraph.runtime.gpu.plan import GpuPlan
from cfgraph.runtime.memory.accounting import DeviceMemory, MemoryMeter, MemoryTrace
from cfgraph.runtime.memory.swapping import DEFAULT_SWAP_ABOVE
from cfgraph.runtime.prepare import cluster_run, lower_run, partition_run
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.simulator_choice import make_simulator, resolve_gpu
from cfgraph.runtime.state import State
from cfgraph.runtime.trace.events import Observer
from cfgraph.runtime.virtual import VirtualSimulator

SCHEDULES = ("fifo", "random")
DEFAULT_DEVICE = "cpu:0"
# simulators of fetch-sets that a session keeps; the oldest goes first
MAX_SIMULATORS = 32


class Session:
    """Runs a graph. `state` holds the variables; hand it to a later Session to go on with them.

    `schedule` is `fifo`, or `random` with `schedule_seed`; values do not depend on it. `seed` is
    what stateful random ops draw from, besides their own seeds.

    A partitioned graph runs on the devices that it names. On several `devices` any other graph is
    lowered, placed and partitioned on the way, in a copy of what a run needs; a request that cannot
    be met is an error unless `soft_placement`, and `rules` (as for `cfgraph.place`) outweigh it. On
    one device, all nodes run whatever they request.

    With `jit` what compiles together is clustered on the way, and `jit` runs the clusters: `numpy`
    calls their kernels in one go, `xla` compiles them once a signature; with `lazy` when it is used
    for the second time; `auto` takes XLA for what is large enough, where jax is installed. With
    `regions` whole loops and conditionals are clustered. Clusters that are in the graph are run by
    `engine`, one of the three, else as by `auto`.

    With `costs` the run is in virtual time: `elapsed` is what the clock showed in the end, in
    seconds, and the trace has its times. `ran` is the graph of the last run: what it needed of the
    graph, lowered, placed, partitioned and clustered.

    With `memory`, what each device holds is counted, and bounded by so many bytes where the mapping
    says so of a device; `memory` then tells of the last run, by device. Pushes that are marked
    `swap_memory` move to the host what a device has above `swap_above` of its limit.

    With `gpu` `real` the gpus are on a card, with `simulated` NumPy computes what they would; else
    a card is taken where there is one, but not in virtual time. `gpus` are those of the last run,
    and `on_card` tells of them where they are on a card.

    Raises UsageError for a schedule, devices or an engine that are none, Unsupported where XLA is
    asked for and jax is not installed, or a real gpu and there is none.
    """

    def __init__(
        self,
        graph: Graph,
        devices: str | Sequence[str] | None = None,
        state: State | None = None,
        soft_placement: bool = False,
        schedule: str = "fifo",
        schedule_seed: int = 0,
        seed: int = 0,
        costs: CostModel | None = None,
        jit: str | None = None,
        engine: str | None = None,
        lazy: bool = False,
        regions: bool = False,
        rules: PlacementRulesLike | None = None,
        memory: Mapping[str, int] | None = None,
        swap_above: float = DEFAULT_SWAP_ABOVE,
        gpu: str | GpuContext | None = None,
    ) -> None:
        require_graph(graph)
        if costs is not None and schedule != "fifo":
            raise UsageError("virtual time knows one schedule", hint='schedule="fifo"')
        if schedule not in SCHEDULES:
            message = f"unknown schedule {schedule!r}"
            raise UsageError(message, hint=f"one of {', '.join(SCHEDULES)}")
        self.graph = graph
        self.devices = () if devices is None else parse_devices(devices)
        self.soft_placement = soft_placement
        self.rules = PlacementRules.of(rules)
        if self.rules != PlacementRules() and len(self.devices) < 2:
            message = "rules for placing need several devices to place on"
            raise UsageError(message, hint="several are written cpu:0,gpu:0")
        self.costs = costs
        self.elapsed: float | None = None
        self.ran: Graph | None = None
        self.state = State() if state is None else state
        self.jit = jit is not None
        self.regions = regions
        self.launches = ClusterRunner(jit or engine, lazy=lazy)
        self._meter = None if memory is None else MemoryMeter(memory, swap_above)
        if self._meter is not None:
            self._meter.require(self.devices or _graph_devices(graph))
        self.gpu = resolve_gpu(gpu, costs)
        self.on_card: GpuPlan | None = None
        self.gpus: tuple[str, ...] = ()
        self._random = random.Random(schedule_seed) if schedule == "random" else None
        self._step = RunStep(self.state, seed)
        self._simulators: dict[Any, Simulator] = {}
        self._cluster_members = ClusterMembers(graph)
        self._planned: Any = None  # the state of the graph that the simulators are for

    def run(
        self,
        fetches: str | Iterable[str] = (),
        feeds: Mapping[str, Any] | None = None,
        targets: Iterable[str] = (),
        *,
        trace: Observer | None = None,
        max_iterations: int | None = None,
        timeout: float | None = None,
        allow_dead: bool = False,
        until_iteration: int | None = None,
        without_values: bool = False,
    ) -> list[Any]:
        """Compute fetched tensors, and run targets for their effect.

        A fetch is a tensor's name (`y`, `y:1`), a target a node's; a fetch `^y` is a target.
        `feeds` maps tensor names to arrays. `trace` is told every token. Returns a value for each
        fetch that is a tensor, in their order: NumPy arrays, or scalars of rank 0; with
        `allow_dead` None for one that is dead. In virtual time a run may end as soon as its loops
        have begun `until_iteration`; None then stands for what has no value yet. And it may compute
        `without_values` but for those that decide anything: what is fetched may be an Outline then.

        Raises UsageError for unknown names and feeds that do not fit, InvalidInput for a graph that
        cannot run, Unsupported for ops without a kernel, ExecutionError when the run fails (also
        when a fetch is dead or gets no value), RunTimeout after `timeout` seconds.
        """
        names, targets = _fetch_names(fetches), list(targets)
        seen = self._cluster_members.of([*names, *targets, *(feeds or ())])
        wanted, nodes = _resolve_names(seen.graph, names, targets)
        fed = _feed_values(seen.graph, feeds or {})
        if self.costs is None and (without_values or until_iteration is not None):
            message = "only a run in virtual time may leave out values and iterations"
            raise UsageError(message, hint="costs=CostModel()")
        if trace is not None and self._meter is not None:
            trace = MemoryTrace(trace, self._meter)
        simulator = self._simulator(seen, wanted, nodes, tuple(fed), trace, without_values)
        self._begin(simulator, trace, max_iterations)
        deadline = None if timeout is None else time.monotonic() + timeout
        with np.errstate(all="ignore"), self.launches.running():
            if isinstance(simulator, VirtualSimulator):
                simulator.until = until_iteration
            try:
                simulator.run(list(fed.values()), deadline, self._random)
                self.elapsed = simulator.elapsed
                if until_iteration is not None:
                    return [None if value is MISSING else value for value in simulator.results]
                return [
                    _caller_copy(fed[item])
                    if item in fed
                    else _fetch_result(simulator, place, allow_dead)
                    for place, item in enumerate(wanted)
                ]
            except CfgraphError as error:
                if self._meter is not None:
                    # who keeps the error must not keep what the failed kernels had in their hands
                    clear_frames(error.__traceback__)
                raise
            finally:
                if self._meter is not None:
                    simulator.forget()

    @property
    def memory(self) -> dict[str, DeviceMemory]:
        """What each device held and copied in the last run; nothing unless it is counted."""
        return {} if self._meter is None else self._meter.memories

    def _begin(
        self, simulator: Simulator, trace: Observer | None, max_iterations: int | None
    ) -> None:
        """Let what tells of the last run, and what kernels ask of a run, be about this one."""
        self.ran, self.on_card, self.gpus = simulator.graph, simulator.on_card, simulator.gpus
        self._step.run += 1
        self._step.max_iterations = max_iterations
        self._step.observer = trace if self.costs is None else None
        self._step.began = simulator.began

    def _simulator(
        self,
        seen: InlinedClusters,
        wanted: tuple[Output, ...],
        nodes: tuple[Node, ...],
        fed: tuple[Output, ...],
        trace: Observer | None,
        without_values: bool,
    ) -> Simulator:
        """The simulator of this fetch-set, made once; a traced one is made for its run alone."""
        state = self.graph.edits, tuple(self.graph.functions.values())
        if self._planned != state:
            self._simulators.clear()
            self._planned = state
        key = (wanted, nodes, fed, without_values)
        if trace is None and key in self._simulators:
            return self._simulators[key]
        with paused_gc():
            run = seen.graph, wanted, nodes, fed
            run = lower_run(*(recluster_run(seen.groups, run) if seen.groups else run))
            device: str | None = self.devices[0] if self.devices else DEFAULT_DEVICE
            if len(self.devices) > 1 or (self.devices and is_partitioned(run[0])):
                run, device = (
                    partition_run(run, self.devices, self.soft_placement, self.rules),
                    None,
                )
            if self.jit:
                run = cluster_run(run, regions=self.regions)
            plans = make_plans(*run, device, self.launches)
            if without_values:
                use_abstract_values(run[0], plans, apart=self._meter is not None)
            simulator = make_simulator(
                run, plans, self._step, trace, self._meter, costs=self.costs, gpu=self.gpu
            )
        if trace is None:
            while len(self._simulators) >= MAX_SIMULATORS:
                del self._simulators[next(iter(self._simulators))]
            self._simulators[key] = simulator
        return simulator


def _fetch_names(fetches: str | Iterable[str]) -> list[str]:
    """What is fetched, as a list. Raises UsageError for a mapping, whose order nobody sees."""
    if isinstance(fetches, Mapping):
        message = "fetches are names in a list, and the values come in its order; this is a mapping"
        raise UsageError(message, hint=f"fetches={list(fetches.values())}")
    return [fetches] if isinstance(fetches, str) else list(fetches)


def _resolve_names(
    graph: Graph, names: Iterable[str], targets: Iterable[str]
) -> tuple[tuple[Output, ...], tuple[Node, ...]]:
    """The tensors and the nodes that are asked for. Raises UsageError where there are none."""
    wanted = tuple(fetched_tensor(graph, name) for name in names if not name.startswith("^"))
    starred = [name[1:] for name in names if name.startswith("^")]
    nodes = tuple(graph[name.removeprefix("^")] for name in [*starred, *targets])
    if not wanted and not nodes:
        message = "nothing to fetch or to run"
        raise UsageError(message, hint="name at least one fetch or target")
    return wanted, nodes


def _feed_values(graph: Graph, feeds: Mapping[str, Any]) -> dict[Output, Any]:
    """What is fed. Raises UsageError for names that there are not, and for values that misfit."""
    fed: dict[Output, Any] = {}
    for name, value in feeds.items():
        item = fed_tensor(graph, name)
        if item in fed:
            message = f"{item.name} is fed more than once"
            raise UsageError(message, node=item.node)
        fed[item] = feed_value(graph, item, value)
    return fed


def _graph_devices(graph: Graph) -> Sequence[str]:
    """The devices that a partitioned graph runs on, or the one that any other does."""
    return sorted({node.device for node in graph}) if is_partitioned(graph) else [DEFAULT_DEVICE]


def _fetch_result(simulator: Simulator, place: int, allow_dead: bool) -> Any:
    """What a fetch got, or the error that says why it got nothing."""
    item, value = simulator.fetches[place], simulator.results[place]
    if value is MISSING:
        raise explain_missing_fetch(simulator.quiescent_state(), item)
    if value is None and allow_dead:
        return None
    if value is None:
        raise explain_dead_fetch(simulator.quiescent_state(), item)
    return _caller_copy(simulator.fetched_to_host(place, _read_reference(item, value)))


def _read_reference(item: Output, value: Any) -> Any:
    """A value that is fetched; what a variable that is fetched by reference holds in the end."""
    try:
        return dereference(value)
    except CfgraphError as error:
        message, hint = error.message, error.hint
        raise ExecutionError(message, node=item.node, hint=hint, code="CFG705") from None


def _caller_copy(value: Any) -> Any:
    """A value that the caller may write to: no variable or constant shares it."""
    return value.copy() if isinstance(value, np.ndarray) else value
