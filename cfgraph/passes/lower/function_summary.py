"""Summary of a function for lowering: which arguments it forwards, and its effects.

An effect is a node that must run even if nothing reads it, before anything that waits for the
function: a control output, a stateful node, a call with effects. Random ops are not effects. In a
spare function only the control outputs must run, and the other effects keep their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.function_graph import ARG_OP, FunctionGraph
from cfgraph.ir.graph import CONTROL, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles, topological_order
from cfgraph.ops.families.constants import Identity
from cfgraph.ops.families.identity import IdentityN
from cfgraph.ops.opdef.node_effects import has_effect
from cfgraph.ops.opdef.op import is_a
from cfgraph.passes.lower.functional_node import FunctionalNode


@dataclass(frozen=True, slots=True, eq=False)
class BodySummary:
    """What is known of one function.

    `order` is its nodes, sources first. `passes` says which argument each output is, unchanged.
    `last` are the effects that no other effect comes after, each with the set of outputs (bits)
    that come after it anyway; `opening` are those that no other comes before. `doubtful` says that
    one of the last may be dead. `guarded` nodes stand behind a Switch or in a loop of the body.
    """

    order: tuple[Node, ...]
    functional_nodes: Mapping[Node, FunctionalNode]
    passes: tuple[int | None, ...]
    last: tuple[tuple[Node, int], ...]
    initial_effects: frozenset[Node]
    held: Mapping[Node, tuple[Node, ...]]
    may_be_dead: bool
    guarded: frozenset[Node]

    def members(self, function: FunctionGraph, outputs: int) -> tuple[Node, ...]:
        """The nodes that these outputs (bits) and the effects need, sources first."""
        todo = [node for node, _ in self.last]
        todo += [item.node for k, item in enumerate(function.returns) if outputs >> k & 1]
        needed: set[Node] = set()
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo.extend(item.node for item in node.inputs)
                todo.extend(node.controls)
        return tuple(node for node in self.order if node in needed)

    def arguments(self, function: FunctionGraph) -> set[int]:
        """The arguments that the function's first output depends on, or that its effects read."""
        readers = [item for node in self.members(function, 1) for item in node.inputs]
        sources = (item.node for item in (function.returns[0], *readers))
        return {node.attrs["index"] for node in sources if node.op == ARG_OP}


def summarize_body(
    function: FunctionGraph,
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, BodySummary],
) -> BodySummary:
    """The facts of a function, given those of the functions that it runs."""
    order = tuple(n for n in topological_order(function.graph).nodes if n.op != ARG_OP)
    effects = {node: None for node in order if is_effect(node, functional_nodes.get(node), known)}
    must = dict.fromkeys(function.control_returns)
    effects.update(must)
    guarded = downstream_of_primitives(order)
    if guarded:
        effects = dict.fromkeys(_effects_outside_loops(function, effects))
        must = dict.fromkeys(_effects_outside_loops(function, must))
    ordered = _EffectOrder(order, effects, functional_nodes)
    lasting = _EffectOrder(order, must, functional_nodes) if function.spare else ordered
    last = lasting.last(function.returns)
    switched = _downstream_of_switches(function, order) if guarded else frozenset()
    return BodySummary(
        order,
        functional_nodes,
        forwarded_arguments(function, functional_nodes, known),
        last,
        ordered.initial_effects(),
        ordered.held,
        any(node in switched for node, _ in last),
        guarded,
    )


def is_effect(
    node: Node, functional_node: FunctionalNode | None, known: Mapping[FunctionGraph, BodySummary]
) -> bool:
    """True if a node must run even if nobody reads it."""
    if functional_node is not None:
        return any(known[function].last for function in functional_node.functions)
    return has_effect(node)


def forwarded_arguments(
    function: FunctionGraph,
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, BodySummary],
) -> tuple[int | None, ...]:
    """Which argument each output is, followed through Identity, loops, branches and calls."""
    place = {node: index for index, node in enumerate(function.arguments)}
    found: dict[Output, int | None] = {}
    for start in function.returns:
        trail, here = [], start
        while here not in found:
            trail.append(here)
            if here.node in place:
                found[here] = place[here.node]
            elif (source := _forwarded_source(here, functional_nodes, known)) is not None:
                here = source
            else:
                found[here] = None
        for item in trail:
            found[item] = found[here]
    return tuple(found[item] for item in function.returns)


def _forwarded_source(
    output: Output,
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, BodySummary],
) -> Output | None:
    """The tensor that this one is, unchanged."""
    node, port = output
    construct = functional_nodes.get(node)
    if construct is not None:
        passes = {function: known[function].passes for function in construct.functions}
        slot = construct.passes(port, passes)
        return None if slot is None else node.inputs[slot]
    if not is_a(node, Identity, IdentityN):
        return None
    # a gradient of its own must not be passed by
    return None if "_gradient_op_type" in node.attrs else node.inputs[port]


def inputs_to_wait_for(
    order: tuple[Node, ...],
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, BodySummary],
) -> dict[Node, tuple[Node, ...]]:
    """The inputs that functional nodes with effects wait for, as they come after other effects."""
    effects = {node: None for node in order if is_effect(node, functional_nodes.get(node), known)}
    return _EffectOrder(order, effects, functional_nodes).held


def downstream_of_primitives(order: Iterable[Node]) -> frozenset[Node]:
    """The nodes behind a Switch, an Enter or a Recv: they may be dead, or in a loop."""
    roles, found = OpRoles(), set()
    for node in order:
        if (
            roles[node.op] in (Role.SWITCH, Role.ENTER, Role.RECV)
            or any(item.node in found for item in node.inputs)
            or any(control in found for control in node.controls)
        ):
            found.add(node)
    return frozenset(found)


def _effects_outside_loops(function: FunctionGraph, effects: Iterable[Node]) -> list[Node]:
    """The effects, those in a loop of the body replaced by the Exits of the outermost loop."""
    placed, found = frames(function.graph), []
    for node in effects:
        frame = placed.of[node]
        if frame.parent is None:
            found.append(node)
            continue
        while frame.parent is not None and frame.parent.parent is not None:
            frame = frame.parent
        found.extend(frame.exits)
    return found


def _downstream_of_switches(function: FunctionGraph, order: Iterable[Node]) -> frozenset[Node]:
    """The nodes behind a Switch that is no loop's: they may be dead."""
    placed, roles, found = frames(function.graph), OpRoles(), set()
    for node in order:
        inside = placed.of[node].parent is not None
        if (roles[node.op] is Role.SWITCH and not inside) or (
            any(item.node in found for item in node.inputs)
            or any(control in found for control in node.controls)
        ):
            found.add(node)
    return frozenset(found)


class _EffectOrder:
    """Which effects come before what, once the functional nodes are lowered.

    A lowered node does not wait for all of its inputs, so an order that comes from reading is lost
    in it. Where it has effects itself, `held` says which of its inputs it must wait for.
    """

    def __init__(
        self,
        order: tuple[Node, ...],
        effects: Collection[Node],
        functional_nodes: Collection[Node],
    ) -> None:
        self.order = order
        self.effects = effects
        self.functional_nodes = functional_nodes
        self.after: set[Node] = set()
        self.held: dict[Node, tuple[Node, ...]] = {}
        for node in order:
            self._place(node)

    def _place(self, node: Node) -> None:
        read = [item.node for item in node.inputs if self.follows_effect(item.node)]
        if node in self.functional_nodes:
            if node not in self.effects:
                read = []
            elif read:
                self.held[node] = tuple(dict.fromkeys(read))
        if read or any(self.follows_effect(control) for control in node.controls):
            self.after.add(node)

    def follows_effect(self, node: Node) -> bool:
        """True for an effect and for what comes after one."""
        return node in self.effects or node in self.after

    def initial_effects(self) -> frozenset[Node]:
        """The effects that no other comes before."""
        return frozenset(node for node in self.effects if node not in self.after)

    def last(self, returns: Iterable[Output]) -> tuple[tuple[Node, int], ...]:
        """The effects that no other comes after, each with the outputs (bits) that come after."""
        outputs: dict[Node, int] = {}
        for k, item in enumerate(returns):
            outputs[item.node] = outputs.get(item.node, 0) | 1 << k
        followed: set[Node] = set()
        for node in reversed(self.order):
            for reader, slot in node.uses:
                if (
                    slot != CONTROL
                    and reader in self.functional_nodes
                    and node not in self.waited(reader)
                ):
                    continue
                if reader in self.effects or reader in followed:
                    followed.add(node)
                if after := outputs.get(reader):
                    outputs[node] = outputs.get(node, 0) | after
        return tuple(
            (node, outputs.get(node, 0))
            for node in self.order
            if node in self.effects and node not in followed
        )

    def waited(self, functional_node: Node) -> tuple[Node, ...]:
        """The inputs that a functional node waits for before anything in it runs."""
        return self.held.get(functional_node, ())
