"""Plan of a run on each device: nodes, bound kernels, slots, pending counts, and frames."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from cfgraph.analysis.feeds_and_fetches import missing_feeds_error, must_be_fed
from cfgraph.analysis.findings import require_no_findings
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.device_rules import check_duplicate_keys, check_partition_edges
from cfgraph.analysis.verify.verify import require_valid_nodes
from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import first_names
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, downstream, is_partitioned
from cfgraph.ops.families.constants import identity
from cfgraph.ops.omitted import FEED_OUTPUTS, find_omission
from cfgraph.ops.opdef.op import Kernel, Op, is_cluster_call, lookup, numpy_kernel
from cfgraph.runtime.engine.references import References

MAX_NAMED_NODES: Final = 5
NO_KERNEL_CODE: Final = "CFG701"
# makes the kernel of a node from the kernel that computes the node by itself
KernelWrapper = Callable[[Kernel, Node], Kernel]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run: tensors to fetch, nodes to run for their effects, and outputs that are fed.

    `groups` are the nodes of clusters that were inlined to name one of them, by the name of the
    call. `early_reads` are the keys of variables that are read before loops in which they were
    read. `outside` has the loops and conditionals in no cluster, each with the reason.
    """

    graph: Graph
    fetches: tuple[Output, ...]
    targets: tuple[Node, ...]
    feeds: tuple[Output, ...]
    early_reads: frozenset[tuple[str, str]] = frozenset()
    groups: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)

    @property
    def roots(self) -> list[Node]:
        """The nodes of the fetches, and the targets."""
        return [*(output.node for output in self.fetches), *self.targets]

    @property
    def names(self) -> tuple[list[str], ...]:
        """The names of the feeds, the fetches, and the targets."""
        return tuple(
            [item.name for item in items] for items in (self.feeds, self.fetches, self.targets)
        )

    def on(self, graph: Graph) -> RunSpec:
        """The same run on a graph that has nodes of the same names."""
        return RunSpec(
            graph,
            tuple(Output(graph[output.node.name], output.port) for output in self.fetches),
            tuple(graph[node.name] for node in self.targets),
            tuple(Output(graph[output.node.name], output.port) for output in self.feeds),
            self.early_reads,
            outside=self.outside,
        )


class ClusterKernels(Protocol):
    """Provider of the kernels of cluster calls."""

    def kernel(
        self, graph: Graph, node: Node, device: str, target: Any = None
    ) -> Callable[..., Any]:
        """The kernel of a cluster call, on the host or on the real device `target`."""


@dataclass(slots=True)
class RunPartition:
    """One device's nodes in graph order; fetches and feeds by their index in the run."""

    device: str
    nodes: list[Node] = field(default_factory=list)
    fetches: dict[int, Output] = field(default_factory=dict)
    feeds: dict[int, Output] = field(default_factory=dict)


def run_partitions(
    graph: Graph,
    nodes: Iterable[Node],
    fetches: Sequence[Output],
    feeds: Sequence[Output],
    device: str | None,
) -> list[RunPartition]:
    """Divide a run among the devices of a partitioned graph, or assign all of it to `device`.

    Without a `device` any graph is treated as partitioned, even if nothing crosses. Raises
    InvalidInput for a partitioned graph where a node has no device, an edge crosses, or two
    transfers have one key.
    """
    if device is not None and not is_partitioned(graph):
        whole = RunPartition(device, list(nodes), dict(enumerate(fetches)), dict(enumerate(feeds)))
        return [whole]
    partitions: dict[str, RunPartition] = {}

    def partition_of(node: Node) -> RunPartition:
        name = node.device
        return partitions.get(name) or partitions.setdefault(name, RunPartition(name))

    chosen = list(nodes)
    require_no_findings(list(check_partition_edges(chosen)))
    require_no_findings(list(check_duplicate_keys(chosen)))
    for node in chosen:
        partition_of(node).nodes.append(node)
    for index, output in enumerate(fetches):
        partition_of(output.node).fetches[index] = output
    for index, output in enumerate(feeds):
        partition_of(output.node).feeds[index] = output
    return [partitions[name] for name in sorted(partitions)]


@dataclass(slots=True, eq=False)
class FramePlan:
    """Layout of a frame: the number of slots of an iteration, and its initial pending counts.

    Slot 0 receives values that no input reads. `back_edge` is the first NextIteration in graph
    order, which errors of the iteration limit name.
    """

    name: str
    parallel: int
    enters: int
    back_edge: str | None = None
    slots: int = 1
    pending: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class NodePlan:
    """A node ready to run: its inputs are the slots from `base`, its counter in the frame.

    `kernel` takes the inputs, a stateful one the step first. `deref_slots` may hold a reference to
    dereference; of `forwarded_slots` the reference itself is forwarded. `moves` are the slots whose
    values are copied to another memory, with the copy functions. `gpu_kernel` returns the kernel of
    a cluster call for a real GPU. `is_on_device` is true for a kernel that was bound to one, which
    writes into no buffer of the caller. `wrapper` made the kernel of a node that computes jointly.
    `inputs` are those of the node, but for a message of joined devices.
    """

    node: Node
    op: type[Op]
    frame: FramePlan
    child: FramePlan | None
    base: int
    counter: int
    outputs: int
    kernel: Callable[..., Any]
    inputs: tuple[Output, ...]
    deref_slots: tuple[int, ...] = ()
    forwarded_slots: tuple[int, ...] = ()
    moves: tuple[tuple[int, Callable[[Any], Any]], ...] = ()
    gpu_kernel: Callable[[Any], Callable[..., Any]] | None = None
    is_on_device: bool = False
    wrapper: KernelWrapper | None = None

    @property
    def end(self) -> int:
        """The slot after the last input."""
        return self.base + len(self.node.inputs)

    def move_of(self, index: int) -> Callable[[Any], Any] | None:
        """The function that copies an input to another memory, if it is copied."""
        return next((move for slot, move in self.moves if slot == self.base + index), None)


@dataclass(slots=True, eq=False)
class Plan:
    """The part of a run that one device executes.

    `fetches` and `feeds` contain only this device's tensors, by their index among those of the run.
    A plan of a graph that is placed, and not partitioned, has the `devices` of its nodes.
    """

    device: str
    nodes: dict[Node, NodePlan]
    frames: Frames
    root: FramePlan
    fetches: dict[int, Output]
    feeds: dict[int, Output]
    fed_nodes: frozenset[Node]
    fetched: frozenset[Output]  # the values of `fetches`
    devices: Mapping[Node, str] = field(default_factory=dict)

    def device_of(self, node: Node) -> str:
        """The device of a node."""
        return self.devices.get(node, node.device)

    @property
    def is_straight_line(self) -> bool:
        """True for a plan without control flow: every node runs, and runs once."""
        return not any(op.role for op in {plan.op for plan in self.nodes.values()})

    def nodes_of_role(self, role: Role) -> set[Node]:
        """The nodes whose ops have a role."""
        return {plan.node for plan in self.nodes.values() if plan.op.role is role}


def make_plans(spec: RunSpec, device: str | None, clusters: ClusterKernels) -> list[Plan]:
    """Plan a run on one device, or on the devices that the nodes of a partitioned graph name.

    Without a `device` any graph is treated as partitioned. Raises Unsupported, naming all ops
    without a kernel; InvalidInput if the needed nodes do not form well-nested frames; UsageError
    for a feed inside a loop.
    """
    graph, feeds = spec.graph, spec.feeds
    running = nodes_to_run(spec)
    require_valid_nodes(graph, running)
    _require_fed(graph, running)
    ops = _runnable_ops(graph, running)
    parts = run_partitions(graph, running, spec.fetches, feeds, device)
    has_references = any(op.parsed().has_references for op in ops.values())
    references = References(running, frozenset(feeds)) if has_references else None
    return [_plan(graph, part, ops, references, feeds, clusters) for part in parts]


def nodes_to_run(spec: RunSpec) -> list[Node]:
    """The nodes that a run computes, except nodes that only fed outputs need."""
    fed, fed_nodes = frozenset(spec.feeds), _replaced_nodes(spec.feeds)
    roots = [output.node for output in spec.fetches if output not in fed]
    roots += [node for node in spec.targets if node not in fed_nodes]
    return ancestors(spec.graph, roots, fed, fed_nodes)


def _replaced_nodes(feeds: Iterable[Output]) -> frozenset[Node]:
    return frozenset(output.node for output in feeds if is_replaced_by_feed(output.node))


def _plan(
    graph: Graph,
    part: RunPartition,
    ops: dict[str, type[Op]],
    references: References | None,
    feeds: Collection[Output],
    clusters: ClusterKernels,
) -> Plan:
    """One device's plan."""
    fed = frozenset(feeds)
    graph_frames = frames(graph, part.nodes, fed)
    if graph_frames.faults:
        _require_outside_loops(graph, fed)
        graph_frames.require_valid()
    layouts = {frame: _frame_plan(frame) for frame in graph_frames.all}
    nodes = {n: _plan_node(n, ops[n.op], graph_frames, layouts, references) for n in part.nodes}
    for node, plan in nodes.items():
        if plan.op.calls.kind:
            device = short_device_name(part.device)
            plan.kernel = clusters.kernel(graph, node, device)
            if is_cluster_call(plan.op):
                plan.gpu_kernel = partial(clusters.kernel, graph, node, device)
    root, fed_nodes = layouts[graph_frames.root], _replaced_nodes(feeds)
    return Plan(
        part.device,
        nodes,
        graph_frames,
        root,
        part.fetches,
        part.feeds,
        fed_nodes,
        frozenset(part.fetches.values()),
    )


def _require_fed(graph: Graph, nodes: Collection[Node]) -> None:
    """Raise UsageError for inputs of the graph that must be fed and are not."""
    # these have no kernel that could report the missing feed
    ops = {op for op in {node.op for node in nodes} if ROLES[op] in (Role.ARG, Role.RECV)}
    missing = [node.output() for node in nodes if node.op in ops and must_be_fed(node)]
    if missing:
        raise missing_feeds_error(graph, missing)


def is_replaced_by_feed(node: Node) -> bool:
    """True for a node that does not run if fed: a placeholder, a Recv, or one without a kernel."""
    if node.inputs or node.output_count != 1:
        return False
    op = lookup(node.op)
    return op is None or op.effects.is_input or not op.compilation.runnable or op.role is Role.RECV


def _require_outside_loops(graph: Graph, feeds: Iterable[Output]) -> None:
    """Raise UsageError for a feed inside a loop, which would need a value per iteration."""
    placed = frames(graph)
    for output in feeds:
        frame = placed.of_outputs[output.node]
        if frame is not placed.root:
            message = f"{output.name} is inside the loop {frame.path} and cannot be fed"
            hint = "feed what enters the loop, or its Exits"
            raise UsageError(message, node=output.node, hint=hint)


def _runnable_ops(graph: Graph, nodes: Collection[Node]) -> dict[str, type[Op]]:
    """The definitions of all ops. Raises Unsupported, listing every op that has to run and cannot.

    A node without a kernel that may be dead fails when it is executed.
    """
    definitions = {name: lookup(name) for name in {node.op for node in nodes}}
    ops = {name: op for name, op in definitions.items() if op is not None}
    without = {name for name, op in definitions.items() if not (op and op.compilation.runnable)}
    missing_kernels: dict[str, list[str]] = {}
    if without:
        dead = _possibly_dead(graph, nodes)
        for node in nodes:
            op = ops.get(node.op)
            fails_when_live = op is not None and not op.calls.kind and op.role is None
            if node.op in without and not (fails_when_live and node in dead):
                missing_kernels.setdefault(node.op, []).append(node.name)
    if missing_kernels:
        listed = "; ".join(_op_with_nodes(op, names) for op, names in missing_kernels.items())
        omission = find_omission(next(iter(missing_kernels)))
        reason = f"; {omission.reason}" if omission else ""
        hint = omission.hint if omission else FEED_OUTPUTS
        if hint == FEED_OUTPUTS:
            missing = [graph[name] for names in missing_kernels.values() for name in names]
            hint = _feed_hint(nodes, missing)
        raise Unsupported(
            f"no kernel for {listed}{reason}",
            node=next(iter(missing_kernels.values()))[0],
            hint=hint,
            code=NO_KERNEL_CODE,
        )
    return ops


def _feed_hint(running: Collection[Node], missing: Sequence[Node]) -> str:
    """The outputs to feed of nodes without a kernel."""
    needed = {*running}
    read = dict.fromkeys(
        use.node.inputs[use.slot].name
        for node in missing
        for use in node.uses
        if use.slot >= 0 and use.node in needed
    )
    outputs = [*read] or [f"{node.name}:0" for node in missing]
    return f"feed {first_names(outputs, MAX_NAMED_NODES)}, or fetch what does not need them"


def _possibly_dead(graph: Graph, nodes: Collection[Node]) -> Collection[Node]:
    """The nodes behind a Switch, or behind a Recv, which may receive a dead token."""
    sources = [node for node in nodes if ROLES[node.op] in (Role.SWITCH, Role.RECV)]
    return downstream(sources)


def _op_with_nodes(op: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:MAX_NAMED_NODES])
    more = f" and {len(names) - MAX_NAMED_NODES} more" if len(names) > MAX_NAMED_NODES else ""
    return f"{op} (node{'s' * (len(names) > 1)} {shown}{more})"


def _frame_plan(frame: Frame) -> FramePlan:
    back_edge = frame.next_iterations[0].name if frame.next_iterations else None
    return FramePlan(frame.name, frame.parallel_iterations, len(frame.enters), back_edge)


def _plan_node(
    node: Node,
    op: type[Op],
    graph_frames: Frames,
    layouts: dict[Frame, FramePlan],
    references: References | None,
) -> NodePlan:
    frame = layouts[graph_frames.of[node]]
    child = layouts[graph_frames.of_outputs[node]] if op.role is Role.ENTER else None
    base, counter = frame.slots, len(frame.pending)
    frame.slots += len(node.inputs)
    if op.role is Role.MERGE:
        frame.pending.append(1 + 2 * len(node.controls))
    else:
        frame.pending.append(len(node.inputs) + len(node.controls))
    outputs = node.output_count
    if outputs is None:
        message = f"the number of outputs of {node.op} does not follow from its attributes"
        raise InvalidInput(message, node=node, code="CFG110")
    plan = NodePlan(node, op, frame, child, base, counter, outputs, _kernel(node, op), node.inputs)
    if references is not None and (deref_slots := references.deref_slots(node)):
        plan.deref_slots = deref_slots
        plan.forwarded_slots = references.forwarded_slots(node)
    return plan


def _kernel(node: Node, op: type[Op]) -> Callable[..., Any]:
    """The bound kernel; nodes with a role are run by the executor itself."""
    return identity if op.role else numpy_kernel(node, op)
