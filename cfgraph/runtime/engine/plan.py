"""Plan of a run on each device: nodes, bound kernels, slots, pending counts, and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cfgraph.analysis.feeds_and_fetches import missing_feeds_error, must_be_fed
from cfgraph.analysis.findings import require_no_findings
from cfgraph.analysis.loops.frames import Frame, Frames, frames
from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.device_rules import check_duplicate_keys, check_partition_edges
from cfgraph.analysis.verify.verify import verify
from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir import registry
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.op import Op, lookup
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.engine.references import References

if TYPE_CHECKING:
    from cfgraph.runtime.gpu.stream import GpuStream


@dataclass(slots=True)
class RunPartition:
    """One device's nodes in graph order; fetches and feeds by their places in the run's lists."""

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
    """Divide a run among devices: those of a partitioned graph, else all of it is on `device`.

    Without a `device` any graph is taken for a partitioned one, also where nothing crosses.

    Raises InvalidInput for a partitioned graph where a node has no device, an edge crosses, or two
    transfers have one key.
    """
    if device is not None and not is_partitioned(graph):
        whole = RunPartition(device, list(nodes), dict(enumerate(fetches)), dict(enumerate(feeds)))
        return [whole]
    found: dict[str, RunPartition] = {}

    def part(node: Node) -> RunPartition:
        name = node.device
        return found.get(name) or found.setdefault(name, RunPartition(name))

    chosen = list(nodes)
    require_no_findings(list(check_partition_edges(chosen)))
    require_no_findings(list(check_duplicate_keys(chosen)))
    for node in chosen:
        part(node).nodes.append(node)
    for place, item in enumerate(fetches):
        part(item.node).fetches[place] = item
    for place, item in enumerate(feeds):
        part(item.node).feeds[place] = item
    return [found[name] for name in sorted(found)]


MAX_NAMED_NODES = 5


@dataclass(slots=True, eq=False)
class FramePlan:
    """A frame's layout: how many slots and counters an iteration has, and where counters begin.

    Slot 0 takes the values that no input reads.
    """

    name: str
    parallel: int
    enters: int
    slots: int = 1
    pending: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class NodePlan:
    """A node ready to run: its inputs are the slots from `base`, its counter in the frame.

    `kernel` takes the inputs (a stateful one the step first). `reads` are the slots that may
    hold a reference whose value is wanted; of the slots `shares` the reference itself is handed on.
    `moves` are the slots whose values another memory wants, and what takes them there. `on_card`
    gives the kernel of a cluster for a gpu that is on a card.
    """

    node: Node
    op: type[Op]
    frame: FramePlan
    child: FramePlan | None
    base: int
    counter: int
    outputs: int
    kernel: Callable[..., Any]
    reads: tuple[int, ...]
    shares: tuple[int, ...]
    moves: tuple[tuple[int, Callable[[Any], Any]], ...] = ()
    on_card: Callable[[GpuStream], Callable[..., Any]] | None = None

    @property
    def end(self) -> int:
        """The slot behind the last input."""
        return self.base + len(self.node.inputs)


@dataclass(slots=True, eq=False)
class Plan:
    """One device's part of a run of some fetches and targets with some outputs fed.

    `fetches` and `feeds` are those on the device, by their places in the lists of the run.
    """

    device: str
    nodes: dict[Node, NodePlan]
    root: FramePlan
    fetches: dict[int, Output]
    feeds: dict[int, Output]
    fed_nodes: frozenset[Node]

    def of_role(self, role: Role) -> set[Node]:
        """The nodes whose ops have a role."""
        return {plan.node for plan in self.nodes.values() if plan.op.role is role}


def make_plans(
    graph: Graph,
    fetches: Sequence[Output],
    targets: Iterable[Node],
    feeds: Sequence[Output],
    device: str | None,
    launches: ClusterRunner | None = None,
) -> list[Plan]:
    """Plan a run: on one device, or on those that the nodes of a partitioned graph are on.

    Without a `device` any graph is taken for a partitioned one. `launches` run the clusters.

    Raises Unsupported, naming all ops without a kernel; InvalidInput where the needed nodes do not
    make well-nested frames; UsageError for a feed that has no place.
    """
    fed = frozenset(feeds)
    fed_nodes = _replaced_nodes(feeds)
    chosen = nodes_to_run(graph, fetches, targets, feeds)
    _require_valid(graph, chosen)
    _require_fed(graph, chosen)
    ops = _runnable_ops(chosen)
    found = run_partitions(graph, chosen, fetches, feeds, device)
    clusters = ClusterRunner() if launches is None else launches
    references = References(chosen, fed)
    return [_plan(graph, part, ops, references, fed_nodes, clusters) for part in found]


def nodes_to_run(
    graph: Graph, fetches: Iterable[Output], targets: Iterable[Node], feeds: Iterable[Output]
) -> list[Node]:
    """The nodes that a run computes: what is fed, and what that alone needs, it does not."""
    fed, fed_nodes = frozenset(feeds), _replaced_nodes(feeds)
    wanted = [item.node for item in fetches if item not in fed]
    wanted += [node for node in targets if node not in fed_nodes]
    return ancestors(graph, wanted, fed, fed_nodes)


def _replaced_nodes(feeds: Iterable[Output]) -> frozenset[Node]:
    return frozenset(item.node for item in feeds if is_replaced_by_feed(item.node))


def _plan(
    graph: Graph,
    part: RunPartition,
    ops: dict[str, type[Op]],
    references: References,
    fed_nodes: frozenset[Node],
    launches: ClusterRunner,
) -> Plan:
    """One device's plan."""
    fed = references.fed
    found = frames(graph, part.nodes, fed)
    if found.faults:
        _require_outside_loops(graph, fed)
        found.require_valid()
    layouts = {frame: _frame_plan(frame) for frame in found.all}
    nodes = {n: _plan_node(n, ops[n.op], found, layouts, references) for n in part.nodes}
    for node, plan in nodes.items():
        if getattr(plan.op, "functional", ""):
            device = short_device_name(part.device)
            plan.kernel = launches.kernel(graph, node, device)
            plan.on_card = partial(launches.kernel, graph, node, device)
    return Plan(part.device, nodes, layouts[found.root], part.fetches, part.feeds, fed_nodes)


def _require_valid(graph: Graph, nodes: Iterable[Node]) -> None:
    """Raise InvalidInput for errors on these nodes; what does not take part may be at fault."""
    errors = [finding for finding in verify(graph) if finding.level == "error"]
    if errors:
        names = {node.name for node in nodes}
        require_no_findings(
            [found for found in errors if found.node is None or found.node in names]
        )


def _require_fed(graph: Graph, nodes: Iterable[Node]) -> None:
    """Raise UsageError for what stands for a feed of the client, and is not fed."""
    lacking = [node.output() for node in nodes if must_be_fed(node) and _needs_feed(node)]
    if lacking:
        raise missing_feeds_error(graph, lacking)


def _needs_feed(node: Node) -> bool:
    """True for an input that has no kernel to complain, a dead one perhaps never."""
    op = lookup(node.op)
    return op is not None and op.role in (Role.ARG, Role.RECV)


def is_replaced_by_feed(node: Node) -> bool:
    """True for what does not run where it is fed: a placeholder, a Recv, or what has no kernel."""
    if node.inputs or registry.output_count(node) != 1:
        return False
    op = lookup(node.op)
    return op is None or op.is_input or not op.runnable or op.role is Role.RECV


def _require_outside_loops(graph: Graph, feeds: Iterable[Output]) -> None:
    """Raise UsageError for a feed inside a loop, which would need a value for each iteration."""
    placed = frames(graph)
    for item in feeds:
        frame = placed.of_outputs[item.node]
        if frame is not placed.root:
            message = f"{item.name} is inside the loop {frame.path} and cannot be fed"
            hint = "feed what enters the loop, or its Exits"
            raise UsageError(message, node=item.node, hint=hint)


def _runnable_ops(nodes: Iterable[Node]) -> dict[str, type[Op]]:
    """The classes of all ops. Raises Unsupported, listing every op that cannot run."""
    ops: dict[str, type[Op]] = {}
    without: dict[str, list[str]] = {}
    for node in nodes:
        if node.op in ops:
            continue
        op = lookup(node.op)
        if op is None or not op.runnable:
            without.setdefault(node.op, []).append(node.name)
        else:
            ops[node.op] = op
    if without:
        listed = "; ".join(_op_with_nodes(op, names) for op, names in without.items())
        raise Unsupported(
            f"no kernel for {listed}",
            node=next(iter(without.values()))[0],
            hint="feed their outputs, or fetch what does not need them",
            code="CFG701",
        )
    return ops


def _op_with_nodes(op: str, names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:MAX_NAMED_NODES])
    more = f" and {len(names) - MAX_NAMED_NODES} more" if len(names) > MAX_NAMED_NODES else ""
    return f"{op} (node{'s' * (len(names) > 1)} {shown}{more})"


def _frame_plan(frame: Frame) -> FramePlan:
    return FramePlan(frame.name, frame.parallel_iterations, len(frame.enters))


def _plan_node(
    node: Node,
    op: type[Op],
    found: Frames,
    layouts: dict[Frame, FramePlan],
    references: References,
) -> NodePlan:
    frame = layouts[found.of[node]]
    child = layouts[found.of_outputs[node]] if op.role is Role.ENTER else None
    base, counter = frame.slots, len(frame.pending)
    frame.slots += len(node.inputs)
    if op.role is Role.MERGE:
        frame.pending.append(1 + 2 * len(node.controls))
    else:
        frame.pending.append(len(node.inputs) + len(node.controls))
    outputs = registry.output_count(node)
    if outputs is None:
        message = f"the attributes of {node.op} do not say what it returns"
        raise InvalidInput(message, node=node, code="CFG110")
    kernel, reads = _kernel(node, op), references.reads(node)
    shares = references.kept(node) if reads else ()
    return NodePlan(node, op, frame, child, base, counter, outputs, kernel, reads, shares)


def _kernel(node: Node, op: type[Op]) -> Callable[..., Any]:
    """The bound kernel; what a node with a role does is the executor's."""
    if op.role:
        return identity
    return op.prepare(node, np) if op.stateful else op.bind(node, np)
