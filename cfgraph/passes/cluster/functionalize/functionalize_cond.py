"""Turn a lowered conditional into a StatelessIf with one function per branch.

    x ──▶ Switch ──false──▶ … ──▶ Merge         StatelessIf(pred, x)
    pred ──▶ ┘  └──true──▶ … ──▶  ┘

A conditional consists of Merges whose two inputs are selected by one predicate. The nodes between
a Switch on the predicate and the next Merge belong to a branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.ir import registry
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.cluster.formation.grow import is_cheap_constant
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.rejection_reasons import not_functionalizable
from cfgraph.passes.cluster.functionalize.function_body import (
    ArgumentNames,
    FunctionBodyWriter,
    base_dtypes,
)

_BRANCH_NAMES: Final = ("else", "then")


def require_uniform_liveness(form: ConditionalRegion, liveness: LivenessRule) -> None:
    """Raise Refused unless a conditional is live just when all that it reads is."""
    (merge,) = form.merges
    inside, outside, waits = form.cone()
    for node in inside:
        if form.decided.sides[node] == BOTH_SIDES:
            raise not_functionalizable("form", f"{node.name} is behind both sides", node=node.name)
    wanted: list[Output | Node] = [form.decided.pred, *outside, *waits]
    for place in wanted:
        if not liveness.implies(merge.output(), place):
            text = f"{merge.name} may be live where {place.name} is dead"
            raise not_functionalizable("entered apart", text, of=[merge.name, place.name])
    if not any(liveness.same(merge.output(), place) for place in wanted):
        text = f"{merge.name} may be dead where all that it reads is live"
        raise not_functionalizable("entered apart", text, of=[merge.name])


def functionalize_cond(graph: Graph, form: ConditionalRegion, name: str, kept: set[Node]) -> Node:
    """Put a StatelessIf where a conditional was; its Merges hand on what it gives."""
    _, outside, waits = form.cone()
    items = [item for item in outside if not is_cheap_constant(item.node)]
    copied = [item for item in outside if is_cheap_constant(item.node)]
    # the call waits for what the constants that it copies wait for
    waits += [control for item in copied for control in item.node.controls]
    ports = [Output(merge, port) for merge in form.merges for port in _used_ports(merge, kept)]
    functions = [
        _branch_function(graph, form, f"{name}_{_BRANCH_NAMES[side]}", side, items, copied, ports)
        for side in (0, 1)
    ]
    graph.functions.update((function.name, function) for function in functions)
    attrs: dict[str, Any] = {
        "Tin": base_dtypes(items),
        "Tout": base_dtypes(ports),
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
        _forward_results(
            graph, merge, [place[Output(merge, port)] for port in _used_ports(merge, kept)], kept
        )
    return call


def _used_ports(merge: Node, kept: set[Node]) -> range:
    """The outputs of a Merge that are asked for."""
    return range(2 if merge in kept or merge.readers(1) else 1)


def _forward_results(graph: Graph, merge: Node, results: list[Output], kept: set[Node]) -> None:
    """Let a Merge be an Identity of what the call gives."""
    if len(results) > 1 and merge not in kept:
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
    items: list[Output],
    copied: list[Output],
    ports: list[Output],
) -> Function:
    body = FunctionBodyWriter(graph.functions, form.decided.through)
    names = ArgumentNames(())
    for item in items:
        dtype = item.dtype
        if dtype is None:
            raise not_functionalizable("type", f"the type of {item.name} is not known")
        body.argument(names.new(item), dtype.base, item)
    for item in copied:
        body.constant(item, item.node)
    outputs = {}
    for merge, port in ports:
        label = names.new(Output(merge, port), "out")
        if port:
            value = TensorValue(np.array(form.slot(merge, side), np.int32))
            outputs[label] = body.scratch.add(
                "Const", name=f"{label}_index", dtype=int32, value=value
            ).output()
        else:
            outputs[label] = body.take(form.value(merge, side))
    return body.function(name, outputs)


BOTH_SIDES = -1


@dataclass(slots=True, eq=False)
class PredicateSides:
    """What a predicate decides: its Switches, and for each node behind them on which side it is.

    `pred` is the predicate as the first Switch reads it; a Switch that reads its negation is in
    `negated`.
    """

    pred: Output
    switches: dict[Node, bool] = field(default_factory=dict)
    sides: dict[Node, int] = field(default_factory=dict)

    def side(self, item: Output) -> int | None:
        """The side that a tensor is on: 1 where the predicate holds; None for neither."""
        negated = self.switches.get(item.node)
        if negated is None:
            return self.sides.get(item.node)
        return 1 - item.port if negated else item.port

    def through(self, item: Output) -> Output:
        """What a tensor is in its branch: a Switch hands on what it reads."""
        while item.node in self.switches:
            item = item.node.inputs[0]
        return item


PredicatesByNode = Mapping[Node, Sequence[PredicateSides]]


class BranchCone(NamedTuple):
    """The nodes of branches, the tensors that they read from outside, and what they wait for."""

    inside: list[Node]
    outside: list[Output]
    waits: list[Node]


@dataclass(slots=True)
class ConditionalRegion:
    """Merges that one call stands for, and what decides them."""

    decided: PredicateSides
    merges: list[Node]

    def value(self, merge: Node, side: int) -> Output:
        """What a Merge gives on one side."""
        return merge.inputs[self.slot(merge, side)]

    def slot(self, merge: Node, side: int) -> int:
        """The input of a Merge that is live on one side."""
        return 0 if self.decided.side(merge.inputs[0]) == side else 1

    def cone(self) -> BranchCone:
        """The nodes of the branches, and what they read and wait for outside."""
        inside: dict[Node, None] = {}
        outside: dict[Output, None] = {}
        waits: dict[Node, None] = {}
        switches, sides = self.decided.switches, self.decided.sides
        todo: list[Output | Node] = [item for merge in self.merges for item in merge.inputs]
        for place in todo:
            node = place.node if isinstance(place, Output) else place
            if node in switches:
                data = node.inputs[0]
                todo += [data if isinstance(place, Output) else data.node, *node.controls]
            elif node in inside:
                continue
            elif node in sides:
                inside[node] = None
                todo += [*node.inputs, *node.controls]
            elif isinstance(place, Output):
                outside[place] = None
            else:
                waits[node] = None
        for merge in self.merges:
            waits.update(dict.fromkeys(merge.controls))
        return BranchCone(list(inside), list(outside), list(waits))


def predicate_sides(frame: Frame, order: Iterable[Node]) -> PredicatesByNode:
    """What the predicates of a frame decide, by node; that of the loop itself is left out."""
    guards = PathConditions()
    loops = {guards.source(cond.output())[0] for cond in frame.loop_conds}
    found: dict[Output, PredicateSides] = {}
    signs: dict[Output, bool] = {}
    members = set(frame.nodes)
    for node in order:
        if node not in members or role_of(node) is not Role.SWITCH or not _is_value_switch(node):
            continue
        source, negated = guards.source(node.inputs[1])
        if source in loops:
            continue
        one = found.setdefault(source, PredicateSides(node.inputs[1]))
        one.switches[node] = negated != signs.setdefault(source, negated)
    by_node: dict[Node, list[PredicateSides]] = {}
    for one in found.values():
        _mark_sides(one, members)
        for node in (*one.switches, *one.sides):
            by_node.setdefault(node, []).append(one)
    return by_node


def _is_value_switch(switch: Node) -> bool:
    dtype = switch.inputs[0].dtype
    return registry.output_count(switch) == 2 and dtype is not None and not dtype.is_ref


def _mark_sides(one: PredicateSides, members: set[Node]) -> None:
    """Find on which side the nodes are that lie behind the Switches."""
    todo: list[tuple[Node, int]] = []
    for switch in one.switches:
        todo += _reached_readers(one, switch, None, members)
    for node, side in todo:
        before = one.sides.get(node)
        now = side if before in (None, side) else BOTH_SIDES
        if now != before:
            one.sides[node] = now
            todo += _reached_readers(one, node, now, members)


def _reached_readers(
    one: PredicateSides, node: Node, side: int | None, members: set[Node]
) -> Iterator[tuple[Node, int]]:
    for reader, slot in node.uses:
        if reader not in members or role_of(reader) or (slot < 0 and side is None):
            continue
        found = one.side(reader.inputs[slot]) if side is None else side
        if found is not None:
            yield reader, found


def conditional_region(merge: Node, every: PredicatesByNode) -> ConditionalRegion:
    """What decides a Merge. Raises Refused where no one predicate does."""
    if len(merge.inputs) != 2 or merge.inputs[0].dtype is None or merge.inputs[0].dtype.is_ref:
        raise not_functionalizable("form", f"{merge.name} joins {len(merge.inputs)} tensors")
    for one in every.get(merge.inputs[0].node, ()):
        sides = [one.side(item) for item in merge.inputs]
        if sorted(side for side in sides if side is not None) == [0, 1]:
            return ConditionalRegion(one, [merge])
    raise not_functionalizable("form", f"no one predicate says which input of {merge.name} is live")
