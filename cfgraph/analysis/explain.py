"""What is to be said about one node: where it runs, when, what it waits for, what feeds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.inputs import is_input
from cfgraph.analysis.needed import needed
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import split_tensor_name
from cfgraph.ops.op import role

_COLOCATED: Final = b"loc:@"
_ALL: Final = "all of its inputs"
_WAITS: Final = {
    "merge": "the first live data input, and its control inputs, dead or live",
    "trigger": "its control inputs, dead or live",
    "enter": f"{_ALL}, outside of the loop",
    "recv": "its control inputs, and the message",
}


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge into or out of a node, and when it is live: as a formula, and in words."""

    name: str
    predicate: str
    words: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a node before it runs.

    `runs` is the condition of the node itself, `outputs` those of its outputs where they differ,
    `fed_by` the inputs of the graph that it depends on, `witness` predicates for which it runs.
    """

    node: Node
    frame: str
    runs: Edge
    outputs: tuple[Edge, ...]
    waits_for: str
    inputs: tuple[Edge, ...]
    mismatched: bool
    fed_by: tuple[str, ...]
    device: str
    device_reason: str
    witness: Mapping[str, Any] | None
    limits: tuple[str, ...]


def explain_node(graph: Graph, subject: str) -> Explanation:
    """Explain the node of a name, or of the tensor of a name.

    Raises UsageError where there is none, InvalidInput where the graph has no order to run in.
    """
    node = graph[split_tensor_name(subject.removeprefix("^"))[0]]
    found = deadness(graph)
    runs = found.of_control(node)
    device, reason = _device(node)
    return Explanation(
        node,
        found.frames.of[node].path,
        _edge(found, node.name, runs),
        tuple(_outputs(found, node, runs)),
        _waits(node),
        _inputs(found, node),
        found.mismatched_inputs(node),
        tuple(item.name for item in needed(graph, [node]) if is_input(item)),
        device,
        reason,
        found.witness(node),
        found.limits,
    )


def _edge(found: Deadness, name: str, predicate: int) -> Edge:
    return Edge(name, found.text(predicate), found.describe(predicate))


def _inputs(found: Deadness, node: Node) -> tuple[Edge, ...]:
    names = [item.name for item in node.inputs] + [f"^{item.name}" for item in node.controls]
    edges = zip(names, found.inputs(node), strict=True)
    return tuple(_edge(found, name, predicate) for name, predicate in edges)


def _outputs(found: Deadness, node: Node, runs: int) -> list[Edge]:
    """The outputs that are not live whenever the node is."""
    read = {use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0}
    ports = sorted(read | {0, 1} if role(node) == "switch" else read)
    outputs = [Output(node, port) for port in ports]
    return [_edge(found, item.name, found.of(item)) for item in outputs if found.of(item) != runs]


def _waits(node: Node) -> str:
    if not node.inputs and not node.controls:
        return "nothing" if role(node) != "recv" else "the message"
    return _WAITS.get(role(node), _ALL)


def _device(node: Node) -> tuple[str, str]:
    """The device that a node asks for, and who says so."""
    classes = node.attrs.get("_class", ())
    beside = [
        item.removeprefix(_COLOCATED).decode("utf-8", "backslashreplace")
        for item in classes
        if isinstance(item, bytes) and item.startswith(_COLOCATED)
    ]
    reason = f"beside {', '.join(beside)}" if beside else ""
    if node.device:
        return node.device, " and ".join(filter(None, ["the node asks for it", reason]))
    return "(any)", reason or "the node asks for none"
