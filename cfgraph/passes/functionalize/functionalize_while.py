"""Turn a lowered loop into a While with a condition function and a body function.

    Enter ──▶ Merge ──▶ condition ──▶ LoopCond
                ▲  └──▶ Switch ──false──▶ Exit
                │         └────true────▶ body ──▶ NextIteration ─┐
                └────────────────────────────────────────────────┘

Each node of the loop runs in every iteration, in all iterations but the last (body), or only in the
last. Those of the last iteration move behind the loop. A loop with a node that depends on both the
body and the last iteration, and thus never runs, stays in lowered form.

An effect of the condition runs in the condition function, and one of the body in the body function.
An effect that both would need keeps the loop in lowered form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, Predicate
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.while_loop import LoopPhase, LoopPhases, WhileLoop, while_loop
from cfgraph.ir.attrs import Func
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import back_edge_of, has_effect, role_of
from cfgraph.ops.opdef.random_streams import call_annotations, draws
from cfgraph.passes.functionalize.function_body import (
    ArgumentNames,
    FunctionBodyWriter,
    base_dtypes,
    must_run_once,
    unread_effects,
)
from cfgraph.passes.functionalize.region_rules import LoopCall, RegionRules
from cfgraph.passes.functionalize.report import RegionRejected, region_rejected
from cfgraph.passes.node_copier import SourceCopier


@dataclass(frozen=True, slots=True)
class LoopForm:
    """A loop, the iterations in which its nodes run, and the nodes that follow effects."""

    loop: WhileLoop
    phases: dict[Node, int]
    ordered: frozenset[Node]

    @property
    def frame(self) -> Frame:
        """The frame of the loop."""
        return self.loop.frame

    def in_phase(self, phase: LoopPhase) -> list[Node]:
        """Return the ordinary nodes of a phase."""
        return [n for n, each in self.phases.items() if each == phase and role_of(n) is None]


def entry_condition(form: LoopForm, conditions: Deadness, rules: RegionRules) -> Predicate:
    """Return the condition under which a loop is entered.

    Raises RegionRejected if a call, which waits for all inputs to be live, would be live in
    other runs than the results of the loop, or than an effect of its first iteration.
    """
    used = _used_enters(form.loop)
    variables = [enter for enter in used if not enter.attr("is_constant")]
    if not variables:
        raise region_rejected("form", "it has no loop variable")
    solver, first = conditions.solver, variables[0]
    condition = conditions.runs(first)
    differing = [
        enter
        for enter in used
        if solver.implies(condition, conditions.runs(enter)) is not True
        or not (enter.attr("is_constant") or solver.implies(conditions.runs(enter), condition))
    ]
    if not differing:
        return condition
    condition = conditions.formulas.all_of(map(conditions.runs, used))
    early = any(map(must_run_once, form.in_phase(LoopPhase.ALWAYS)))
    results = [
        leaving.output() for leaving in form.frame.exits if leaving.uses or leaving in rules.fetched
    ]
    if early or any(
        solver.equal(conditions.of_output(result), condition) is not True for result in results
    ):
        raise _nonuniform_entry(first, differing[0])
    return condition


def _used_enters(form: WhileLoop) -> list[Node]:
    """Return the Enters with consumers; a call does not wait for the inputs of others."""
    return [enter for enter in form.frame.enters if enter.uses]


def _nonuniform_entry(a: Node, b: Node) -> RegionRejected:
    text = f"{a.name} and {b.name} may differ in liveness"
    return region_rejected("entered apart", text, of=[a.name, b.name])


def loop_call(graph: Graph, form: LoopForm, name: str, rules: RegionRules) -> LoopCall:
    """Build the functions of a call. Raises RegionRejected if one cannot be written."""
    loop = form.loop
    inner_of: list[tuple[Output, tuple[Output, ...]]]
    inner_of = [(variable.initial, (variable.merge.output(),)) for variable in loop.variables]
    invariants: dict[Output, list[Output]] = {}
    for enter in loop.invariants:
        if enter.uses and not rules.copies_constant(enter.inputs[0].node):
            invariants.setdefault(enter.inputs[0], []).append(enter.output())
    inner_of += [(tensor, tuple(inner)) for tensor, inner in invariants.items()]
    operands, inner = tuple(tensor for tensor, _ in inner_of), tuple(each for _, each in inner_of)
    copied = tuple(each for each in loop.invariants if rules.copies_constant(each.inputs[0].node))
    writer = _LoopFunctionWriter(graph, form, inner, copied, rules.keep_devices)
    cond, cond_effects = writer.condition(f"{name}_cond")
    body, body_effects = writer.body(f"{name}_body")
    controls = tuple(_awaited(graph, form, copied))
    return LoopCall(operands, inner, copied, controls, cond, body, (*cond_effects, *body_effects))


def _awaited(graph: Graph, form: LoopForm, copied: Sequence[Node]) -> Iterable[Node]:
    """Return what a call waits for without reading it: before each Enter, and effects."""
    controls = dict.fromkeys(
        control for enter in _used_enters(form.loop) for control in enter.controls
    )
    roots = [form.loop.cond, *filter(has_effect, form.phases)]
    ordered = [enter for enter in copied if enter.inputs[0].node.controls]
    for enter in unread_effects(graph, form.phases, form.phases.__contains__, roots, ordered):
        source = enter.inputs[0].node
        controls.update(dict.fromkeys(source.controls if enter in copied else [source]))
    return controls


@dataclass(frozen=True, slots=True)
class _LoopFunctionWriter:
    graph: Graph
    form: LoopForm
    inner: tuple[tuple[Output, ...], ...]
    copied: tuple[Node, ...]
    keep_devices: bool

    def condition(self, name: str) -> tuple[Function, list[Node]]:
        """Return the condition function, and its effects: those of every iteration."""
        body, _ = self._begin(LoopPhase.ALWAYS)
        function = body.function(name, {"holds": body.value(self.form.loop.cond.inputs[0])})
        return function, body.awaited_effects

    def body(self, name: str) -> tuple[Function, list[Node]]:
        """Return the body function and its effects; raise RegionRejected if it repeats one."""
        body, names = self._begin(LoopPhase.BODY)
        updated = [variable.updated for variable in self.form.loop.variables]
        updated += [tensors[0] for tensors in self.inner[len(updated) :]]
        outputs = [body.value(tensor) for tensor in updated]
        for node in body.copied:
            if must_run_once(node) and self.form.phases.get(node) == LoopPhase.ALWAYS:
                text = f"the body needs {node.name}, which runs once, before the condition"
                raise region_rejected("effects", text, node=node.name)
        labels = [names.new(tensors[0], "out") for tensors in self.inner]
        return body.function(name, dict(zip(labels, outputs, strict=True))), body.awaited_effects

    def _begin(self, phase: LoopPhase) -> tuple[FunctionBodyWriter, ArgumentNames]:
        """Return a writer with the arguments and the effects of a phase."""
        phases = self.form.phases
        ordered = {node for node in self.form.ordered if phases.get(node) == phase}
        ordered.update(n for n in self.form.ordered if role_of(n) is Role.CONTROL_TRIGGER)
        body = FunctionBodyWriter(
            self.graph.functions, _switched_value, ordered, keep_devices=self.keep_devices
        )
        names = ArgumentNames(())
        for tensors in self.inner:
            dtype = tensors[0].dtype
            if dtype is None or dtype.is_ref:
                text = f"the type of {tensors[0].name} is {dtype or 'unknown'}"
                kind = "type" if dtype is None else "reference"
                raise region_rejected(kind, text, node=tensors[0].node.name)
            body.argument(names.new(tensors[0]), dtype.base, *tensors)
        for enter in self.copied:
            body.constant(enter.output(), enter.inputs[0].node)
        body.effects(node for node in self.form.in_phase(phase) if has_effect(node))
        return body, names


def functionalize_while(
    graph: Graph, form: LoopForm, call: LoopCall, name: str, rules: RegionRules
) -> tuple[Node, list[Node]]:
    """Replace a loop by a While; the Exits become Identities of its results.

    Return the While, and all new nodes in the outer frame.
    """
    graph.functions[call.cond.name] = call.cond
    graph.functions[call.body.name] = call.body
    frame = form.frame
    stateful = call.cond.definition.stateful or call.body.definition.stateful
    loop = graph.add(
        "While" if stateful else "StatelessWhile",
        *call.operands,
        name=name,
        controls=call.controls,
        device=form.loop.cond.device,
        T=base_dtypes(call.operands),
        cond=Func(call.cond.name),
        body=Func(call.body.name),
        parallel_iterations=frame.parallel_iterations,
        attrs=rules.call_attrs(tensors[0] for tensors in call.inner)
        | call_annotations((call.cond, call.body), graph.functions),
    )
    results = {
        tensor: loop.output(port) for port, inner in enumerate(call.inner) for tensor in inner
    }
    results.update((enter.output(), enter.inputs[0]) for enter in call.copied)
    tail = _LoopTail(graph, form, loop, results)
    tail.move()
    for node in frame.exits:
        result = tail.value(node.inputs[0])
        controls = [*tail.predecessors(node), *([] if result.node is loop else [loop])]
        graph.set_op(node, "Identity", {"T": node.attr("T")})
        graph.connect(node, [result], controls)
    staying = {*frame.exits, *tail.moved}
    removed = [*(node for node in form.phases if node not in staying), *frame.enters]
    graph.remove(*dict.fromkeys(removed))
    return loop, [loop, *frame.exits, *tail.moved, *tail.added]


class _LoopTail(SourceCopier):
    """Moves the nodes of the last iteration behind a loop.

    They read results of the loop; what is computed in every iteration is computed again from them.
    """

    def __init__(
        self, graph: Graph, form: LoopForm, loop: Node, results: dict[Output, Output]
    ) -> None:
        super().__init__(graph, _switched_value)
        self.form = form
        self.loop = self.copies[loop] = loop
        self.moved = dict.fromkeys(form.in_phase(LoopPhase.END))
        self.tensors.update(results)
        self.copies.update((node, node) for node in self.moved)

    def move(self) -> None:
        """Connect the nodes of the last iteration to the results."""
        for node in self.moved:
            controls = self.predecessors(node)
            inputs = [self.value(tensor) for tensor in node.inputs]
            self.graph.connect(node, inputs, [*controls, self.loop])

    def predecessors(self, node: Node) -> list[Node]:
        """Return the moved nodes that a node waits for, also through Switches and triggers."""
        sources = dict.fromkeys([*node.controls, *_switches_read(node)])
        todo = list(sources)
        for source in todo:
            if role_of(source) in (Role.SWITCH, Role.CONTROL_TRIGGER):
                new = [n for n in (*source.controls, *_switches_read(source)) if n not in sources]
                sources.update(dict.fromkeys(new))
                todo += dict.fromkeys(new)
        return [source for source in sources if source in self.moved]

    def controls(self, node: Node) -> Collection[Node]:
        """A copy waits for the loop."""
        return [self.loop]

    def clone(self, node: Node) -> Node:
        """Add a copy of a node behind the loop, without edges at first."""
        return self.copy(node, f"{node.name}/last", node.attrs, node.device)


def _switches_read(node: Node) -> list[Node]:
    return [tensor.node for tensor in node.inputs if role_of(tensor.node) is Role.SWITCH]


def functionalizable_loop(
    frame: Frame, order: Sequence[Node], library: Mapping[str, Function]
) -> LoopForm:
    """Recognize the loop of a frame, whose nodes `order` lists in topological order.

    Raises RegionRejected if it has another form.
    """
    loop = while_loop(frame)
    if loop is None:
        raise region_rejected("form", f"it has {len(frame.loop_conds)} LoopConds")
    phases = LoopPhases(loop.cond, order)
    for node in order:
        if role_of(node) is Role.SWITCH and not phases.is_tested(node):
            text = f"{node.name} belongs to a conditional in the loop"
            raise region_rejected("conditional", text, node=node.name)
    _require_variables(loop)
    _require_back_edges(order)
    for node, phase in phases.of.items():
        _require_phase(node, phase)
    form = LoopForm(loop, phases.of, frozenset(_ordered_in_loop(order)))
    _require_movable_end(form, library)
    _require_condition_first(form, order)
    return form


def _ordered_in_loop(order: Sequence[Node]) -> set[Node]:
    """Return the nodes that run once in an iteration, and what follows them in it."""
    ordered: set[Node] = set()
    for node in order:
        if back_edge_of(node) is not None:
            continue
        sources = node.predecessors
        if must_run_once(node) or not ordered.isdisjoint(sources):
            ordered.add(node)
    return ordered


def _require_movable_end(form: LoopForm, library: Mapping[str, Function]) -> None:
    """Raise RegionRejected if the last iteration draws, or reads a value that is computed once."""
    for node in form.in_phase(LoopPhase.END):
        if draws(node, library):
            text = f"{node.name} draws the random numbers of the last iteration"
            raise region_rejected("effects", text, node=node.name)
    last = [*form.in_phase(LoopPhase.END), *form.frame.exits]
    seen: set[Node] = set()
    todo = [_switched_value(tensor).node for node in last for tensor in node.inputs]
    for node in todo:
        if node in seen or role_of(node) is not None:
            continue
        seen.add(node)
        if form.phases.get(node) == LoopPhase.END:
            continue
        if must_run_once(node):
            text = f"{node.name} runs once in each iteration, and is read after the last"
            raise region_rejected("effects", text, node=node.name)
        todo += [_switched_value(tensor).node for tensor in node.inputs]


def _require_condition_first(form: LoopForm, order: Sequence[Node]) -> None:
    """Raise RegionRejected if a node of every iteration waits for an effect of only some.

    It would be in the condition function, which runs before that effect.
    """
    late: set[Node] = set()
    for node in order:
        if back_edge_of(node) is not None:
            continue
        is_partial = form.phases.get(node) != LoopPhase.ALWAYS
        sources = node.predecessors
        if not (is_partial and must_run_once(node)) and late.isdisjoint(sources):
            continue
        late.add(node)
        if not is_partial and role_of(node) is None:
            text = f"{node.name} runs in each iteration, after an effect that runs only in some"
            raise region_rejected("effects", text, node=node.name)


def _switched_value(tensor: Output) -> Output:
    """Return the tensor that a Switch or the LoopCond forwards.

    A conditional in the body may select by the predicate of the loop.
    """
    while role_of(tensor.node) in (Role.SWITCH, Role.LOOP_COND):
        tensor = tensor.node.inputs[0]
    return tensor


def _require_back_edges(order: Sequence[Node]) -> None:
    """Raise RegionRejected for a NextIteration whose value a node of the next iteration reads."""
    for node in order:
        if role_of(node) is not Role.NEXT_ITERATION:
            continue
        reader = next((use.node for use in node.uses if role_of(use.node) is not Role.MERGE), None)
        if reader is not None:
            text = f"{node.name} is read by {reader.name}, which is no Merge"
            raise region_rejected("form", text, node=node.name)


def _require_variables(loop: WhileLoop) -> None:
    for merge in loop.irregular_merges:
        text = f"{merge.name} merges something else than a loop variable"
        raise region_rejected("form", text, node=merge.name)
    for variable in loop.variables:
        merge, enter = variable.merge, variable.enter
        if merge.readers(1):
            text = f"the index output of {merge.name} is read"
            raise region_rejected("form", text, node=merge.name)
        if enter.attr("is_constant"):
            text = f"{enter.name} is constant, and starts a loop variable"
            raise region_rejected("form", text)
    for enter in loop.frame.enters:
        if enter.attr("is_constant"):
            continue
        readers = [use.node for use in enter.uses if role_of(use.node) is not Role.MERGE]
        if readers:
            reader = readers[0].name
            text = f"{reader} reads {enter.name}, which has a value only in the first iteration"
            raise region_rejected("form", text, node=reader)


_REQUIRED_PHASES: Final[dict[Role | None, LoopPhase]] = {
    Role.NEXT_ITERATION: LoopPhase.BODY,
    Role.EXIT: LoopPhase.END,
    Role.LOOP_COND: LoopPhase.ALWAYS,
}


def _require_phase(node: Node, phase: int) -> None:
    required = _REQUIRED_PHASES.get(role_of(node), phase)
    if phase != required or phase == LoopPhase.NEVER:
        runs = LoopPhase(phase).name.lower()  # as the JSON report of regions names it
        text = f"{node.name} runs in unexpected iterations ({runs})"
        raise region_rejected("form", text, node=node.name, runs=runs)
