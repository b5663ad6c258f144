"""Loops whose condition no iteration changes.

The condition of a loop of primitives is followed back to the Enters of its frame, that of a
functional loop to the arguments of its condition. A loop variable does not change if the body
returns its value, also behind an addition of 0 or a product with 1 (`Op.equal_input`). Outputs that
may differ although the inputs do not (of a stateful op, a Recv, or an inner loop) count as changed.

A condition that is an outer tensor itself is reported only if it is known to be true: it may decide
whether to run the loop at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.while_loop import loop_variable
from cfgraph.analysis.verify.function_rules import BodyGraph
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import function_calls, lookup, role_of, strip_identities
from cfgraph.ops.opdef.shape_functions import InferenceContext
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes

_HINT: Final = "let the body change a loop variable that the condition reads"
_SHOWN: Final = 4
# the static value of a tensor in a loop, or None
_ValueOf = Callable[[Output], Any]


def endless_loop_findings(
    graph: Graph, graph_frames: Frames, bodies: Mapping[str, BodyGraph]
) -> Iterator[Finding]:
    """Findings on the loops of a graph, primitive and functional ones."""
    loops = [frame for frame in graph_frames.all if frame.loop_cond and frame.next_iterations]
    functional = [node for node in graph if function_calls(node.op).kind == "while"]
    shapes = infer_shapes(graph) if loops or functional else None
    for frame in loops:
        assert shapes is not None
        yield from _PrimitiveLoop(frame, graph_frames, shapes).findings()
    for node in functional:
        assert shapes is not None
        yield from _functional_loop_findings(node, shapes, bodies)


class _PrimitiveLoop:
    """The condition of a frame, and the Merges and Enters that it reads."""

    def __init__(self, frame: Frame, graph_frames: Frames, shapes: StaticShapes) -> None:
        self.frame = frame
        self.frames = graph_frames
        self.shapes = shapes

    def findings(self) -> Iterator[Finding]:
        """The finding on a condition that only invariants determine."""
        cond = self.frame.loop_cond
        assert cond is not None
        pred = cond.inputs[0]
        read = _sources_read(pred, self._is_source)
        if read is None or not all(map(self._is_invariant, read)):
            return
        is_outer = role_of(strip_identities(pred).node) is Role.ENTER
        value = self.shapes.value(pred)
        names = [node.name for node in read]
        yield from _finding(cond, str(self.frame), pred, value, names, is_outer=is_outer)

    def _is_source(self, node: Node) -> bool:
        return role_of(node) in (Role.ENTER, Role.MERGE)

    def _is_invariant(self, node: Node) -> bool:
        """True if a Merge or Enter has one value in all iterations of the loop."""
        if role_of(node) is Role.MERGE:
            variable = loop_variable(node)
            if variable is None:
                return False
            if self.shapes.value(node.output()) is not None:
                return True
            return _unchanged_source(variable.updated, self.shapes, self._value) == node.output()
        dtype = node.inputs[0].dtype
        # a reference shows each write
        is_value = dtype is not None and not dtype.is_ref
        is_constant = bool(node.attr("is_constant"))
        return is_value and is_constant and self.frames.of_outputs[node] is self.frame

    def _value(self, tensor: Output) -> Any:
        """The static value of a tensor, also of one that the loop carries unchanged."""
        variable = loop_variable(strip_identities(tensor).node)
        if variable is not None and variable.is_invariant():
            return self.shapes.value(variable.initial)
        return self.shapes.value(tensor)


def _functional_loop_findings(
    node: Node, outer: StaticShapes, bodies: Mapping[str, BodyGraph]
) -> Iterator[Finding]:
    """The finding on a functional loop whose body returns unchanged what its condition reads."""
    cond, body = (bodies.get(node.attr(name).name) for name in ("cond", "body"))
    if cond is None or body is None or len(cond.returns) != 1:
        return
    (pred,) = cond.returns.values()
    arguments, returned = _argument_nodes(body), list(body.returns.values())
    slots = {argument: slot for slot, argument in enumerate(_argument_nodes(cond))}
    if not len(slots) == len(arguments) == len(returned):
        return
    read = _sources_read(pred, slots.__contains__)
    if read is None:
        return
    inner = infer_shapes(body.subject.graph)
    initial = dict(zip(arguments, node.inputs, strict=True))

    def value_of(tensor: Output) -> Any:
        origin = strip_identities(tensor).node
        slot = arguments.index(origin) if origin in initial else None
        if slot is not None and strip_identities(returned[slot]).node is origin:
            return outer.value(initial[origin])
        return inner.value(tensor)

    for slot in map(slots.__getitem__, read):
        if _unchanged_source(returned[slot], inner, value_of).node is not arguments[slot]:
            return
    value = infer_shapes(cond.subject.graph).value(pred)
    is_outer = strip_identities(pred).node in slots
    names = [argument.name for argument in read]
    yield from _finding(node, None, pred, value, names, is_outer=is_outer)


def _argument_nodes(body: BodyGraph) -> list[Node]:
    """The nodes of the arguments of a function."""
    return [node for node in body.subject.graph if role_of(node) is Role.ARG]


def _sources_read(pred: Output, is_source: Callable[[Node], bool]) -> list[Node] | None:
    """The sources that determine a condition, or None if something else does."""
    read: list[Node] = []
    todo, seen = [pred.node], {pred.node}
    while todo:
        node = todo.pop()
        if is_source(node):
            read.append(node)
            continue
        if role_of(node) not in (None, Role.SWITCH) or not _is_pure(node):
            return None
        new = dict.fromkeys(source.node for source in node.inputs if source.node not in seen)
        seen.update(new)
        todo.extend(reversed(new))
    return read


def _is_pure(node: Node) -> bool:
    """True if the values of the inputs determine those of the outputs."""
    op = lookup(node.op)
    if op is None or op.effects.stateful or function_calls(node.op).kind:
        return False
    return bool(node.inputs) or "value" in node.attrs


def _unchanged_source(x: Output, shapes: StaticShapes, value_of: _ValueOf) -> Output:
    """The origin of a value within an iteration, also through operations that do not change it."""
    while True:
        x = strip_identities(x)
        slot = 0 if role_of(x.node) is Role.SWITCH else _equal_input(x.node, shapes, value_of)
        if slot is None:
            return x
        x = x.node.inputs[slot]


def _equal_input(node: Node, shapes: StaticShapes, value_of: _ValueOf) -> int | None:
    """The input that an output of a node equals, or None."""
    op = lookup(node.op)
    if op is None or role_of(node) is not None or not node.inputs:
        return None
    inputs = tuple(map(shapes.__getitem__, node.inputs))
    context = InferenceContext(node, inputs, lambda slot: value_of(node.inputs[slot]))
    return op.equal_input(context)


def _finding(
    node: Node, frame: str | None, pred: Output, value: Any, read: list[str], *, is_outer: bool
) -> Iterator[Finding]:
    """The finding on an invariant condition, unless it is known to be false."""
    if value is None and is_outer:
        return
    if value is None:
        names = ", ".join(map(repr, read[:_SHOWN])) + ", …" * (len(read) > _SHOWN)
        message = f"no iteration changes the condition {pred.name!r}"
        message += f", which reads {names}" if read else ""
        message += ": once started, the loop never ends"
    elif value:
        message = f"the condition {pred.name!r} is always true: the loop never ends"
    else:
        return
    yield Finding("CFG226", "warning", message, node.name, _HINT, tuple(read), frame)
