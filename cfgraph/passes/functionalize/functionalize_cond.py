"""Turn a lowered conditional into a StatelessIf with one function per branch.

    x ──▶ Switch ──false──▶ … ──▶ Merge         StatelessIf(pred, x)
    pred ──▶ ┘  └──true──▶ … ──▶  ┘

A conditional consists of Merges whose two inputs are selected by one predicate. The nodes between
a Switch on the predicate and the next Merge belong to a branch.

Merges of one predicate share a call unless that closes a cycle of dependencies. Of a row of n
conditionals each depends on all before it. Paths are transitive, so that one search, to or from the
last call, excludes all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.analysis.loops.cycle_graph import CycleGraph
from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.ir import registry
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.functionalize.function_body import (
    ArgumentNames,
    FunctionBodyWriter,
    base_dtypes,
    is_cheap_constant,
)
from cfgraph.passes.functionalize.report import not_functionalizable

_BRANCH_NAMES: Final = ("else", "then")


def require_uniform_liveness(form: ConditionalRegion, liveness: LivenessRule) -> None:
    """Raise NotFunctionalizable unless a conditional is live exactly when its inputs are."""
    (merge,) = form.merges
    inside, outside, controls = form.cone()
    for node in inside:
        if form.predicate_sides.sides[node] == BOTH_SIDES:
            text = f"{node.name} depends on both sides"
            raise not_functionalizable("form", text, node=node.name)
    inputs: list[Output | Node] = [form.predicate_sides.pred, *outside, *controls]
    for source in inputs:
        if not liveness.implies(merge.output(), source):
            text = f"{merge.name} may be live when {source.name} is dead"
            raise not_functionalizable("entered apart", text, of=[merge.name, source.name])
    if not any(liveness.equal(merge.output(), source) for source in inputs):
        text = f"{merge.name} may be dead when all of its inputs are live"
        raise not_functionalizable("entered apart", text, of=[merge.name])


def functionalize_cond(
    graph: Graph, form: ConditionalRegion, name: str, fetched: set[Node]
) -> Node:
    """Add a StatelessIf whose results the Merges of a conditional forward from then on."""
    _, outside, controls = form.cone()
    arguments = [tensor for tensor in outside if not is_cheap_constant(tensor.node)]
    copied = [tensor for tensor in outside if is_cheap_constant(tensor.node)]
    # a constant may be live only in some runs: the call takes its control inputs along
    controls += [control for tensor in copied for control in tensor.node.controls]
    ports = [Output(merge, port) for merge in form.merges for port in _used_ports(merge, fetched)]
    functions = [
        _branch_function(
            graph, form, f"{name}_{_BRANCH_NAMES[side]}", side, arguments, copied, ports
        )
        for side in (0, 1)
    ]
    graph.functions.update((function.name, function) for function in functions)
    attrs: dict[str, Any] = {
        "Tin": base_dtypes(arguments),
        "Tout": base_dtypes(ports),
        "then_branch": Func(functions[1].name),
        "else_branch": Func(functions[0].name),
    }
    first = form.merges[0]
    call = graph.add(
        "StatelessIf",
        form.predicate_sides.pred,
        *arguments,
        name=name,
        controls=controls,
        device=first.device,
        attrs=attrs,
    )
    result_of = {port: call.output(number) for number, port in enumerate(ports)}
    for merge in form.merges:
        results = [result_of[Output(merge, port)] for port in _used_ports(merge, fetched)]
        _forward_results(graph, merge, results, fetched)
    return call


def _used_ports(merge: Node, fetched: set[Node]) -> range:
    """Return the outputs of a Merge that are read or fetched."""
    return range(2 if merge in fetched or merge.readers(1) else 1)


def _forward_results(graph: Graph, merge: Node, results: list[Output], fetched: set[Node]) -> None:
    """Turn a Merge into an Identity of the results of the call."""
    if len(results) > 1 and merge not in fetched:
        graph.replace_uses(merge.output(1), results.pop())
    dtypes = base_dtypes(results)
    if len(results) == 1:
        graph.set_op(merge, "Identity", {"T": dtypes[0]})
    else:
        graph.set_op(merge, "IdentityN", {"T": dtypes})
    graph.connect(merge, results, [])


def _branch_function(
    graph: Graph,
    form: ConditionalRegion,
    name: str,
    side: int,
    arguments: list[Output],
    copied: list[Output],
    ports: list[Output],
) -> Function:
    body = FunctionBodyWriter(graph.functions, form.predicate_sides.value_in_branch)
    names = ArgumentNames(())
    for tensor in arguments:
        dtype = tensor.dtype
        if dtype is None:
            raise not_functionalizable("type", f"the type of {tensor.name} is unknown")
        body.argument(names.new(tensor), dtype.base, tensor)
    for tensor in copied:
        body.constant(tensor, tensor.node)
    outputs = {}
    for merge, port in ports:
        label = names.new(Output(merge, port), "out")
        if port:
            value = TensorValue(np.array(form.slot(merge, side), np.int32))
            outputs[label] = body.scratch.add(
                "Const", name=f"{label}_index", dtype=int32, value=value
            ).output()
        else:
            outputs[label] = body.output(form.value(merge, side))
    return body.function(name, outputs)


BOTH_SIDES = -1


@dataclass(slots=True, eq=False)
class PredicateSides:
    """Switches on one predicate, and the side of each node downstream of them.

    `pred` is the predicate as the first Switch reads it; `switches` maps each Switch to whether it
    reads the negation.
    """

    pred: Output
    switches: dict[Node, bool] = field(default_factory=dict)
    sides: dict[Node, int] = field(default_factory=dict)

    def side(self, tensor: Output) -> int | None:
        """Return the side of a tensor: 1 if live when the predicate is true, None if on neither."""
        negated = self.switches.get(tensor.node)
        if negated is None:
            return self.sides.get(tensor.node)
        return 1 - tensor.port if negated else tensor.port

    def value_in_branch(self, tensor: Output) -> Output:
        """Return the tensor outside the conditional that the Switches forward as this one."""
        while tensor.node in self.switches:
            tensor = tensor.node.inputs[0]
        return tensor


PredicatesByNode = Mapping[Node, Sequence[PredicateSides]]


class BranchCone(NamedTuple):
    """Nodes of the branches, tensors read from outside, and control inputs from outside."""

    inside: list[Node]
    outside: list[Output]
    controls: list[Node]


@dataclass(slots=True)
class ConditionalRegion:
    """Merges that become one call, and the predicate that selects their inputs."""

    predicate_sides: PredicateSides
    merges: list[Node]

    def value(self, merge: Node, side: int) -> Output:
        """Return the input of a Merge that is live on a side."""
        return merge.inputs[self.slot(merge, side)]

    def slot(self, merge: Node, side: int) -> int:
        """Return the index of the input of a Merge that is live on a side."""
        return 0 if self.predicate_sides.side(merge.inputs[0]) == side else 1

    def cone(self) -> BranchCone:
        """Return the nodes of the branches and their inputs."""
        inside: dict[Node, None] = {}
        outside: dict[Output, None] = {}
        controls: dict[Node, None] = {}
        switches, sides = self.predicate_sides.switches, self.predicate_sides.sides
        todo: list[Output | Node] = [tensor for merge in self.merges for tensor in merge.inputs]
        for source in todo:
            node = source.node if isinstance(source, Output) else source
            if node in switches:
                data = node.inputs[0]
                todo += [data if isinstance(source, Output) else data.node, *node.controls]
            elif node in inside:
                continue
            elif node in sides:
                inside[node] = None
                todo += [*node.inputs, *node.controls]
            elif isinstance(source, Output):
                outside[source] = None
            else:
                controls[node] = None
        for merge in self.merges:
            controls.update(dict.fromkeys(merge.controls))
        return BranchCone(list(inside), list(outside), list(controls))


def predicate_sides(frame: Frame, order: Iterable[Node]) -> PredicatesByNode:
    """Return the predicates that decide each node of a frame, except for the loop predicate.

    `order` lists the nodes of the frame in topological order.
    """
    conditions = PathConditions()
    loop_predicates = {conditions.source(cond.output())[0] for cond in frame.loop_conds}
    predicates: dict[Output, PredicateSides] = {}
    signs: dict[Output, bool] = {}
    members = set(frame.nodes)
    for node in order:
        if role_of(node) is not Role.SWITCH or not _is_value_switch(node):
            continue
        source, negated = conditions.source(node.inputs[1])
        if source in loop_predicates:
            continue
        predicate = predicates.setdefault(source, PredicateSides(node.inputs[1]))
        predicate.switches[node] = negated != signs.setdefault(source, negated)
    by_node: dict[Node, list[PredicateSides]] = {}
    for predicate in predicates.values():
        _mark_sides(predicate, members)
        for node in (*predicate.switches, *predicate.sides):
            by_node.setdefault(node, []).append(predicate)
    return by_node


def _is_value_switch(switch: Node) -> bool:
    dtype = switch.inputs[0].dtype
    return registry.output_count(switch) == 2 and dtype is not None and not dtype.is_ref


def _mark_sides(predicate: PredicateSides, members: set[Node]) -> None:
    """Propagate the sides of the Switches to the nodes downstream."""
    todo: list[tuple[Node, int]] = []
    for switch in predicate.switches:
        todo += _consumer_sides(predicate, switch, None, members)
    for node, side in todo:
        old = predicate.sides.get(node)
        new = side if old in (None, side) else BOTH_SIDES
        if new != old:
            predicate.sides[node] = new
            todo += _consumer_sides(predicate, node, new, members)


def _consumer_sides(
    predicate: PredicateSides, node: Node, side: int | None, members: set[Node]
) -> Iterator[tuple[Node, int]]:
    for consumer, slot in node.uses:
        if consumer not in members or role_of(consumer) or (slot < 0 and side is None):
            continue
        new = predicate.side(consumer.inputs[slot]) if side is None else side
        if new is not None:
            yield consumer, new


def conditional_region(merge: Node, predicates: PredicatesByNode) -> ConditionalRegion:
    """Return the region of a Merge. Raises NotFunctionalizable if no one predicate decides it."""
    if len(merge.inputs) != 2 or merge.inputs[0].dtype is None or merge.inputs[0].dtype.is_ref:
        text = f"{merge.name} merges {len(merge.inputs)} tensors"
        raise not_functionalizable("form", text)
    for predicate in predicates.get(merge.inputs[0].node, ()):
        sides = [predicate.side(tensor) for tensor in merge.inputs]
        if sorted(side for side in sides if side is not None) == [0, 1]:
            return ConditionalRegion(predicate, [merge])
    raise not_functionalizable("form", f"no single predicate decides the inputs of {merge.name}")


class SharedCalls:
    """The `If` calls to add for one predicate in one frame: Merges that can share a call do."""

    def __init__(self, liveness: LivenessRule, dependencies: CycleGraph) -> None:
        self.regions: list[ConditionalRegion] = []
        self._liveness = liveness
        self._dependencies = dependencies
        # bit k: a path leads from, or to, region k
        self._before: list[int] = []
        self._after: list[int] = []

    def add(self, form: ConditionalRegion) -> None:
        """Add a Merge to the first call that it is independent of, or to a new call."""
        (merge,) = form.merges
        before, after = self._order(merge)
        candidates = self._all() & ~(before | after)
        while candidates:
            number = (candidates & -candidates).bit_length() - 1
            if self._join(self.regions[number], merge):
                self._before[number] |= before
                self._after[number] |= after
                return
            candidates &= candidates - 1
        self.regions.append(form)
        self._before.append(before)
        self._after.append(after)

    def _all(self) -> int:
        return (1 << len(self.regions)) - 1

    def _order(self, merge: Node) -> tuple[int, int]:
        """Return calls before and after a Merge, from the last to one that is neither."""
        rank, vertex_of = self._dependencies.rank, self._dependencies.vertex_of
        before = after = 0
        current = vertex_of[merge]
        while candidates := self._all() & ~(before | after):
            number = candidates.bit_length() - 1
            vertex = vertex_of[self.regions[number].merges[0]]
            early, late = sorted((vertex, current), key=rank.__getitem__)
            if self._dependencies.indirect_path(early, late) is None:
                break
            if early == vertex:
                before |= self._before[number] | 1 << number
            else:
                after |= self._after[number] | 1 << number
        return before, after

    def _join(self, region: ConditionalRegion, merge: Node) -> bool:
        """Add a Merge to a call; return false if it is live elsewhere, or if a cycle closes."""
        first, vertex_of = region.merges[0], self._dependencies.vertex_of
        if not self._liveness.same_liveness(first, merge):
            return False
        if self._dependencies.merge(vertex_of[first], vertex_of[merge]) is None:
            return False
        region.merges.append(merge)
        return True
