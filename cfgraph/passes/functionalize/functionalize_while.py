"""Turn a lowered loop into a StatelessWhile with a condition function and a body function.

    Enter ──▶ Merge ──▶ condition ──▶ LoopCond
                ▲  └──▶ Switch ──false──▶ Exit
                │         └────true────▶ body ──▶ NextIteration ─┐
                └────────────────────────────────────────────────┘

Each node of the loop runs in every iteration, in all iterations but the last (body), or only in the
last. A loop with a node that depends on both the body and the last iteration, and thus never runs,
stays in lowered form.

Loops are functionalized innermost first, over one analysis of the graph: a functionalized loop is a
call in its outer frame. All that changes there are the call and the Exits, which are Identities of
its results, so that the outer loop can follow without another analysis."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.analysis.loops.frames import Frame, Frames, nodes_by_frame
from cfgraph.analysis.loops.while_loop import WhileLoop, exit_switch, switch_data, while_loop
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
from cfgraph.ir.traversal import topological_order
from cfgraph.ops.opdef.evaluation import constant_arguments, loop_invariant_arguments
from cfgraph.ops.opdef.op import role_of, strip_identities
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.functionalize.function_body import (
    ArgumentNames,
    FunctionBodyWriter,
    base_dtypes,
    is_cheap_constant,
)
from cfgraph.passes.functionalize.report import NotFunctionalizable, not_functionalizable


@dataclass(frozen=True, slots=True)
class LoopCall:
    """Operands and functions of the call that replaces a loop.

    For each operand, `inner` contains the outputs that are equal to it inside the loop: the output
    of a Merge, or the outputs of constant Enters. `copied` are the Enters of constants that both
    functions contain.
    """

    operands: tuple[Output, ...]
    inner: tuple[tuple[Output, ...], ...]
    copied: tuple[Node, ...]
    cond: Function
    body: Function


def require_uniform_entry(form: WhileLoop, liveness: LivenessRule) -> None:
    """Raise NotFunctionalizable unless all inputs of a loop have the same liveness."""
    variables = list(dict.fromkeys(_entry_values(form, constant=False)))
    invariants = list(dict.fromkeys(_entry_values(form, constant=True)))
    if not variables:
        raise not_functionalizable("form", "it has no loop variable")
    first = variables[0]
    for source in variables[1:]:
        if not liveness.equal(first, source):
            raise _nonuniform_entry(first, source)
    for source in invariants:
        if not liveness.implies(first, source):
            raise _nonuniform_entry(first, source)


def _entry_values(form: WhileLoop, *, constant: bool) -> Iterator[Output | Node]:
    for enter in _used_enters(form):
        if bool(enter.attr("is_constant")) is constant:
            yield from enter.inputs
            yield from enter.controls


def _used_enters(form: WhileLoop) -> list[Node]:
    """Return the Enters with consumers; a call does not wait for the inputs of others."""
    return [enter for enter in form.frame.enters if enter.uses]


def _nonuniform_entry(a: Output | Node, b: Output | Node) -> NotFunctionalizable:
    text = f"{a.name} and {b.name} may differ in liveness"
    return not_functionalizable("entered apart", text, of=[a.name, b.name])


def loop_call(graph: Graph, form: WhileLoop, name: str) -> LoopCall:
    """Build the functions of a call. Raises NotFunctionalizable for a tensor of unknown type."""
    inner_of: list[tuple[Output, tuple[Output, ...]]]
    inner_of = [(variable.initial, (variable.merge.output(),)) for variable in form.variables]
    invariants: dict[Output, list[Output]] = {}
    for enter in form.invariants:
        if enter.uses and not is_cheap_constant(enter.inputs[0].node):
            invariants.setdefault(enter.inputs[0], []).append(enter.output())
    inner_of += [(tensor, tuple(inner)) for tensor, inner in invariants.items()]
    operands, inner = tuple(tensor for tensor, _ in inner_of), tuple(each for _, each in inner_of)
    copied = tuple(node for node in form.invariants if is_cheap_constant(node.inputs[0].node))
    cond = _loop_function(graph, form, f"{name}_cond", inner, copied, condition=True)
    body = _loop_function(graph, form, f"{name}_body", inner, copied, condition=False)
    return LoopCall(operands, inner, copied, cond, body)


def _loop_function(
    graph: Graph,
    form: WhileLoop,
    name: str,
    inner: tuple[tuple[Output, ...], ...],
    copied: tuple[Node, ...],
    *,
    condition: bool,
) -> Function:
    body = FunctionBodyWriter(graph.functions, _switched_value)
    names = ArgumentNames(())
    for tensors in inner:
        dtype = tensors[0].dtype
        if dtype is None:
            raise not_functionalizable("type", f"the type of {tensors[0].name} is unknown")
        body.argument(names.new(tensors[0]), dtype.base, *tensors)
    for enter in copied:
        body.constant(enter.output(), enter.inputs[0].node)
    if condition:
        return body.function(name, {"holds": body.output(form.cond.inputs[0])})
    updated = [variable.updated for variable in form.variables]
    updated += [tensors[0] for tensors in inner[len(updated) :]]
    outputs = [body.output(tensor) for tensor in updated]
    labels = [names.new(tensors[0], "out") for tensors in inner]
    return body.function(name, dict(zip(labels, outputs, strict=True)))


def require_static_shapes(known: FunctionInstances, call: LoopCall, shapes: StaticShapes) -> None:
    """Raise NotFunctionalizable if a shape, or a value that XLA needs as a constant, changes."""
    new = {call.cond.name: call.cond, call.body.name: call.body}
    instances = known.extended(new)
    cond, body = (instances.get(function.name, {}) for function in (call.cond, call.body))
    is_invariant = loop_invariant_arguments(body)
    for function in (cond, body):
        for index in sorted(constant_arguments(function, instances)):
            if not is_invariant[index]:
                text = f"XLA needs {call.operands[index].name} as a constant; the loop changes it"
                raise not_functionalizable("constant varies", text)
    _require_invariant_shapes(call, body, [shapes[tensor] for tensor in call.operands])


def _require_invariant_shapes(call: LoopCall, body: FunctionGraph, initial: list[Shape]) -> None:
    fed = {
        argument.output().name: shape
        for argument, shape in zip(body.arguments, initial, strict=True)
    }
    inferred = infer_shapes(body.graph, fed)
    for index, (shape, updated) in enumerate(zip(initial, body.returns, strict=True)):
        try:
            shape.merge(inferred[updated])
        except ValueError:
            name, new = call.inner[index][0].name, inferred[updated]
            text = f"the shape of {name} changes from {shape} to {new}"
            raise not_functionalizable("shape changes", text) from None


def functionalize_while(graph: Graph, form: WhileLoop, call: LoopCall, name: str) -> Node:
    """Replace a loop by a StatelessWhile; the Exits become Identities of its results."""
    graph.functions[call.cond.name] = call.cond
    graph.functions[call.body.name] = call.body
    frame = form.frame
    loop = graph.add(
        "StatelessWhile",
        *call.operands,
        name=name,
        controls=dict.fromkeys(
            control for enter in _used_enters(form) for control in enter.controls
        ),
        device=form.cond.device,
        T=base_dtypes(call.operands),
        cond=Func(call.cond.name),
        body=Func(call.body.name),
        parallel_iterations=frame.parallel_iterations,
    )
    results = {
        tensor: loop.output(port) for port, inner in enumerate(call.inner) for tensor in inner
    }
    results.update((enter.output(), enter.inputs[0]) for enter in call.copied)
    merges = {variable.merge for variable in form.variables}
    sources = {node: _exit_source(node, merges) for node in frame.exits}
    for node, source in sources.items():
        dtype = node.attr("T")
        node.op, node.attrs, node.origin = "Identity", {"T": dtype}, None
        result = results[source.output()]
        graph.connect(node, [result], [] if result.node is loop else [loop])
    removed = [*(node for node in frame.nodes if node not in sources), *frame.enters]
    graph.remove(*dict.fromkeys(removed))
    return loop


# phases of a loop: the iterations in which a node runs; the JSON report of regions uses these words
EVERY_ITERATION: Final = "always"
BODY_ITERATIONS: Final = "body"
LAST_ITERATION: Final = "end"
NO_ITERATION: Final = "never"


def functionalizable_loop(frame: Frame, order: Sequence[Node]) -> WhileLoop:
    """Recognize the loop of a frame, whose nodes `order` lists in topological order.

    Raises NotFunctionalizable if it has another form.
    """
    loop = while_loop(frame)
    if loop is None:
        raise not_functionalizable("form", f"it has {len(frame.loop_conds)} LoopConds")
    phases = _iteration_phases(order, loop.cond)
    _require_variables(loop)
    for node, phase in phases.items():
        _require_phase(node, phase)
    merges = {variable.merge for variable in loop.variables}
    for node in frame.exits:
        _exit_source(node, merges)
    return loop


def _switched_value(tensor: Output) -> Output:
    """Return the tensor that a Switch forwards."""
    while role_of(tensor.node) is Role.SWITCH:
        tensor = tensor.node.inputs[0]
    return tensor


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
        readers = [use.node for use in enter.uses if role_of(use.node) is not Role.MERGE]
        if readers:
            reader = readers[0].name
            text = f"{reader} reads {enter.name}, which has a value only in the first iteration"
            raise not_functionalizable("form", text, node=reader)


def _iteration_phases(order: Sequence[Node], cond: Node) -> dict[Node, str]:
    """Return the iterations in which each node of a loop runs."""
    members = set(order)
    predicates = {strip_identities(cond.inputs[0]), cond.output()}
    phases: dict[Node, str] = {}

    def phase_of_output(tensor: Output) -> str:
        if tensor.node not in members:
            return EVERY_ITERATION
        phase = phases.get(tensor.node, EVERY_ITERATION)
        if role_of(tensor.node) is not Role.SWITCH:
            return phase
        return _common_phase(phase, (LAST_ITERATION, BODY_ITERATIONS)[tensor.port])

    for node in order:
        kind = role_of(node)
        if kind in (Role.MERGE, Role.CONTROL_TRIGGER):
            phases[node] = EVERY_ITERATION
            continue
        if kind is Role.SWITCH and not (
            len(node.inputs) == 2 and strip_identities(node.inputs[1]) in predicates
        ):
            text = f"{node.name} belongs to a conditional in the loop"
            raise not_functionalizable("conditional", text, node=node.name)
        phase = EVERY_ITERATION
        for tensor in node.inputs:
            phase = _common_phase(phase, phase_of_output(tensor))
        for control in node.controls:
            phase = _common_phase(phase, phases.get(control, EVERY_ITERATION))
        phases[node] = phase
    return phases


def _common_phase(a: str, b: str) -> str:
    if EVERY_ITERATION in (a, b):
        return b if a == EVERY_ITERATION else a
    return a if a == b else NO_ITERATION


_REQUIRED_PHASES: Final[dict[Role | None, str]] = {
    Role.NEXT_ITERATION: BODY_ITERATIONS,
    Role.EXIT: LAST_ITERATION,
    Role.LOOP_COND: EVERY_ITERATION,
}


def _require_phase(node: Node, phase: str) -> None:
    required = _REQUIRED_PHASES.get(role_of(node), phase)
    if phase != required or phase == NO_ITERATION:
        text = f"{node.name} runs in unexpected iterations ({phase})"
        raise not_functionalizable("form", text, node=node.name, runs=phase)


def _exit_source(node: Node, merges: Collection[Node]) -> Node:
    """Return the Merge or constant Enter whose value an Exit forwards."""
    switch = exit_switch(node)
    if switch is not None:
        source = switch_data(switch)
        if role_of(source) is Role.ENTER or source in merges:
            return source
    text = f"{node.name} forwards a value that is computed after the last iteration"
    raise not_functionalizable("form", text, node=node.name)


class OpenLoops:
    """The loops of a graph; `order` has the nodes of each frame in topological order."""

    def __init__(self, graph: Graph, frames: Frames) -> None:
        self.order: dict[Frame, Sequence[Node]] = dict(nodes_by_frame(frames))
        self._graph = graph
        self._frames = frames
        self._loops = frames.all[1:]
        self._inner = Counter(frame.parent for frame in self._loops)
        self._number = {frame: number for number, frame in enumerate(self._loops)}
        self._outer: list[Frame] = []
        self._added: defaultdict[Frame, list[Node]] = defaultdict(list)
        self._position = {node: position for position, node in enumerate(graph)}

    def innermost(self) -> Iterator[Frame]:
        """Yield the loops without loops in them; a loop follows when all in it were closed."""
        level = [frame for frame in self._loops if not self._inner[frame]]
        while level:
            yield from level
            level, self._outer = sorted(self._outer, key=self._number.__getitem__), []

    def close(self, frame: Frame, call: Node) -> None:
        """Record the call that a loop became: it runs in the outer frame, as its Exits do."""
        parent = frame.parent
        assert parent is not None
        new = [*frame.exits, call]
        self._frames.of.update(dict.fromkeys(new, parent))
        self._frames.of_outputs.update(dict.fromkeys(new, parent))
        self._position[call] = len(self._position)
        self._added[parent] += new
        self._inner[parent] -= 1
        if not self._inner[parent] and parent.parent is not None:
            self._outer.append(parent)
            self._list_nodes(parent)

    def _list_nodes(self, frame: Frame) -> None:
        """List the nodes of a frame again, after the loops in it became calls."""
        nodes = [*frame.nodes, *self._added.pop(frame)]
        present = [node for node in nodes if self._graph.nodes.get(node.name) is node]
        frame.nodes = sorted(present, key=self._position.__getitem__)
        self.order[frame] = topological_order(frame.nodes).nodes
