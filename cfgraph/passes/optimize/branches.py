"""Branches that the exact deadness analysis proves dead, or live wherever their data is.

    Switch(x, true):1                    is x
    Merge(dead, y)                       becomes Identity(y)
    Merge(Switch(x, p):0, Switch(x, p):1) is x
    If(true, x, then=f, else=g)          becomes a call of f

Nodes that never run disappear with their last reader. A Merge loses an input only if all others but
one are proven dead too, because its second output is the number of the input that arrived.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import function_calls, is_identity, role_of
from cfgraph.ops.opdef.random_streams import GRAPH, call_annotations
from cfgraph.passes.optimize.calls import LOWERED_ATTR, call_op, has_effects
from cfgraph.passes.optimize.fold import known_value
from cfgraph.passes.optimize.rewriting import (
    RewriteContext,
    inherited_annotations,
    is_function_of_inputs,
)

RULE: Final = "branches"
_MAX_STEPS: Final = 20
_CONDITIONALS: Final = ("if", "case")


def branches(context: RewriteContext) -> None:
    """Remove Switches and Merges that decide nothing."""
    for node in context.nodes():
        check_deadline()
        role = role_of(node)
        if function_calls(node.op).kind in _CONDITIONALS:
            _call_branch(context, node)
            continue
        if role not in (Role.SWITCH, Role.MERGE) or not is_function_of_inputs(node):
            continue
        if node in context.never_live:
            continue
        if role is Role.SWITCH:
            _bypass_switch(context, node)
        elif not any(role_of(tensor.node) is Role.NEXT_ITERATION for tensor in node.inputs):
            _simplify_merge(context, node)


def _call_branch(context: RewriteContext, node: Node) -> None:
    """Replace a functional conditional with a constant selector by a call of its branch."""
    known = known_value(context, node.inputs[0])
    calls = function_calls(node.op)
    funcs = calls.named_in(node.attrs)
    if (
        known is None
        or len(funcs) < len(calls.functions)
        or np.ndim(known.array)
        or (not np.issubdtype(known.array.dtype, np.number) and (known.array.dtype != np.bool_))
    ):
        return
    number = int(known.array) if calls.kind == "case" else int(not known.array)
    number = number if 0 <= number < len(funcs) else len(funcs) - 1
    func = funcs[number]
    function = context.library.get(func.name)
    if function is None or (node.attrs.get(LOWERED_ATTR) and has_effects(function, optional=True)):
        return
    graph, op = context.graph, node.op
    # where TensorFlow inlines a call, it ends the process if two nodes have one name
    if any(f"{node.name}/{inner.name}" in graph for inner in function.definition.nodes):
        return
    source = node.inputs[0].node
    attrs = {key: value for key, value in node.attrs.items() if key in ("Tin", "Tout", "_class")}
    label = f"branch{number}" if calls.kind == "case" else ("then", "else")[number]
    attrs |= call_annotations([function], context.library, GRAPH.inside(node, label))
    graph.connect(node, node.inputs[1:], dict.fromkeys((*node.controls, *known.guards)))
    graph.set_op(node, call_op(function, op), attrs | {"f": func})
    context.log(RULE, node, op, func.name)
    context.discard([source])


def _bypass_switch(context: RewriteContext, node: Node) -> None:
    """Make the readers of an output that is live wherever the data is read the data."""
    data = node.inputs[0]
    for port in sorted({tensor.port for use in node.uses for tensor in _read(use.node, node)}):
        output = node.output(port)
        if not context.has_same_liveness(output, data) or node in context.protected:
            continue
        if any(role_of(reader.node) is Role.EXIT for reader in node.readers(port)):
            continue  # the final value of a loop variable, by which other passes know the loop
        dropped = [tensor.node for tensor in node.inputs[1:]] + list(node.controls)
        if data.node in context.frozen and data not in context.fed:
            continue
        if context.runs_before(dropped, data.node):
            context.log(RULE, node, node.op, data.name)
            context.names[output.name] = (data.name,)
            context.graph.replace_uses(output, data)
    context.discard([node])


def _read(reader: Node, source: Node) -> list[Output]:
    return [tensor for tensor in reader.inputs if tensor.node is source]


def _simplify_merge(context: RewriteContext, node: Node) -> None:
    """Replace a Merge of which one input is ever live, or whose inputs are one value."""
    same = _common_value(context, node)
    if same is not None and not node.readers(1) and context.can_forward(node, same):
        context.forward(RULE, node, same)
        return
    if any(tensor.node not in context.frames.of for tensor in node.inputs):
        return
    liveness = context.liveness
    slots = [slot for slot, x in enumerate(node.inputs) if not liveness.never_live(x)]
    if len(slots) != 1 or len(node.inputs) < 2:
        return
    live = node.inputs[slots[0]]
    if not all(
        control in liveness.frames.of and liveness.implies(live, control)
        for control in node.controls
    ):
        return
    guards = _lost_without_dead_inputs(context, node, live)
    if guards is not None:
        _become_identity(context, node, live, slots[0], guards)


def _lost_without_dead_inputs(
    context: RewriteContext, node: Node, live: Output
) -> list[Node] | None:
    """The nodes behind the dead inputs of a Merge that only it needs, or None if it must stay.

    A Merge runs when its live input arrives, and waits for dead inputs only if all are dead.
    Without them, its readers thus wait for the same, but runs no longer need what is behind them.
    """
    dead = [tensor.node for tensor in node.inputs if tensor != live]
    later = context.not_before(dead, live.node)
    if later is None:
        return None
    if later and context.has_waits_for_dead and not context.liveness.always_live(live):
        return None
    lost = [item for item in later if not context.is_still_needed(item, node)]
    runs, known = context.liveness, context.frames.of
    if all(
        item in known and runs.implies(live, item) and context.waits_for_no_effect(item)
        for item in lost
    ):
        return sorted(lost, key=lambda item: item.name)
    return None


def _become_identity(
    context: RewriteContext, node: Node, live: Output, slot: int, guards: Collection[Node]
) -> None:
    if node in context.protected and node not in context.first_outputs:
        return  # its second output may be fetched
    graph = context.graph
    if node.readers(1):
        attrs: dict[str, Any] = {"dtype": int32, "value": TensorValue(np.array(slot, np.int32))}
        name = graph.unique_name(f"{node.name}/value_index")
        index = graph.create(name, "Const", (), [node], attrs, node.device)
        graph.replace_uses(node.output(1), index.output())
        context.names[f"{node.name}:1"] = (f"{name}:0",)
    sources = [tensor.node for tensor in node.inputs]
    context.log(RULE, node, node.op, "Identity")
    attrs = {"T": node.attr("T"), **inherited_annotations(node)}
    graph.connect(node, [live], dict.fromkeys((*node.controls, *guards)))
    graph.set_op(node, "Identity", attrs)
    context.discard(sources)


def _common_value(context: RewriteContext, node: Node) -> Output | None:
    """The tensor that all inputs of a Merge forward, in its frame, or None."""
    values = {_forwarded(context, tensor) for tensor in node.inputs}
    return values.pop() if len(values) == 1 else None


def _forwarded(context: RewriteContext, tensor: Output) -> Output:
    """The tensor behind Switches and identities."""
    for _ in range(_MAX_STEPS):
        node = tensor.node
        if tensor in context.fed or node in context.frozen or not is_function_of_inputs(node):
            return tensor
        if role_of(node) is Role.SWITCH:
            tensor = node.inputs[0]
        elif is_identity(node) and role_of(node) is None:
            tensor = node.inputs[tensor.port]
        else:
            return tensor
    return tensor
