"""Explanations of a node (frame, liveness, inputs) and of the work that a predicate does not guard.

Only nodes inside a branch wait for its predicate. A value computed outside and read inside is
computed in every run; the Switches at the entry of the branch discard it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.deadness.formulas import TRUE
from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.transfers import sends_by_recv
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import topological_order
from cfgraph.ops.opdef.op import lookup, role_of

_COLOCATED: Final = b"loc:@"
_ALL: Final = "all of its inputs"
_WAITS: Final[dict[Role | None, str]] = {
    Role.MERGE: "the first live data input",
    Role.CONTROL_TRIGGER: "its control inputs, dead or live",
    Role.ENTER: f"{_ALL}, outside of the loop",
    Role.RECV: "its control inputs, and the message",
}


@dataclass(frozen=True, slots=True)
class EdgeCondition:
    """An edge into or out of a node, and when it is live: as a formula, and in words."""

    name: str
    predicate: str
    words: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a node before it runs.

    `runs` is the condition of the node itself, `outputs` those of its outputs where they differ,
    `fed_by` the inputs of the graph that it depends on, `read_by` the nodes that read or wait for
    it, `witness` predicates for which it runs; `message` the other end of a Send or a Recv.
    """

    node: Node
    frame: str
    runs: EdgeCondition
    outputs: tuple[EdgeCondition, ...]
    waits_for: str
    inputs: tuple[EdgeCondition, ...]
    mismatched: bool
    fed_by: tuple[str, ...]
    read_by: tuple[str, ...]
    message: str | None
    device: str
    device_reason: str
    witness: Mapping[str, Any] | None
    limits: tuple[str, ...]


def explain_node(graph: Graph, subject: str) -> Explanation:
    """Explain the node of a name, or of the tensor of a name.

    Raises UsageError where there is none, InvalidInput where the graph has no order to run in.
    """
    name = subject.removeprefix("^")
    node = graph.tensor(name).node if ":" in name else graph[name]
    analysis = deadness(graph)
    runs = analysis.runs(node)
    device, reason = _device(node)
    return Explanation(
        node,
        analysis.frames.of[node].path,
        EdgeCondition(node.name, analysis.text(runs), analysis.describe(runs, node.name)),
        tuple(_outputs(analysis, node, runs)),
        _waits(node),
        _inputs(analysis, node),
        role_of(node) is not Role.MERGE and analysis.has_mismatched_inputs(node),
        tuple(tensor.name for tensor in ancestors(graph, [node]) if is_input(tensor)),
        tuple(dict.fromkeys(_readers(node))),
        _message(graph, node),
        device,
        reason,
        analysis.example(runs),
        analysis.limits,
    )


def _readers(node: Node) -> Iterator[str]:
    for use in node.uses:
        yield f"^{use.node.name}" if use.slot < 0 else use.node.name


def _message(graph: Graph, node: Node) -> str | None:
    """Where the message of a Recv comes from, or that of a Send goes to."""
    if role_of(node) not in (Role.SEND, Role.RECV):
        return None
    for recv, send in sends_by_recv(graph).items():
        if node is recv:
            return f"from {send.name} on {short_device_name(send.device)}"
        if node is send:
            return f"to {recv.name} on {short_device_name(recv.device)}"
    return None


def _edge(analysis: Deadness, name: str, predicate: int) -> EdgeCondition:
    return EdgeCondition(name, analysis.text(predicate), analysis.describe(predicate))


def _inputs(analysis: Deadness, node: Node) -> tuple[EdgeCondition, ...]:
    """The edges into a node, with the iteration that they come from where it is another one."""
    names = [tensor.name for tensor in node.inputs] + [
        f"^{tensor.name}" for tensor in node.controls
    ]
    sources = [*(tensor.node for tensor in node.inputs), *node.controls]
    return tuple(
        _source_iteration(analysis, source, name, predicate)
        for name, source, predicate in zip(names, sources, analysis.inputs(node), strict=True)
    )


def _source_iteration(analysis: Deadness, source: Node, name: str, predicate: int) -> EdgeCondition:
    edge = _edge(analysis, name, predicate)
    if role_of(source) is Role.ENTER:
        return replace(edge, words=_enter_inputs(analysis, source))
    if role_of(source) is Role.NEXT_ITERATION:
        return replace(edge, words=f"{edge.words}, in the iteration before")
    return edge


def _enter_inputs(analysis: Deadness, enter: Node) -> str:
    rounds = "every iteration" if enter.attr("is_constant") else "iteration 0"
    return f"live in {rounds}" + ("" if analysis.runs(enter) == TRUE else ", where it runs")


def _outputs(analysis: Deadness, node: Node, runs: int) -> list[EdgeCondition]:
    """The outputs that are not live whenever the node is, or not in its frame."""
    if role_of(node) is Role.ENTER:
        predicate = analysis.text(analysis.of_control(node))
        return [EdgeCondition(f"{node.name}:0", predicate, _enter_inputs(analysis, node))]
    read = {use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0}
    ports = sorted(read | {0, 1} if role_of(node) is Role.SWITCH else read)
    outputs = [Output(node, port) for port in ports]
    leaves = role_of(node) is Role.EXIT
    return [
        _edge(analysis, tensor.name, analysis.of(tensor))
        for tensor in outputs
        if leaves or analysis.of(tensor) != runs
    ]


def _waits(node: Node) -> str:
    if not node.inputs and not node.controls:
        return "nothing" if role_of(node) is not Role.RECV else "the message"
    late = ", and its control inputs, dead or live" if node.controls else ""
    return _WAITS.get(role_of(node), _ALL) + (late if role_of(node) is Role.MERGE else "")


def _device(node: Node) -> tuple[str, str]:
    """The device that a node asks for, and who says so."""
    classes = node.attrs.get("_class", ())
    colocated = [
        tensor.removeprefix(_COLOCATED).decode("utf-8", "backslashreplace")
        for tensor in classes
        if isinstance(tensor, bytes) and tensor.startswith(_COLOCATED)
    ]
    reason = f"beside {', '.join(colocated)}" if colocated else ""
    if node.device:
        return node.device, " and ".join(filter(None, ["the node asks for it", reason]))
    return "(any)", reason or "the node asks for none"


@dataclass(frozen=True, slots=True)
class UnconditionalWork:
    """A predicate, its Switches, and what only one of its sides reads but runs on both.

    `of` has by side (for a Switch of two, 0 is false and 1 is true) the nodes in graph order.
    """

    predicate: Output
    switches: tuple[Node, ...]
    of: dict[int, tuple[Node, ...]]


def unconditional_work(graph: Graph, predicate: Output) -> UnconditionalWork | None:
    """What runs regardless of a predicate; None for a tensor that no Switch asks.

    Constants, inputs and what has effects do not count: they are no work, or wanted as they are.
    """
    guards = PathConditions()
    source, _ = guards.source(predicate)
    switches = [
        node
        for node in graph
        if role_of(node) is Role.SWITCH and guards.source(node.inputs[1])[0] == source
    ]
    if not switches:
        return None
    sides: dict[Node, int | None] = {}
    for node in reversed(topological_order(graph).nodes):
        if node.uses and _is_pure(node):
            sides[node] = _exclusive_branch(node, guards, source, sides)
    analysis: dict[int, list[Node]] = {}
    for node in graph:
        side = sides.get(node)
        if side is not None and _is_work(node):
            analysis.setdefault(side, []).append(node)
    return UnconditionalWork(
        source, tuple(switches), {key: tuple(analysis[key]) for key in sorted(analysis)}
    )


def _exclusive_branch(
    node: Node, guards: PathConditions, source: Output, sides: dict[Node, int | None]
) -> int | None:
    """The one side of the predicate that all readers of a node serve; None if there is none."""
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
    return guards.decision(reader.output(used.pop())).side


def _is_pure(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and not (op.role or op.effects.stateful or op.effects.is_input)


def _is_work(node: Node) -> bool:
    op = lookup(node.op)
    return bool(node.inputs) and op is not None and not op.aliasing.is_identity
