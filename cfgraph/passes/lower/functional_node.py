"""Functional nodes: their kind, the scope to lower them in, and summaries of their functions.

A summary describes which arguments a function forwards, and its effects. An effect is a node that
must run even if nothing reads it, before anything that waits for the function: a control output, a
stateful node, a call with effects. Random ops are not effects. In a spare function only the control
outputs must run, and the other effects keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.attrs import Func, functions_in
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import ARG_OP, FunctionGraph, FunctionInstances
from cfgraph.ir.functions import CUSTOM_GRADIENT_ATTR, Function
from cfgraph.ir.graph import CONTROL, Node, Output
from cfgraph.ir.library import select_implementation
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import upstream
from cfgraph.ops.families.constants import Identity, IdentityN
from cfgraph.ops.opdef.facts import FunctionCalls
from cfgraph.ops.opdef.op import function_calls, has_effect, is_a
from cfgraph.ops.opdef.random_streams import GRAPH, LIVE, StreamScope, draws


@dataclass(frozen=True, slots=True, eq=False)
class FunctionalNode:
    """The functions of a functional node; inputs from `first_argument` on are their arguments.

    The functions of a conditional are in the order of its Switch's outputs: false, true.
    """

    kind: str
    functions: tuple[FunctionGraph, ...]
    first_argument: int

    @property
    def output_types(self) -> tuple[DType, ...]:
        """The types of the node's outputs, according to a branch or a loop's body."""
        return self.functions[-1].output_types

    def forwarded_input(
        self, port: int, forwarded: dict[FunctionGraph, tuple[int | None, ...]]
    ) -> int | None:
        """The input that an output always forwards unchanged, or None.

        `forwarded` maps each function to the arguments that its outputs forward.
        """
        if self.kind in ("while", "for"):
            body = self.functions[-1]
            offset = 1 if self.kind == "for" else 0
            return port + self.first_argument if forwarded[body][port] == port + offset else None
        indices = {forwarded[function][port] for function in self.functions}
        index = indices.pop()
        return None if indices or index is None else index + self.first_argument


def functional_kind(op: str, instances: FunctionInstances) -> str:
    """Kind of a functional op (`if`, `case`, `while`, `for`, `call`, …), or "" for other ops."""
    if op in instances.library:
        return "call"
    return function_calls(op).kind


def read_functional_node(node: Node, instances: FunctionInstances) -> FunctionalNode:
    """Read a functional node.

    TensorFlow calls the functions of a conditional or loop, and runs all of their stateful nodes.
    If the node is marked for lowering, it runs only the stateful nodes that outputs and control
    outputs of the functions depend on.

    Raises InvalidInput if a function does not exist or its signature does not match.
    """
    if node.op in instances.library:
        name = select_implementation(instances.library, node.op, node.device)
        return FunctionalNode("call", (instances.get(name, node.attrs),), 0)
    calls = function_calls(node.op)
    spare = calls.kind != "call" and bool(node.attrs.get("_lower_using_switch_merge"))
    functions = [
        instances.get(_selected(node, calls, func, instances), func.attrs, spare=spare)
        for key in calls.functions
        for func in functions_in(node.attr(key))
    ]
    if calls.kind == "if":
        functions.reverse()
    return FunctionalNode(calls.kind, tuple(functions), calls.first_argument)


def _selected(node: Node, calls: FunctionCalls, func: Func, instances: FunctionInstances) -> str:
    """The function to run: TensorFlow selects an implementation for calls only."""
    if calls.kind != "call":
        return func.name
    return select_implementation(instances.library, func.name, node.device)


@dataclass(frozen=True, slots=True, eq=False)
class InlineScope:
    """Scope of inlined nodes: the graph itself, a branch, the condition or body of a loop, a call.

    pivot: returns the node that is live exactly when the scope runs, or None if it always runs.
    always_live: nodes that are live even in the iteration in which a loop's body does not run, its
        constant Enters. A node that reads nothing else depends on the pivot.
    start_after: control inputs of the nodes of the scope without inner sources.
    orders_effects: initial effects also depend on the pivot.
    streams: the call sites and iterations of what is inlined, for random nodes.
    """

    prefix: str = ""
    device: str = ""
    pivot: Callable[[], Node | None] = lambda: None
    always_live: frozenset[Node] | set[Node] = frozenset()
    start_after: Sequence[Node] = ()
    orders_effects: bool = False
    streams: StreamScope = GRAPH


@dataclass(slots=True, eq=False)
class CallSite:
    """A functional node to be lowered, with its inputs, its control inputs, and its scope.

    is_top_level: the node is in the graph itself, where its name must continue to exist.
    is_guarded: the node is downstream of primitives, so that only its inputs decide when it runs.
    ordering_inputs: inputs that control-dependent readers of the node have to wait for.
    gate: a node that all inputs pass, live exactly when the functional node would be.
    """

    node: Node
    functional_node: FunctionalNode
    scope: InlineScope
    is_top_level: bool
    is_guarded: bool
    inputs: tuple[Output, ...] = ()
    controls: tuple[Node, ...] = ()
    ordering_inputs: tuple[Node, ...] = ()
    gate: Node | None = field(default=None)

    @property
    def arguments(self) -> tuple[Output, ...]:
        """The inputs that are arguments of the functions."""
        return self.inputs[self.functional_node.first_argument :]

    def pivot(self) -> Node | None:
        """The node that is live exactly when this one would run, or None if it always runs."""
        return self.gate or self.scope.pivot()

    def streams(self, label: str = "", *, is_loop: bool = False) -> StreamScope:
        """The call sites of random nodes in a function of the node, from the graph inward."""
        return GRAPH.inside(self.node, label, LIVE if is_loop else None)

    @property
    def always_live(self) -> frozenset[Node] | set[Node]:
        """The nodes that are live even when this one would not run."""
        return frozenset() if self.gate else self.scope.always_live

    def edge_controls(self, *inputs: Output) -> tuple[Node, ...]:
        """Control inputs of a node at the edge of the site, which reads `inputs` from outside."""
        if self.controls or not all(x.node in self.always_live for x in inputs):
            return self.controls
        pivot = self.pivot()
        return () if pivot is None else (pivot,)


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSummary:
    """Summary of one function.

    order: its nodes, sources first.
    forwarded: for each output the argument that it forwards unchanged, or None.
    final_effects: the effects that no other effect follows, each with a bit mask of the outputs
        that depend on it.
    initial_effects: the effects that no other effect precedes.
    awaited_inputs: for a functional node with effects, the inputs that it must wait for.
    may_be_dead: one of the final effects may be dead.
    guarded_nodes: the nodes downstream of a Switch or in a loop of the body.
    drawing: its random nodes, and calls of functions with one, each with the loops around it.
    """

    order: tuple[Node, ...]
    functional_nodes: Mapping[Node, FunctionalNode]
    forwarded: tuple[int | None, ...]
    final_effects: tuple[tuple[Node, int], ...]
    initial_effects: frozenset[Node]
    awaited_inputs: Mapping[Node, tuple[Node, ...]]
    may_be_dead: bool
    guarded_nodes: frozenset[Node]
    drawing: Mapping[Node, int]

    def members(self, function: FunctionGraph, outputs: int) -> tuple[Node, ...]:
        """The nodes that some outputs (a bit mask) and the effects depend on, sources first."""
        roots = [node for node, _ in self.final_effects]
        roots += [x.node for k, x in enumerate(function.returns) if outputs >> k & 1]
        needed = upstream(roots)
        return tuple(node for node in self.order if node in needed)

    def used_arguments(self, function: FunctionGraph) -> set[int]:
        """The arguments that the first output depends on, or that effects read."""
        readers = [x for node in self.members(function, 1) for x in node.inputs]
        sources = (x.node for x in (function.returns[0], *readers))
        return {node.attrs["index"] for node in sources if node.op == ARG_OP}


def summarize_function(
    function: FunctionGraph,
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, FunctionSummary],
    library: Mapping[str, Function],
) -> FunctionSummary:
    """Summarize a function; `known` has the summaries of the functions that it calls."""
    graph_frames = frames(function.graph)
    order = tuple([node for node in graph_frames.order if node.op != ARG_OP])
    effects = {node: None for node in order if is_effect(node, functional_nodes.get(node), known)}
    required = dict.fromkeys(function.control_returns)
    effects.update(required)
    guarded_nodes = downstream_of_primitives(order)
    if guarded_nodes:
        effects = dict.fromkeys(_effects_outside_loops(function, effects))
        required = dict.fromkeys(_effects_outside_loops(function, required))
    effect_order = _EffectOrder(order, effects, functional_nodes)
    required_order = (
        _EffectOrder(order, required, functional_nodes) if function.spare else effect_order
    )
    final_effects = required_order.final_effects(function.returns)
    switched = _downstream_of_switches(function, order) if guarded_nodes else frozenset()
    return FunctionSummary(
        order,
        functional_nodes,
        forwarded_arguments(function, functional_nodes, known),
        final_effects,
        effect_order.initial_effects(),
        effect_order.awaited_inputs,
        any(node in switched for node, _ in final_effects),
        guarded_nodes,
        {
            node: graph_frames.of[node].depth
            for node in order
            if _draws(node, functional_nodes.get(node), known, library)
        },
    )


def _draws(
    node: Node,
    functional_node: FunctionalNode | None,
    known: Mapping[FunctionGraph, FunctionSummary],
    library: Mapping[str, Function],
) -> bool:
    if functional_node is not None:
        return any(known[function].drawing for function in functional_node.functions)
    return draws(node, library)


def is_effect(
    node: Node,
    functional_node: FunctionalNode | None,
    known: Mapping[FunctionGraph, FunctionSummary],
) -> bool:
    """True if a node must run even if nothing reads it."""
    if functional_node is not None:
        return any(known[function].final_effects for function in functional_node.functions)
    return has_effect(node)


def forwarded_arguments(
    function: FunctionGraph,
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, FunctionSummary],
) -> tuple[int | None, ...]:
    """The argument that each output forwards through Identity, loops, and calls, if any.

    Of a spare function only the effects run that an output waits for, so that a node that waits for
    another, or that has effects, forwards nothing.
    """

    def is_awaited(node: Node) -> bool:
        return bool(node.controls) or is_effect(node, functional_nodes.get(node), known)

    argument_index = {node: index for index, node in enumerate(function.arguments)}
    forwarded: dict[Output, int | None] = {}
    for start in function.returns:
        trail, current = [], start
        while current not in forwarded:
            trail.append(current)
            if current.node in argument_index:
                forwarded[current] = argument_index[current.node]
                break
            source = _forwarded_source(current, functional_nodes, known)
            if source is None or (function.spare and is_awaited(current.node)):
                forwarded[current] = None
            else:
                current = source
        for x in trail:
            forwarded[x] = forwarded[current]
    return tuple(forwarded[x] for x in function.returns)


def _forwarded_source(
    output: Output,
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, FunctionSummary],
) -> Output | None:
    """The tensor that this one forwards unchanged, or None."""
    node, port = output
    functional_node = functional_nodes.get(node)
    if functional_node is not None:
        forwarded = {function: known[function].forwarded for function in functional_node.functions}
        slot = functional_node.forwarded_input(port, forwarded)
        return None if slot is None else node.inputs[slot]
    if not is_a(node, Identity, IdentityN):
        return None
    # a node with a custom gradient must not be bypassed
    return None if CUSTOM_GRADIENT_ATTR in node.attrs else node.inputs[port]


def inputs_to_wait_for(
    order: tuple[Node, ...],
    functional_nodes: Mapping[Node, FunctionalNode],
    known: Mapping[FunctionGraph, FunctionSummary],
) -> dict[Node, tuple[Node, ...]]:
    """For functional nodes with effects, the inputs that follow other effects: to be waited for."""
    effects = {node: None for node in order if is_effect(node, functional_nodes.get(node), known)}
    return _EffectOrder(order, effects, functional_nodes).awaited_inputs


_PRIMITIVES: Final = (Role.SWITCH, Role.ENTER, Role.RECV)


def downstream_of_primitives(order: Collection[Node]) -> frozenset[Node]:
    """The nodes downstream of a Switch, an Enter or a Recv: they may be dead, or in a loop."""
    starts = {op for op in {node.op for node in order} if ROLES[op] in _PRIMITIVES}
    downstream: set[Node] = set()
    for node in order if starts else ():
        if (
            node.op in starts
            or any(x.node in downstream for x in node.inputs)
            or any(control in downstream for control in node.controls)
        ):
            downstream.add(node)
    return frozenset(downstream)


def _effects_outside_loops(function: FunctionGraph, effects: Iterable[Node]) -> list[Node]:
    """The effects, with each one in a loop replaced by the Exits of the outermost loop."""
    frame_of, outside = frames(function.graph).of, []
    for node in effects:
        loops = frame_of[node].loops
        outside.extend(loops[0].exits if loops else [node])
    return outside


def _downstream_of_switches(function: FunctionGraph, order: Iterable[Node]) -> frozenset[Node]:
    """The nodes downstream of a Switch outside loops: they may be dead."""
    frame_of, downstream = frames(function.graph).of, set()
    for node in order:
        in_loop = frame_of[node].parent is not None
        if (ROLES[node.op] is Role.SWITCH and not in_loop) or (
            any(x.node in downstream for x in node.inputs)
            or any(control in downstream for control in node.controls)
        ):
            downstream.add(node)
    return frozenset(downstream)


class _EffectOrder:
    """The order of effects and their followers once the functional nodes are lowered.

    A lowered node does not wait for all of its inputs, so that an order implied by reading an input
    is lost. `awaited_inputs` restores it: the inputs that a functional node with effects waits for.
    """

    def __init__(
        self,
        order: tuple[Node, ...],
        effects: Collection[Node],
        functional_nodes: Collection[Node],
    ) -> None:
        self._order = order
        self._effects = effects
        self._functional_nodes = functional_nodes
        self._followers: set[Node] = set()
        self.awaited_inputs: dict[Node, tuple[Node, ...]] = {}
        for node in order if effects else ():
            self._add(node)

    def _add(self, node: Node) -> None:
        read = [x.node for x in node.inputs if self.follows_effect(x.node)]
        if node in self._functional_nodes:
            if node not in self._effects:
                read = []
            elif read:
                self.awaited_inputs[node] = tuple(dict.fromkeys(read))
        if read or any(self.follows_effect(control) for control in node.controls):
            self._followers.add(node)

    def follows_effect(self, node: Node) -> bool:
        """True for a node that has side effects or depends on a node that has them."""
        return node in self._effects or node in self._followers

    def initial_effects(self) -> frozenset[Node]:
        """The effects that no other effect precedes."""
        return frozenset(node for node in self._effects if node not in self._followers)

    def final_effects(self, returns: Iterable[Output]) -> tuple[tuple[Node, int], ...]:
        """The effects that no other effect follows, each with the outputs (bits) that follow it."""
        if not self._effects:
            return ()
        outputs: dict[Node, int] = {}
        for k, x in enumerate(returns):
            outputs[x.node] = outputs.get(x.node, 0) | 1 << k
        followed: set[Node] = set()
        for node in reversed(self._order):
            for reader, slot in node.uses:
                if (
                    slot != CONTROL
                    and reader in self._functional_nodes
                    and node not in self.awaited_by(reader)
                ):
                    continue
                if reader in self._effects or reader in followed:
                    followed.add(node)
                if after := outputs.get(reader):
                    outputs[node] = outputs.get(node, 0) | after
        return tuple(
            (node, outputs.get(node, 0))
            for node in self._order
            if node in self._effects and node not in followed
        )

    def awaited_by(self, functional_node: Node) -> tuple[Node, ...]:
        """The inputs that a functional node waits for before any of its nodes runs."""
        return self.awaited_inputs.get(functional_node, ())
