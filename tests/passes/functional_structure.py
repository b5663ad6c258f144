"""The functional nodes of a graph with their nesting: a tree that lowering and its inverse keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.node import split_tensor_name
from cfgraph.ops.opdef.op import function_calls, lookup

# a For is lowered to a loop, as a While is
KINDS = {"if": "if", "case": "case", "while": "while", "for": "while"}
Structure = tuple[object, ...]
# the outputs that are read, or None for all
Ports = set[int] | None


def structure(graph: Graph, fetches: Iterable[str]) -> Structure:
    """Return the sorted conditionals and loops, each with those in its functions.

    A call counts as its body. What no fetch and no effect needs does not count.
    """
    read: defaultdict[str, set[int]] = defaultdict(set)
    for node in graph:
        for tensor in node.inputs:
            read[tensor.node.name].add(tensor.port)
    for name in fetches:
        base, port = split_tensor_name(name)
        read[base].add(port or 0)
    return _structure([(node, read[node.name]) for node in graph], graph.functions)


def _structure(
    nodes: Iterable[tuple[Node | BodyNode, Ports]], library: Mapping[str, Function]
) -> Structure:
    found: list[object] = []
    for node, ports in nodes:
        calls = function_calls(node.op)
        if node.op in library:
            names = [node.op]
        elif calls.kind:
            names = _called(node, calls.functions)
        else:
            continue
        needed = None if calls.kind in ("while", "for") else ports
        inner = [_structure(_needed(library[name], needed), library) for name in names]
        kind = KINDS.get(calls.kind)
        if kind is None:
            found += [item for body in inner for item in body]
        elif needed is None or needed or any(library[name].definition.stateful for name in names):
            found.append((kind, *inner) if kind != "while" else (kind, sum(inner, ())))
    return tuple(sorted(found, key=repr))


def _called(node: Node | BodyNode, attrs: Iterable[str]) -> list[str]:
    names: list[str] = []
    for attr in attrs:
        value = node.attrs[attr]
        names += [each.name for each in (value if isinstance(value, tuple) else (value,))]
    return names


def _needed(function: Function, ports: Ports) -> list[tuple[BodyNode, Ports]]:
    """Return the nodes that some results of a function need, and the outputs that are read."""
    body = function.definition
    nodes = {node.name: node for node in body.nodes}
    returns = [body.returns[arg.name] for arg in body.outputs]
    todo = [text for port, text in enumerate(returns) if ports is None or port in ports]
    todo += [f"^{name}" for name in body.control_returns.values()]
    todo += [f"^{node.name}" for node in body.nodes if _is_effect(node)]
    needed: dict[str, set[int]] = {}
    for text in todo:
        name, _, output = text.removeprefix("^").partition(":")
        node = nodes.get(name)
        if node is None:
            continue
        if name not in needed:
            needed[name] = set()
            todo += node.inputs
        if text[:1] != "^":
            needed[name].add(_port(node, output))
    return [(nodes[name], read) for name, read in needed.items()]


def _port(node: BodyNode, output: str) -> int:
    """Return the port of an output as a function writes it; only calls have several."""
    return int(output.rpartition(":")[2] or 0) if function_calls(node.op).kind else 0


def _is_effect(node: BodyNode) -> bool:
    op = lookup(node.op)
    return op is None or (op.effects.stateful and not op.calls.kind)
