"""Explanations of a node (frame, liveness, inputs), and unconditional work of a predicate.

Only nodes inside a branch wait for its predicate. A value computed outside and read inside is
computed in every run; the Switches at the entry of the branch discard it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.deadness.formulas import TRUE
from cfgraph.analysis.deadness.pretty import AssignedValue
from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.ir.colocation import colocated_names
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, sends_by_recv, topological_order
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.reports import Record

_ALL: Final = "all of its inputs"
_WAITS: Final[dict[Role | None, str]] = {
    Role.MERGE: "the first live data input",
    Role.CONTROL_TRIGGER: "its control inputs, dead or live",
    Role.ENTER: f"{_ALL}, outside the loop",
    Role.RECV: "its control inputs, and the message",
}


class EdgeReport(Record):
    """An edge of a node and its liveness."""

    tensor: str
    predicate: str
    live: str


class Explanation(Record):
    """The static properties of a node.

    `predicate` and `runs` are the condition of the node as a formula and in words, `outputs` the
    conditions of outputs that differ from it, `fed_by` the graph inputs that it depends on,
    `read_by` its readers and control successors, `witness` predicate values under which it runs,
    and `message` the other end of a Send or Recv.
    """

    name: str
    op: str
    frame: str
    predicate: str  #: When it is live.
    runs: str  #: The same in words.
    #: Values of predicates with which it is live; that of an index is an integer.
    witness: Mapping[str, AssignedValue] | None
    outputs: Sequence[EdgeReport]
    waits_for: str
    inputs: Sequence[EdgeReport]
    mismatched_inputs: bool
    fed_by: Sequence[str]
    read_by: Sequence[str]
    message: str | None
    device: str
    device_reason: str | None
    limits: Sequence[str]


def explain_node(graph: Graph, subject: str) -> Explanation:
    """Explain a node, named directly or by one of its tensors.

    Raises UsageError for an unknown name, InvalidInput for a graph with cycles.
    """
    name = subject.removeprefix("^")
    node = graph.tensor(name).node if ":" in name else graph[name]
    analysis = deadness(graph)
    runs = analysis.runs(node)
    words, message = analysis.describe(runs, node.name), _message(graph, node)
    if role_of(node) is Role.RECV and message is None and not is_input(node):
        message, live = "no Send of the graph has its key", analysis.of_output(node.output())
        words = "runs when" if runs == TRUE else f"{words}, and"
        runs, words = live, f"{words} its message arrives"
    device, reason = _device(node)
    return Explanation(
        node.name,
        node.op,
        analysis.frames.of[node].path,
        analysis.text(runs),
        words,
        analysis.example(runs),
        tuple(_outputs(analysis, node, runs)),
        _waits(node),
        _inputs(analysis, node),
        role_of(node) is not Role.MERGE and analysis.has_mismatched_inputs(node),
        tuple(tensor.name for tensor in ancestors(graph, [node]) if is_input(tensor)),
        tuple(dict.fromkeys(_readers(node))),
        message,
        device,
        reason,
        analysis.limits,
    )


def _readers(node: Node) -> Iterator[str]:
    for use in node.uses:
        yield f"^{use.node.name}" if use.slot < 0 else use.node.name


def _message(graph: Graph, node: Node) -> str | None:
    """The other end of a Send or a Recv, as text."""
    if role_of(node) not in (Role.SEND, Role.RECV):
        return None
    for recv, send in sends_by_recv(graph).items():
        if node is recv:
            return f"from {send.name} on {short_device_name(send.device)}"
        if node is send:
            return f"to {recv.name} on {short_device_name(recv.device)}"
    return None


def _edge(tensor: str, predicate: str, words: str) -> EdgeReport:
    """The edge of a tensor, which is live and does not run."""
    live = {"true": "always live", "false": "never live"}.get(predicate)
    return EdgeReport(tensor, predicate, live or words.replace("runs when", "live when", 1))


def _inputs(analysis: Deadness, node: Node) -> tuple[EdgeReport, ...]:
    """The edges into a node; an edge from another iteration says so."""
    names = [tensor.name for tensor in node.inputs] + [
        f"^{tensor.name}" for tensor in node.controls
    ]
    sources = node.predecessors
    return tuple(
        _source_iteration(analysis, source, name, predicate)
        for name, source, predicate in zip(names, sources, analysis.inputs(node), strict=True)
    )


def _source_iteration(analysis: Deadness, source: Node, name: str, predicate: int) -> EdgeReport:
    words = analysis.describe(predicate)
    if role_of(source) is Role.ENTER:
        words = _enter_inputs(analysis, source)
    elif role_of(source) is Role.NEXT_ITERATION:
        words = f"{words}, in the previous iteration"
    return _edge(name, analysis.text(predicate), words)


def _enter_inputs(analysis: Deadness, enter: Node) -> str:
    rounds = "every iteration" if enter.attr("is_constant") else "iteration 0"
    return f"live in {rounds}" + ("" if analysis.runs(enter) == TRUE else ", where it runs")


def _outputs(analysis: Deadness, node: Node, runs: int) -> list[EdgeReport]:
    """The outputs with another condition, or in another frame, than the node."""
    if role_of(node) is Role.ENTER:
        predicate = analysis.text(analysis.of_control(node))
        return [_edge(f"{node.name}:0", predicate, _enter_inputs(analysis, node))]
    read = {use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0}
    ports = sorted(read | {0, 1} if role_of(node) is Role.SWITCH else read)
    outputs = [Output(node, port) for port in ports]
    leaves = role_of(node) is Role.EXIT
    live = {tensor.name: analysis.of_output(tensor) for tensor in outputs}
    return [
        _edge(name, analysis.text(predicate), analysis.describe(predicate))
        for name, predicate in live.items()
        if leaves or predicate != runs
    ]


def _waits(node: Node) -> str:
    if not node.inputs and not node.controls:
        return "nothing" if role_of(node) is not Role.RECV else "the message"
    late = ", and its control inputs, dead or live" if node.controls else ""
    return _WAITS.get(role_of(node), _ALL) + (late if role_of(node) is Role.MERGE else "")


def _device(node: Node) -> tuple[str, str]:
    """The device of a node and the origin of the request."""
    colocated = ", ".join(colocated_names(node.attrs))
    reason = f"colocated with {colocated}" if colocated else ""
    if node.device:
        return node.device, " and ".join(filter(None, ["requested by the node", reason]))
    return "(any)", reason or "no request"


class UnconditionalWork(Record):
    """Nodes that run for both values of a predicate although only one branch reads them.

    `regardless` maps each branch (0 is false and 1 is true for a two-way Switch) to its nodes in
    graph order.
    """

    predicate: str
    switches: Sequence[str]
    regardless: Mapping[int, Sequence[str]]


def unconditional_work(graph: Graph, predicate: Output) -> UnconditionalWork | None:
    """The nodes that run for either value of a predicate although only one branch uses them.

    None if no Switch reads the tensor. Constants, inputs, and nodes with effects are excluded: they
    cost nothing, or run on purpose.
    """
    guards = PathConditions()
    source, _ = guards.source(predicate)
    switches = [
        node.name
        for node in graph
        if role_of(node) is Role.SWITCH and guards.source(node.inputs[1])[0] == source
    ]
    if not switches:
        return None
    sides: dict[Node, int | None] = {}
    for node in reversed(topological_order(graph).nodes):
        if node.uses and _is_pure(node):
            sides[node] = _exclusive_branch(node, guards, source, sides)
    names: dict[int, list[str]] = {}
    for node in graph:
        side = sides.get(node)
        if side is not None and _is_work(node):
            names.setdefault(side, []).append(node.name)
    return UnconditionalWork(source.name, switches, dict(sorted(names.items())))


def _exclusive_branch(
    node: Node, guards: PathConditions, source: Output, sides: dict[Node, int | None]
) -> int | None:
    """The only branch of the predicate that reads a node, or None."""
    branch = {
        _branch_of_reader(use.node, use.slot, guards, source, sides.get(use.node))
        for use in node.uses
    }
    return branch.pop() if len(branch) == 1 else None


def _branch_of_reader(
    reader: Node, slot: int, guards: PathConditions, source: Output, known: int | None
) -> int | None:
    if (
        role_of(reader) is not Role.SWITCH
        or slot == CONTROL
        or guards.source(reader.inputs[1])[0] != source
    ):
        return known
    if slot != 0:
        return None
    used = {use.node.inputs[use.slot].port for use in reader.uses if use.slot != CONTROL}
    if len(used) != 1:
        return None
    return guards.decision(reader.output(used.pop())).branch


def _is_pure(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and not (op.role or op.effects.stateful or op.effects.is_input)


def _is_work(node: Node) -> bool:
    op = lookup(node.op)
    return bool(node.inputs) and op is not None and not op.aliasing.is_identity
