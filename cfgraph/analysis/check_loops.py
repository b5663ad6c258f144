"""Loops that cannot end: no iteration changes their predicate.

    while_loop(lambda i, n: n > 0, lambda i, n: (i + 1, n), ...)      n never changes

Such a loop runs no iteration, or never ends. The predicate of a loop of primitives is followed back
to the Enters of its frame, that of a functional loop to the arguments of its condition, which the
body returns unchanged. What may differ without a change of its inputs (a stateful op, a message,
the result of an inner loop) counts as a change. A predicate that is computed outside of the loop is
reported only if it is known to be true: it may decide whether to run the loop at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.analysis.loops.while_loop import loop_variable
from cfgraph.analysis.verify.function_rules import BodyGraph
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import function_calls, lookup, role_of, strip_identities
from cfgraph.ops.shape_inference import infer_shapes

_HINT = "let the body change a loop variable that the predicate depends on"


def endless_loop_findings(
    graph: Graph, graph_frames: Frames, bodies: Mapping[str, BodyGraph]
) -> Iterator[Finding]:
    """Findings on the loops of a graph, primitive and functional ones."""
    for frame in graph_frames.all:
        cond = frame.loop_cond
        if cond is None or not frame.next_iterations:
            continue
        pred = cond.inputs[0]
        if _is_invariant(pred, frame, graph_frames):
            value = infer_shapes(graph).value(pred)
            is_outer = role_of(strip_identities(pred).node) is Role.ENTER
            yield from _finding(cond, str(frame), pred, value, is_outer=is_outer)
    for node in graph:
        if function_calls(node.op).kind == "while":
            yield from _functional_finding(node, bodies)


def _is_invariant(pred: Output, frame: Frame, graph_frames: Frames) -> bool:
    """True if a tensor of a loop has the same value in all iterations."""
    todo, seen = [pred.node], {pred.node}
    while todo:
        node = todo.pop()
        role = role_of(node)
        if role is Role.ENTER:
            dtype = node.inputs[0].dtype
            # a reference shows each write
            if not node.attr("is_constant") or dtype is None or dtype.is_ref:
                return False
            if graph_frames.of_outputs[node] is not frame:
                return False
            continue
        if role is Role.MERGE:
            variable = loop_variable(node)
            if variable is None or not variable.is_invariant():
                return False
            continue
        if not _is_pure(node) or role not in (None, Role.SWITCH):
            return False
        new = [source.node for source in node.inputs if source.node not in seen]
        seen.update(new)
        todo.extend(new)
    return True


def _is_pure(node: Node) -> bool:
    """True if the values of the inputs determine those of the outputs."""
    op = lookup(node.op)
    if op is None or op.effects.stateful or function_calls(node.op).kind:
        return False
    return bool(node.inputs) or "value" in node.attrs


def _functional_finding(node: Node, bodies: Mapping[str, BodyGraph]) -> Iterator[Finding]:
    """The finding on a functional loop whose body passes on what its condition reads."""
    cond, body = (bodies.get(node.attr(name).name) for name in ("cond", "body"))
    if cond is None or body is None or len(cond.returns) != 1:
        return
    (pred,) = cond.returns.values()
    arguments, returned = _arguments(body), list(body.returns.values())
    slots = {argument: slot for slot, argument in enumerate(_arguments(cond))}
    if not len(slots) == len(arguments) == len(returned):
        return
    read = _arguments_read(pred, slots)
    if read is None or any(
        strip_identities(returned[slots[argument]]).node is not arguments[slots[argument]]
        for argument in read
    ):
        return
    value = infer_shapes(cond.subject.graph).value(pred)
    is_outer = strip_identities(pred).node in slots
    yield from _finding(node, None, pred, value, is_outer=is_outer)


def _arguments(body: BodyGraph) -> list[Node]:
    """The nodes of the arguments of a function."""
    return [node for node in body.subject.graph if role_of(node) is Role.ARG]


def _arguments_read(pred: Output, arguments: Collection[Node]) -> set[Node] | None:
    """The arguments that determine a predicate, or None if something else does."""
    read = set[Node]()
    todo, seen = [pred.node], {pred.node}
    while todo:
        node = todo.pop()
        if node in arguments:
            read.add(node)
            continue
        if role_of(node) is not None or not _is_pure(node):
            return None
        new = [source.node for source in node.inputs if source.node not in seen]
        seen.update(new)
        todo.extend(new)
    return read


def _finding(
    node: Node, frame: str | None, pred: Output, value: object, *, is_outer: bool
) -> Iterator[Finding]:
    """The finding on an invariant predicate, unless it is known to be false."""
    if value is None and not is_outer:
        message = f"no iteration changes the predicate {pred.name!r}: once started, the loop never"
        message += " ends"
        yield Finding("CFG226", "note", message, node.name, _HINT, (), frame)
    elif value:
        message = f"the predicate {pred.name!r} is always true: the loop never ends"
        yield Finding("CFG226", "warning", message, node.name, _HINT, (), frame)
