"""Raise a loop to a StatelessWhile: a function for its condition, and one for its body."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass

from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionGraph, Instances
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.evaluate_control import constant_arguments, invariant
from cfgraph.ops.shape_inference import Shapes, infer_shapes
from cfgraph.passes.cluster.agreement import Agreement
from cfgraph.passes.cluster.formation import is_cheap
from cfgraph.passes.cluster.names import ArgumentNames
from cfgraph.passes.lift.bodies import Body, call_attrs
from cfgraph.passes.lift.loop_form import LoopForm, through
from cfgraph.passes.lift.refused import Refused, refused


@dataclass(frozen=True, slots=True)
class Called:
    """A loop as a call: what comes in, with the Merge or Enters that it is inside."""

    items: tuple[Output, ...]
    inside: tuple[tuple[Output, ...], ...]
    copied: tuple[Node, ...]
    cond: Function
    body: Function


def require_together(form: LoopForm, agreed: Agreement) -> None:
    """Raise Refused unless a loop is entered as a whole or not at all."""
    starts = list(dict.fromkeys(_places(form, constant=False)))
    others = list(dict.fromkeys(_places(form, constant=True)))
    if not starts:
        raise refused("form", "it changes nothing")
    first = starts[0]
    for place in starts[1:]:
        if not agreed.same(first, place):
            raise _apart(first, place)
    for place in others:
        if not agreed.implies(first, place):
            raise _apart(first, place)


def _places(form: LoopForm, *, constant: bool) -> Iterator[Output | Node]:
    for enter in _read(form):
        if bool(enter.attr("is_constant")) is constant:
            yield from enter.inputs
            yield from enter.controls


def _read(form: LoopForm) -> list[Node]:
    """The Enters that a loop has a use for; of the others, no call waits for what they wait for."""
    return [enter for enter in form.frame.enters if enter.uses]


def _apart(one: Output | Node, other: Output | Node) -> Refused:
    names = [place.name for place in (one, other)]
    return refused("entered apart", f"{names[0]} and {names[1]} may differ in liveness", of=names)


def called(graph: Graph, form: LoopForm, name: str) -> Called:
    """A loop as a call, with nothing changed yet. Raises Refused where XLA could not have it."""
    order: list[tuple[Output, tuple[Output, ...]]]
    order = [(variable.start, (variable.merge.output(),)) for variable in form.variables]
    entered: dict[Output, list[Output]] = {}
    for enter in form.invariants:
        if enter.uses and not is_cheap(enter.inputs[0].node):
            entered.setdefault(enter.inputs[0], []).append(enter.output())
    order += [(item, tuple(inner)) for item, inner in entered.items()]
    items, inside = tuple(item for item, _ in order), tuple(inner for _, inner in order)
    copied = tuple(node for node in form.invariants if is_cheap(node.inputs[0].node))
    cond = _function(graph, form, f"{name}_cond", inside, copied, condition=True)
    body = _function(graph, form, f"{name}_body", inside, copied, condition=False)
    return Called(items, inside, copied, cond, body)


def _function(
    graph: Graph,
    form: LoopForm,
    name: str,
    inside: tuple[tuple[Output, ...], ...],
    copied: tuple[Node, ...],
    *,
    condition: bool,
) -> Function:
    body = Body(graph.functions, lambda item: through(form, item))
    names = ArgumentNames(())
    for inner in inside:
        dtype = inner[0].dtype
        if dtype is None:
            raise refused("type", f"the type of {inner[0].name} is not known")
        body.argument(names.new(inner[0]), dtype.base, *inner)
    for enter in copied:
        body.constant(enter.output(), enter.inputs[0].node)
    if condition:
        return body.function(name, {"holds": body.take(form.cond.inputs[0])})
    backs = [variable.back for variable in form.variables]
    backs += [inner[0] for inner in inside[len(backs) :]]
    taken = [body.take(item) for item in backs]
    labels = [names.new(inner[0], "out") for inner in inside]
    return body.function(name, dict(zip(labels, taken, strict=True)))


def require_fixed(graph: Graph, call: Called, shapes: Shapes) -> None:
    """Raise Refused where a variable changes its shape, or a constant is wanted that varies."""
    new = {call.cond.name: call.cond, call.body.name: call.body}
    library = ChainMap(new, graph.functions)
    instances = Instances(library)
    cond, body = (instances.get(one.name, {}) for one in (call.cond, call.body))
    same = invariant(body)
    for function in (cond, body):
        for place in sorted(constant_arguments(function, instances)):
            if not same[place]:
                text = f"XLA needs {call.items[place].name} as a constant, and the loop changes it"
                raise refused("constant varies", text)
    _require_shapes(call, body, [shapes[item] for item in call.items])


def _require_shapes(call: Called, body: FunctionGraph, starts: list[Shape]) -> None:
    fed = {
        argument.output().name: start
        for argument, start in zip(body.arguments, starts, strict=True)
    }
    found = infer_shapes(body.graph, fed)
    for place, (start, after) in enumerate(zip(starts, body.returns, strict=True)):
        try:
            start.merge(found[after])
        except ValueError:
            text = f"{call.inside[place][0].name} begins as {start} and goes on as {found[after]}"
            raise refused("shape changes", text) from None


def raise_loop(graph: Graph, form: LoopForm, call: Called, name: str) -> Node:
    """Put a StatelessWhile where a loop was; its Exits hand on what it gives, by their names."""
    graph.functions[call.cond.name] = call.cond
    graph.functions[call.body.name] = call.body
    frame = form.frame
    loop = graph.add(
        "StatelessWhile",
        *call.items,
        name=name,
        controls=dict.fromkeys(control for enter in _read(form) for control in enter.controls),
        device=form.cond.device,
        T=call_attrs(call.items),
        cond=Func(call.cond.name),
        body=Func(call.body.name),
        parallel_iterations=frame.parallel_iterations,
    )
    results = {
        inner: loop.output(port) for port, inners in enumerate(call.inside) for inner in inners
    }
    results.update((enter.output(), enter.inputs[0]) for enter in call.copied)
    for leaving, source in form.exits:
        dtype = leaving.attr("T")
        leaving.op, leaving.attrs, leaving.origin = "Identity", {"T": dtype}, None
        result = results[source.output()]
        graph.connect(leaving, [result], [] if result.node is loop else [loop])
    exits = {leaving for leaving, _ in form.exits}
    gone = [*(node for node in frame.nodes if node not in exits), *frame.enters]
    graph.remove(*dict.fromkeys(gone))
    return loop
