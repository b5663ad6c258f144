"""Rules on edges: each node reads as many tensors as its op wants, of the types that it wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.subject import Subject
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.signature import MAX_COUNT

_CASTABLE = ("float", "int", "uint", "complex", "bool")


def edges(subject: Subject) -> Iterator[Finding]:
    """Every input comes from a node of the graph, from an output it has, in the type wanted."""
    types = subject.types
    for node in subject.nodes:
        inputs = node.inputs
        wanted = types[node][0]
        if wanted is not None and len(wanted) != len(inputs):
            yield _wrong_number(subject, node, len(wanted))
            wanted = None
        for slot, (source, port) in enumerate(inputs):
            if source not in types:
                yield _stranger(node, f"input {slot}", source)
                continue
            outputs = types[source][1]
            if outputs is None:
                if not 0 <= port < MAX_COUNT:
                    yield _no_port(node, slot, source, port, None)
            elif not 0 <= port < len(outputs):
                yield _no_port(node, slot, source, port, len(outputs))
            elif wanted is not None and outputs[port] is not wanted[slot]:
                yield from _type(node, slot, source, port, outputs[port], wanted[slot])
        if node.controls:
            yield from _controls(node, subject.graph.nodes)


def _controls(node: Node, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    for control in node.controls:
        if nodes.get(control.name) is not control:
            yield _stranger(node, "a control input", control)
    if len(set(node.controls)) != len(node.controls):
        twice = next(item for item in node.controls if node.controls.count(item) > 1)
        message = f"the control input ^{twice.name} is listed more than once"
        yield Finding("CFG116", "warning", message, node.name, None, (twice.name,))


def _stranger(node: Node, what: str, source: Node) -> Finding:
    message = f"{what} reads {source.name!r}, which is no node of the graph"
    return Finding("CFG105", "error", message, node.name, None, (source.name,))


def _wrong_number(subject: Subject, node: Node, wanted: int) -> Finding:
    given = len(node.inputs)
    message = (
        f"{node.op} reads {wanted} input{'s' * (wanted != 1)}, "
        f"{given} {'is' if given == 1 else 'are'} given"
    )
    signature = subject.signatures.of(node.op)
    counts = {arg.count for arg in signature.inputs if arg.count} if signature else set()
    said = [f"{name}={node.attrs[name]}" for name in sorted(counts) if name in node.attrs]
    hint = f"its attribute says {said[0]}" if len(said) == 1 else None
    return Finding("CFG107", "error", message, node.name, hint)


def _no_port(node: Node, slot: int, source: Node, port: int, count: int | None) -> Finding:
    has = "" if count is None else f"; {source.op} has {count} output{'s' * (count != 1)}"
    message = f"input {slot} reads {source.name}:{port}, which does not exist{has}"
    return Finding("CFG108", "error", message, node.name, None, (source.name,))


def _type(
    node: Node, slot: int, source: Node, port: int, have: DType | None, want: DType | None
) -> Iterator[Finding]:
    if have is None or want is None or (have.base is want and not want.is_ref):
        return
    message = f"input {slot} is {source.name}:{port} of type {have}, {node.op} wants {want}"
    hint = None
    if want.is_ref and have is want.base:
        hint = "read the variable itself, not a copy of its value"
    elif have.kind in _CASTABLE and want.kind in _CASTABLE and not want.is_ref:
        hint = "insert a Cast"
    yield Finding("CFG301", "error", message, node.name, hint, (source.name,))
