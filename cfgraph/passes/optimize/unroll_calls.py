"""Unrolling of functional loops: one call of the body per iteration, which is then inlined.

    y = While(x, cond=c, body=b)      becomes      y = b(b(b(x)))
    y = For(0, 3, 1, x, body=b)       becomes      y = b(2, b(1, b(0, x)))

The trip count is that of the lowered loop, whose inputs are constants where they are known.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.while_loop import static_trip_count
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.colocation import COLOCATION_ATTR
from cfgraph.ir.dtypes import int32
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import reachable
from cfgraph.limits import check_deadline, current_limits
from cfgraph.ops.opdef.op import function_calls, lookup, role_of
from cfgraph.ops.opdef.random_streams import GRAPH, call_annotations
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.passes.lower.lower import inline_calls, restore_order
from cfgraph.passes.lowering import lower
from cfgraph.passes.optimize.calls import (
    LOWERED_ATTR,
    call_op,
    has_effects,
    is_stateful,
    named_state,
)
from cfgraph.passes.optimize.rewriting import FixedNodes, KeptLoop, RewriteContext

RULE: Final = "unroll"
# start, limit, and delta of a For
_INDICES: Final = 3


def unroll_calls(context: RewriteContext, limit: int) -> None:
    """Replace functional loops of at most `limit` iterations by the bodies of their iterations."""
    groups: dict[Node, list[Node]] = {}
    for node in list(context.nodes()):
        op = lookup(node.op)
        if op is None or not op.calls.is_loop or context.graph.nodes.get(node.name) is not node:
            continue
        check_deadline()
        count = _trip_count(context, node)
        reason = count if isinstance(count, str) else _obstacle(context, node, count, limit)
        if isinstance(count, str) or reason is not None:
            context.kept_loops.append(KeptLoop(node.name, str(reason), context.function))
            continue
        context.log(RULE, node, node.op, f"{count} iterations")
        groups[node] = _replace(context, node, count)
    if groups:
        calls = [call for group in groups.values() for call in group]
        restore_order(context.graph, groups)
        _inline(context, calls)
        context.discard([*calls, *groups])


def _inline(context: RewriteContext, calls: list[Node]) -> None:
    """Inline calls; the graph of a body has no library of its own."""
    graph, own = context.graph, context.graph.functions
    if own is context.library:
        inline_calls(graph, calls)
        return
    graph.functions = dict(context.library)
    try:
        inline_calls(graph, calls)
    finally:
        graph.functions = own


def _function(context: RewriteContext, node: Node, key: str) -> Function | None:
    func = node.attrs.get(key)
    return context.library.get(func.name) if isinstance(func, Func) else None


def _obstacle(context: RewriteContext, node: Node, count: int, limit: int) -> str | None:
    if count > limit:
        return f"has {count} iterations"
    body = _function(context, node, "body")
    if body is None:
        return "its body is not in the library"
    if "cond" in node.attrs and has_effects(_function(context, node, "cond")):
        return "its condition has effects"
    if _is_for(node):
        if any(value is None for value in _range(context, node)):
            return "its first index is not static"
        if any(role_of(tensor.node) is Role.SWITCH for tensor in node.inputs[:_INDICES]):
            return "a Switch selects its indices"
    if node.attrs.get(LOWERED_ATTR) and has_effects(body, optional=True):
        return "lowering omits effects of its body that no control output requires"
    reason = named_state(body.definition.nodes, context.library)
    if reason is not None:
        return reason
    size = len(context.graph) + count * len(body.definition.nodes)
    if size > current_limits().max_nodes:
        return f"would grow the graph to {size} nodes, more than the limit"
    return None


def _trip_count(context: RewriteContext, node: Node) -> int | str:
    """The number of iterations, or the reason why it is unknown."""
    scratch = Graph()
    scratch.functions = dict(context.library)
    inputs = [_stand_in(context, scratch, tensor) for tensor in node.inputs]
    if any(item is None for item in inputs):
        return "the type of an input is unknown"
    copy = scratch.create(node.name, node.op, [], [], dict(node.attrs))
    scratch.connect(copy, [item for item in inputs if item is not None], [])
    try:
        lower(scratch)
        loops = [frame for frame in frames(scratch).all if frame.depth == 1]
        cond = loops[0].loop_cond if len(loops) == 1 else None
        shapes = infer_shapes(scratch)
    except CfgraphError as error:
        return f"it cannot be lowered: {error.message}"
    count = None if cond is None else static_trip_count(cond, shapes, exact=True)
    if cond is None or count is None:
        return "its trip count is not static"
    scope = RewriteContext(scratch, FixedNodes(frozenset(), frozenset()))
    for item in _test(cond):
        if not scope.does_nothing(item):
            return f"its condition may fail in {item.name}"
    return count


def _test(cond: Node) -> list[Node]:
    """The nodes of a lowered loop that decide about an iteration, without its body."""
    found = reachable([cond], lambda node: () if role_of(node) is Role.MERGE else node.predecessors)
    return [node for node in found if role_of(node) is not Role.MERGE]


def _stand_in(context: RewriteContext, scratch: Graph, tensor: Output) -> Output | None:
    """A constant of the value of an input, if it is known, or a placeholder."""
    dtype, value = tensor.dtype, context.shapes.value(tensor)
    if dtype is None:
        return None
    attrs: dict[str, Any] = {"dtype": dtype.base}
    if value is not None and tensor not in context.fed:
        return scratch.add("Const", name="in", attrs=attrs | {"value": TensorValue(value)}).output()
    attrs["shape"] = context.shapes[tensor]
    return scratch.add("Placeholder", name="in", attrs=attrs).output()


def _replace(context: RewriteContext, node: Node, count: int) -> list[Node]:
    """Replace a loop by a chain of calls of its body; returns the calls."""
    graph, body = context.graph, _function(context, node, "body")
    assert body is not None
    types = tuple(node.output_types or ())
    op, stateful = call_op(body, node.op), is_stateful(body)
    first = function_calls(node.op).first_argument
    values, controls = list(node.inputs[first:]), list(node.controls)
    calls: list[Node] = []
    for number in range(count):
        name = graph.unique_name(f"{node.name}/iteration_{number}")
        index = _index(context, node, name, number) if _is_for(node) else []
        types_in = (*[int32] * len(index), *types)
        streams = GRAPH.inside(node, "body", number)
        attrs = {"Tin": types_in, "Tout": types, "f": node.attrs["body"]}
        attrs |= call_annotations([body], context.library, streams)
        call = graph.create(name, op, [*index, *values], controls, attrs, node.device)
        calls.append(call)
        values = [call.output(port) for port in range(len(types))]
        controls = [call] if stateful or not types else []
    attrs = {key: value for key, value in node.attrs.items() if key == COLOCATION_ATTR}
    _become_identity(graph, node, values, controls, types, attrs)
    return calls


def _is_for(node: Node) -> bool:
    return function_calls(node.op).kind == "for"


def _range(context: RewriteContext, node: Node) -> tuple[Any | None, Any | None]:
    """The first index of a For, and the step, where they are known."""
    start, _, step, *_ = node.inputs
    values = [None if x in context.fed else context.shapes.value(x) for x in (start, step)]
    return values[0], values[1]


def _index(context: RewriteContext, node: Node, name: str, number: int) -> list[Output]:
    """The index of an iteration of a For, as a constant."""
    start, step = _range(context, node)
    assert start is not None
    assert step is not None
    value = TensorValue(np.array(int(start) + number * int(step), np.int32))
    attrs = {"dtype": int32, "value": value}
    graph = context.graph
    controls = dict.fromkeys((*node.controls, *(x.node for x in node.inputs[:_INDICES])))
    constant = graph.create(
        graph.unique_name(f"{name}/index"), "Const", (), controls, attrs, node.device
    )
    return [constant.output()]


def _become_identity(
    graph: Graph,
    node: Node,
    values: list[Output],
    controls: list[Node],
    types: tuple[Any, ...],
    attrs: dict[str, Any],
) -> None:
    """Forward the results under the name of the loop; its readers bypass it unless they wait."""
    if not controls:
        for port, value in enumerate(values):
            graph.replace_uses(node.output(port), value)
    graph.connect(node, values, controls)
    if not types:
        graph.set_op(node, "NoOp", attrs)
    elif len(types) == 1:
        graph.set_op(node, "Identity", {"T": types[0], **attrs})
    else:
        graph.set_op(node, "IdentityN", {"T": types, **attrs})
