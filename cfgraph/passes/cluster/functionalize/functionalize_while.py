"""Turn a lowered loop into a StatelessWhile with a condition function and a body function.

    Enter ──▶ Merge ──▶ condition ──▶ LoopCond
                ▲  └──▶ Switch ──false──▶ Exit
                │         └────true────▶ body ──▶ NextIteration ─┐
                └────────────────────────────────────────────────┘

Each node of the loop runs in every iteration, in those in which the condition holds, or in the last
one. A node that depends on both the body and the end never runs; such a loop stays lowered."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.analysis.loops.while_loop import WhileLoop, exit_switch, switch_data, while_loop
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.evaluation import constant_arguments, loop_invariant_arguments
from cfgraph.ops.opdef.op import role_of, strip_identities
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.cluster.formation.grow import is_cheap_constant
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.rejection_reasons import (
    NotFunctionalizable,
    not_functionalizable,
)
from cfgraph.passes.cluster.functionalize.function_body import (
    ArgumentNames,
    FunctionBodyWriter,
    base_dtypes,
)


@dataclass(frozen=True, slots=True)
class LoopCall:
    """A loop as a call: what comes in, with the Merge or Enters that it is inside."""

    items: tuple[Output, ...]
    inside: tuple[tuple[Output, ...], ...]
    copied: tuple[Node, ...]
    cond: Function
    body: Function


def require_uniform_entry(form: WhileLoop, liveness: LivenessRule) -> None:
    """Raise Refused unless a loop is entered as a whole or not at all."""
    starts = list(dict.fromkeys(_entry_values(form, constant=False)))
    others = list(dict.fromkeys(_entry_values(form, constant=True)))
    if not starts:
        raise not_functionalizable("form", "it changes nothing")
    first = starts[0]
    for place in starts[1:]:
        if not liveness.equal(first, place):
            raise _nonuniform_entry(first, place)
    for place in others:
        if not liveness.implies(first, place):
            raise _nonuniform_entry(first, place)


def _entry_values(form: WhileLoop, *, constant: bool) -> Iterator[Output | Node]:
    for enter in _used_enters(form):
        if bool(enter.attr("is_constant")) is constant:
            yield from enter.inputs
            yield from enter.controls


def _used_enters(form: WhileLoop) -> list[Node]:
    """The Enters that a loop has a use for; of the others, no call waits for what they wait for."""
    return [enter for enter in form.frame.enters if enter.uses]


def _nonuniform_entry(one: Output | Node, other: Output | Node) -> NotFunctionalizable:
    names = [place.name for place in (one, other)]
    return not_functionalizable(
        "entered apart", f"{names[0]} and {names[1]} may differ in liveness", of=names
    )


def loop_call(graph: Graph, form: WhileLoop, name: str) -> LoopCall:
    """A loop as a call, with nothing changed yet. Raises Refused where XLA could not have it."""
    order: list[tuple[Output, tuple[Output, ...]]]
    order = [(variable.initial, (variable.merge.output(),)) for variable in form.variables]
    entered: dict[Output, list[Output]] = {}
    for enter in form.invariants:
        if enter.uses and not is_cheap_constant(enter.inputs[0].node):
            entered.setdefault(enter.inputs[0], []).append(enter.output())
    order += [(item, tuple(inner)) for item, inner in entered.items()]
    items, inside = tuple(item for item, _ in order), tuple(inner for _, inner in order)
    copied = tuple(node for node in form.invariants if is_cheap_constant(node.inputs[0].node))
    cond = _loop_function(graph, form, f"{name}_cond", inside, copied, condition=True)
    body = _loop_function(graph, form, f"{name}_body", inside, copied, condition=False)
    return LoopCall(items, inside, copied, cond, body)


def _loop_function(
    graph: Graph,
    form: WhileLoop,
    name: str,
    inside: tuple[tuple[Output, ...], ...],
    copied: tuple[Node, ...],
    *,
    condition: bool,
) -> Function:
    body = FunctionBodyWriter(graph.functions, _switched_value)
    names = ArgumentNames(())
    for inner in inside:
        dtype = inner[0].dtype
        if dtype is None:
            raise not_functionalizable("type", f"the type of {inner[0].name} is not known")
        body.argument(names.new(inner[0]), dtype.base, *inner)
    for enter in copied:
        body.constant(enter.output(), enter.inputs[0].node)
    if condition:
        return body.function(name, {"holds": body.output(form.cond.inputs[0])})
    backs = [variable.updated for variable in form.variables]
    backs += [inner[0] for inner in inside[len(backs) :]]
    taken = [body.output(item) for item in backs]
    labels = [names.new(inner[0], "out") for inner in inside]
    return body.function(name, dict(zip(labels, taken, strict=True)))


def require_static_shapes(graph: Graph, call: LoopCall, shapes: StaticShapes) -> None:
    """Raise Refused where a variable changes its shape, or a constant is wanted that varies."""
    new = {call.cond.name: call.cond, call.body.name: call.body}
    library = ChainMap(new, graph.functions)
    instances = FunctionInstances(library)
    cond, body = (instances.get(one.name, {}) for one in (call.cond, call.body))
    same = loop_invariant_arguments(body)
    for function in (cond, body):
        for place in sorted(constant_arguments(function, instances)):
            if not same[place]:
                text = f"XLA needs {call.items[place].name} as a constant, and the loop changes it"
                raise not_functionalizable("constant varies", text)
    _require_invariant_shapes(call, body, [shapes[item] for item in call.items])


def _require_invariant_shapes(call: LoopCall, body: FunctionGraph, starts: list[Shape]) -> None:
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
            raise not_functionalizable("shape changes", text) from None


def functionalize_while(graph: Graph, form: WhileLoop, call: LoopCall, name: str) -> Node:
    """Put a StatelessWhile where a loop was; its Exits hand on what it gives, by their names."""
    graph.functions[call.cond.name] = call.cond
    graph.functions[call.body.name] = call.body
    frame = form.frame
    loop = graph.add(
        "StatelessWhile",
        *call.items,
        name=name,
        controls=dict.fromkeys(
            control for enter in _used_enters(form) for control in enter.controls
        ),
        device=form.cond.device,
        T=base_dtypes(call.items),
        cond=Func(call.cond.name),
        body=Func(call.body.name),
        parallel_iterations=frame.parallel_iterations,
    )
    results = {
        inner: loop.output(port) for port, inners in enumerate(call.inside) for inner in inners
    }
    results.update((enter.output(), enter.inputs[0]) for enter in call.copied)
    exits = {leaving: _exit_source(leaving, form) for leaving in frame.exits}
    for leaving, source in exits.items():
        dtype = leaving.attr("T")
        leaving.op, leaving.attrs, leaving.origin = "Identity", {"T": dtype}, None
        result = results[source.output()]
        graph.connect(leaving, [result], [] if result.node is loop else [loop])
    gone = [*(node for node in frame.nodes if node not in exits), *frame.enters]
    graph.remove(*dict.fromkeys(gone))
    return loop


EVERY_ITERATION: Final = "always"
BODY_ITERATIONS: Final = "body"
LAST_ITERATION: Final = "end"
NO_ITERATION: Final = "never"


def functionalizable_loop(frame: Frame, found: Frames) -> WhileLoop:
    """The loop of a frame. Raises NotFunctionalizable for a loop of another form."""
    loop = while_loop(frame)
    if loop is None:
        raise not_functionalizable("form", f"it has {len(frame.loop_conds)} LoopConds")
    phases = _iteration_phases(frame, found, loop.cond)
    _require_variables(loop)
    for node, phase in phases.items():
        _require_phase(node, phase)
    for node in frame.exits:
        _exit_source(node, loop)
    return loop


def _switched_value(item: Output) -> Output:
    """The value of a tensor while an iteration runs: a Switch forwards its data input."""
    while role_of(item.node) is Role.SWITCH:
        item = item.node.inputs[0]
    return item


def _require_variables(loop: WhileLoop) -> None:
    for merge in loop.irregular_merges:
        text = f"{merge.name} merges something else than a loop variable"
        raise not_functionalizable("form", text, node=merge.name)
    for variable in loop.variables:
        merge, enter = variable.merge, variable.enter
        if merge.readers(1):
            text = f"the index output of {merge.name} is read"
            raise not_functionalizable("form", text, node=merge.name)
        if enter.attr("is_constant"):
            text = f"{enter.name} is constant, and starts a loop variable"
            raise not_functionalizable("form", text)
    for enter in loop.frame.enters:
        if enter.attr("is_constant"):
            continue
        others = [use.node for use in enter.uses if role_of(use.node) is not Role.MERGE]
        if others:
            text = f"{others[0].name} reads {enter.name}, which comes in the first iteration alone"
            raise not_functionalizable("form", text, node=others[0].name)


def _iteration_phases(frame: Frame, found: Frames, cond: Node) -> dict[Node, str]:
    """In which iterations each node of a loop runs."""
    inside = set(frame.nodes)
    holds = {strip_identities(cond.inputs[0]), cond.output()}
    phases: dict[Node, str] = {}

    def of_output(item: Output) -> str:
        if item.node not in inside:
            return EVERY_ITERATION
        phase = phases.get(item.node, EVERY_ITERATION)
        return (
            _common_phase(phase, (LAST_ITERATION, BODY_ITERATIONS)[item.port])
            if role_of(item.node) is Role.SWITCH
            else phase
        )

    for node in found.order:
        if node not in inside:
            continue
        kind = role_of(node)
        if kind in (Role.MERGE, Role.CONTROL_TRIGGER):
            phases[node] = EVERY_ITERATION
            continue
        if kind is Role.SWITCH and not (
            len(node.inputs) == 2 and strip_identities(node.inputs[1]) in holds
        ):
            raise not_functionalizable("conditional", f"{node.name} branches in it", node=node.name)
        phase = EVERY_ITERATION
        for item in node.inputs:
            phase = _common_phase(phase, of_output(item))
        for control in node.controls:
            phase = _common_phase(phase, phases.get(control, EVERY_ITERATION))
        phases[node] = phase
    return phases


def _common_phase(one: str, other: str) -> str:
    if EVERY_ITERATION in (one, other):
        return other if one == EVERY_ITERATION else one
    return one if one == other else NO_ITERATION


_REQUIRED_PHASES: Final[dict[Role | None, str]] = {
    Role.NEXT_ITERATION: BODY_ITERATIONS,
    Role.EXIT: LAST_ITERATION,
    Role.LOOP_COND: EVERY_ITERATION,
}


def _require_phase(node: Node, phase: str) -> None:
    wanted = _REQUIRED_PHASES.get(role_of(node), phase)
    if phase != wanted or phase == NO_ITERATION:
        text = f"{node.name} does not run when it should"
        raise not_functionalizable("form", text, node=node.name, runs=phase)


def _exit_source(leaving: Node, loop: WhileLoop) -> Node:
    """The Merge or constant Enter whose value an Exit forwards."""
    switch = exit_switch(leaving)
    if switch is not None:
        source = switch_data(switch)
        if role_of(source) is Role.ENTER or any(source is item.merge for item in loop.variables):
            return source
    text = f"{leaving.name} forwards a value that is computed after the last iteration"
    raise not_functionalizable("form", text, node=leaving.name)
