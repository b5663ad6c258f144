"""Raise a conditional to a StatelessIf: a function for each branch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import Func, Tensor
from cfgraph.ir.dtypes import int32
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.passes.cluster.agreement import Agreement
from cfgraph.passes.cluster.formation import is_cheap
from cfgraph.passes.cluster.names import ArgumentNames
from cfgraph.passes.lift.bodies import Body, call_attrs
from cfgraph.passes.lift.branches import BOTH, Branches
from cfgraph.passes.lift.refused import refused

_BRANCHES: Final = ("else", "then")


def require_live_together(form: Branches, agreed: Agreement) -> None:
    """Raise Refused unless a conditional is live just when all that it reads is."""
    (merge,) = form.merges
    inside, outside, waits = form.cone()
    for node in inside:
        if form.decided.sides[node] == BOTH:
            raise refused("form", f"{node.name} is behind both sides", node=node.name)
    wanted: list[Output | Node] = [form.decided.pred, *outside, *waits]
    for place in wanted:
        if not agreed.implies(merge.output(), place):
            text = f"{merge.name} may be live where {place.name} is dead"
            raise refused("entered apart", text, of=[merge.name, place.name])
    if not any(agreed.same(merge.output(), place) for place in wanted):
        text = f"{merge.name} may be dead where all that it reads is live"
        raise refused("entered apart", text, of=[merge.name])


def raise_conditional(graph: Graph, form: Branches, name: str, kept: set[Node]) -> Node:
    """Put a StatelessIf where a conditional was; its Merges hand on what it gives."""
    _, outside, waits = form.cone()
    items = [item for item in outside if not is_cheap(item.node)]
    copied = [item for item in outside if is_cheap(item.node)]
    # the call waits for what the constants that it copies wait for
    waits += [control for item in copied for control in item.node.controls]
    ports = [Output(merge, port) for merge in form.merges for port in _ports(merge, kept)]
    functions = [
        _branch(graph, form, f"{name}_{_BRANCHES[side]}", side, items, copied, ports)
        for side in (0, 1)
    ]
    graph.functions.update((function.name, function) for function in functions)
    attrs: dict[str, Any] = {
        "Tin": call_attrs(items),
        "Tout": call_attrs(ports),
        "then_branch": Func(functions[1].name),
        "else_branch": Func(functions[0].name),
    }
    first = form.merges[0]
    call = graph.add(
        "StatelessIf",
        form.decided.pred,
        *items,
        name=name,
        controls=waits,
        device=first.device,
        attrs=attrs,
    )
    place = {item: call.output(number) for number, item in enumerate(ports)}
    for merge in form.merges:
        _hand_on(graph, merge, [place[Output(merge, port)] for port in _ports(merge, kept)], kept)
    return call


def _ports(merge: Node, kept: set[Node]) -> range:
    """The outputs of a Merge that are asked for."""
    return range(2 if merge in kept or merge.readers(1) else 1)


def _hand_on(graph: Graph, merge: Node, results: list[Output], kept: set[Node]) -> None:
    """Let a Merge be an Identity of what the call gives."""
    if len(results) > 1 and merge not in kept:
        graph.replace_uses(merge.output(1), results.pop())
    dtypes = call_attrs(results)
    if len(results) == 1:
        graph.set_op(merge, "Identity", {"T": dtypes[0]})
    else:
        graph.set_op(merge, "IdentityN", {"T": dtypes})
    graph.connect(merge, results, [])


def _branch(
    graph: Graph,
    form: Branches,
    name: str,
    side: int,
    items: list[Output],
    copied: list[Output],
    ports: list[Output],
) -> Function:
    body = Body(graph.functions, form.decided.through)
    names = ArgumentNames(())
    for item in items:
        dtype = item.dtype
        if dtype is None:
            raise refused("type", f"the type of {item.name} is not known")
        body.argument(names.new(item), dtype.base, item)
    for item in copied:
        body.constant(item, item.node)
    outputs = {}
    for merge, port in ports:
        label = names.new(Output(merge, port), "out")
        if port:
            value = Tensor(np.array(form.slot(merge, side), np.int32))
            outputs[label] = body.scratch.add(
                "Const", name=f"{label}_index", dtype=int32, value=value
            ).output()
        else:
            outputs[label] = body.take(form.value(merge, side))
    return body.function(name, outputs)
