"""Loop unrolling: a loop whose trip count is static and small becomes a straight line.

    i ─▶ Enter ─▶ Merge ─▶ Switch ─▶ Exit ─▶ y           i ─▶ body ─▶ body ─▶ y
                    └─ NextIteration ◀─ body

Iteration k is a copy of the nodes that run in it: each Merge is the value that iteration k - 1
passed on, each Switch of the loop the side that it takes. What the side that is not taken feeds is
dead, and is not copied. All values that enter must be live under one condition, which is then the
condition of every copy and of the result. With fewer iterations in parallel than the loop has, the
effects of an iteration wait for those of the last one that must have ended.

A loop that becomes functional first, and then calls of its body, would do for most, but of the
loops in recorded graphs 334 would remain instead of 319. The rules fold a test like `and(i < n,
true)` in a graph before they fold it in functions, a limit that an unrolled loop computes is not
known through the Identity that waits for that loop, and a conditional around a counter is decided
in a graph only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import numpy as np

from cfgraph.analysis.effects import has_flow
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import FrameNames
from cfgraph.analysis.loops.while_loop import (
    LoopPhase,
    LoopPhases,
    WhileLoop,
    static_trip_count,
    while_loop,
)
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import reachable
from cfgraph.limits import check_deadline, current_limits
from cfgraph.ops.opdef.op import has_effect, lookup, role_of
from cfgraph.ops.opdef.random_streams import StreamScope, draws
from cfgraph.passes.lower.lower import drop_dangling_colocation, remove_unread, restore_order
from cfgraph.passes.node_copier import NodeCopier
from cfgraph.passes.optimize.calls import named_state
from cfgraph.passes.optimize.rewriting import KeptLoop, RewriteContext

RULE: Final = "unroll"
# nodes that an iteration replaces by their inputs
_FORWARDED: Final = (Role.MERGE, Role.SWITCH, Role.NEXT_ITERATION, Role.LOOP_COND)


def unroll(context: RewriteContext, limit: int) -> None:
    """Replace loops of at most `limit` iterations by straight lines, inner loops first."""
    groups: dict[Node, list[Node]] = {}
    outdated: set[Frame] = set()
    names = FrameNames(context.graph)
    for frame in reversed(context.frames.all[1:]):
        check_deadline()
        if frame in outdated:
            continue
        unroller = LoopUnroller(context, frame, names)
        reason = unroller.obstacle(limit)
        if reason is not None:
            context.kept_loops.append(KeptLoop(frame.path, reason, context.function))
            continue
        outdated.update(frame.loops)
        added = unroller.unroll()
        if frame.exits:
            groups[frame.exits[0]] = added
    if groups:
        present = context.graph.nodes.get
        restore_order(
            context.graph,
            {
                node: [item for item in added if present(item.name) is item]
                for node, added in groups.items()
                if present(node.name) is node
            },
        )


class LoopUnroller:
    """Unrolls the loop of one frame."""

    def __init__(self, context: RewriteContext, frame: Frame, names: FrameNames) -> None:
        self.context = context
        self.frame_names = names
        self.graph = context.graph
        self.frame = frame
        self.loop = while_loop(frame)
        self.count = 0
        # what a Switch of the loop forwards waits for the condition, too
        self.awaits_test = False
        of = context.frames.of
        # the Enters of a frame run in its parent
        self.nodes = [node for node in context.frames.order if of[node].is_within(frame)]
        self.dead_in_body: frozenset[Output | Node] = frozenset()
        self.dead_at_end: frozenset[Output | Node] = frozenset()

    # -- conditions ------------------------------------------------------------------------------

    def obstacle(self, limit: int) -> str | None:
        """The reason why the loop is not unrolled, or None."""
        loop, context = self.loop, self.context
        if loop is None:
            return "has no LoopCond"
        count = static_trip_count(loop.cond, context.shapes, exact=True)
        if count is None:
            return "its trip count is not static"
        if count > limit:
            return f"has {count} iterations"
        size = len(self.graph) + (count + 1) * len(self.nodes)
        if size > current_limits().max_nodes:
            return f"would grow the graph to {size} nodes, more than the limit"
        self.count = count
        self.awaits_test = not all(map(context.does_nothing, self._needed_by(loop.cond)))
        self.phases = phases = LoopPhases(loop.cond, self.nodes)
        self.dead_in_body = self._dead(phases, LoopPhase.BODY)
        self.dead_at_end = self._dead(phases, LoopPhase.END)
        return (
            self._irregular(loop)
            or self._unequal_entry()
            or self._late_arrivals()
            or self._unawaited()
            or self._named()
            or self._effects()
            or named_state(self.nodes, context.library)
        )

    def _irregular(self, loop: WhileLoop) -> str | None:
        """A part of the loop that no straight line has."""
        entering = {variable.enter for variable in loop.variables}
        back = {variable.next_iteration for variable in loop.variables}
        entering.update(loop.invariants)
        merges = [variable.merge for variable in loop.variables]
        known = set(merges)
        for node in (*self.frame.enters, *self.frame.next_iterations):
            is_invariant = role_of(node) is Role.ENTER and node.attr("is_constant")
            if node not in (entering | back):
                return f"{node.name} belongs to no loop variable"
            if not is_invariant and any(use.node not in known for use in node.uses):
                return f"{node.name} is read by a node other than a Merge"
        for merge in loop.irregular_merges:
            if any(ROLES[x.node.op] in (Role.ENTER, Role.NEXT_ITERATION) for x in merge.inputs):
                return f"{merge.name} is the Merge of no loop variable"
        for node in self.nodes:
            types = node.output_types
            if types is not None and any(dtype.is_ref for dtype in types):
                return f"{node.name} is a reference to a variable"
        return self._irregular_liveness(loop)

    def _irregular_liveness(self, loop: WhileLoop) -> str | None:
        """A value that leaves or repeats in other iterations than those of the loop."""
        for variable in loop.variables:
            updated = variable.next_iteration
            if updated in self.dead_in_body or updated not in self.dead_at_end:
                return f"{updated.name} is not live exactly while the loop repeats"
        for node in self.frame.exits:
            if (self.count and node not in self.dead_in_body) or node in self.dead_at_end:
                return f"{node.name} is not live exactly when the loop ends"
        for node in self.nodes:
            if role_of(node) is Role.MERGE and node.readers(1):
                for dead in (self.dead_in_body, self.dead_at_end):
                    lost = sum(x in dead for x in node.inputs)
                    if lost and node not in dead and len(node.inputs) - lost > 1:
                        return f"{node.name} tells which of its inputs arrived"
        return None

    def _needed_by(self, node: Node) -> list[Node]:
        """The nodes of the loop that a node depends on, also in earlier iterations."""
        return [item for item in self._ancestors([node]) if role_of(item) not in _FORWARDED]

    def _ancestors(self, nodes: Iterable[Node]) -> dict[Node, None]:
        """Nodes, and all nodes of the loop that they depend on, also in earlier iterations."""
        members = set(self.nodes)
        return reachable(nodes, lambda node: filter(members.__contains__, node.predecessors))

    def _unawaited(self) -> str | None:
        """A node that may fail or has an effect, of which only the last copy would be awaited."""
        if not self.count:
            return None
        for node in self.frame.exits:
            needed = self._ancestors([node])
            repeated = self._ancestors(x for x in needed if role_of(x) is Role.NEXT_ITERATION)
            for item in needed:
                if item in repeated or item in self.dead_in_body:
                    continue
                if role_of(item) is None and not self.context.does_nothing(item):
                    return f"{item.name} is awaited when the loop ends, but not when it repeats"
        return None

    def _dead(self, phases: LoopPhases, phase: LoopPhase) -> frozenset[Output | Node]:
        """The nodes and outputs that are dead in the iterations of a phase."""
        nodes = [node for node in self.nodes if not phases.of[node] & phase]
        counts = {node: node.output_count or 0 for node in self.nodes}
        outputs = (node.output(port) for node, count in counts.items() for port in range(count))
        return frozenset((*nodes, *(x for x in outputs if not phases.of_output(x) & phase)))

    def arrivals(self, control: Node, dead: frozenset[Output | Node]) -> list[Node]:
        """The live nodes after which a node has run, or has arrived dead."""
        found = reachable([control], lambda node: node.predecessors if node in dead else ())
        return [node for node in found if node not in dead]

    def _late_arrivals(self) -> str | None:
        """A node that runs after dead nodes, too, where its copies would run in other cases."""
        context = self.context
        starts = [enter.inputs[0] for enter in self.frame.enters]
        for node in self.nodes:
            role = role_of(node)
            if role not in (Role.CONTROL_TRIGGER, Role.MERGE):
                continue
            if role is Role.CONTROL_TRIGGER and not all(map(context.liveness.always_live, starts)):
                return f"{node.name} runs even if the loop does not"
            for dead in (self.dead_in_body, self.dead_at_end):
                lost = [control for control in node.controls if control in dead]
                awaited = [x for control in lost for x in self.arrivals(control, dead)]
                ends = (node, *awaited) if lost else ()
                if any(context.frames.of_outputs[x] is not self.frame for x in ends):
                    return f"{node.name} waits for dead nodes of an inner loop"
        return None

    def _unequal_entry(self) -> str | None:
        """A value that may enter without the others."""
        liveness = self.context.liveness
        first, *rest = [enter.inputs[0] for enter in self.frame.enters]
        for enter in self.frame.enters:
            if any(not liveness.equal(first, control) for control in enter.controls):
                return f"{enter.name} waits for a node of another condition"
        for tensor in rest:
            if not liveness.equal(first, tensor):
                return f"{tensor.name} and {first.name} may not enter together"
        return None

    def _named(self) -> str | None:
        context, exits = self.context, set(self.frame.exits)
        for node in self.nodes:
            if node not in exits and (node in context.named or node in context.frozen):
                return f"{node.name} is fetched, fed, or kept"
        return None

    def _effects(self) -> str | None:
        """An effect in an inner loop, if iterations must wait for earlier ones."""
        if self.frame.parallel_iterations >= self.count:
            return None
        of = self.context.frames.of
        for node in self.nodes:
            if _is_ordered(node) and of[node] is not self.frame:
                return f"{node.name} has an effect in an inner loop"
        return None

    # -- edits -----------------------------------------------------------------------------------

    def unroll(self) -> list[Node]:
        """Replace the loop; returns the added nodes. Exits become Identities of the results."""
        loop, context, graph = self.loop, self.context, self.graph
        assert loop is not None
        added: list[Node] = []
        values: dict[Output, Output] = {}
        for enter in self.frame.enters:
            values[enter.output()] = _alias(
                self, enter, enter.inputs[0], enter.controls, added, 0, needed=_is_awaited(enter)
            )
        iteration, barriers = IterationCopy(self, values, added, 0), list[Node | None]()
        for number in range(self.count + 1):
            check_deadline()
            parallel = self.frame.parallel_iterations
            barrier = barriers[number - parallel] if number >= parallel else None
            iteration.copy_iteration(barrier)
            barriers.append(iteration.barrier() if self.count > parallel else None)
            if number < self.count:
                iteration = iteration.next(loop)
        results = {node: iteration.inputs_of(node) for node in self.frame.exits}
        for node, (inputs, controls) in results.items():
            attrs = {k: v for k, v in node.attrs.items() if k[:1] == "_" or k == "T"}
            graph.connect(node, inputs, controls)
            graph.set_op(node, "Identity", attrs)
        context.log(RULE, loop.cond, loop.cond.op, f"{self.count} iterations")
        graph.remove(*self.frame.enters, *(n for n in self.nodes if n not in results))
        remove_unread(graph, added)
        added = [node for node in added if graph.nodes.get(node.name) is node]
        drop_dangling_colocation(graph, added)
        return added


class IterationCopy(NodeCopier):
    """The copies of one iteration. `values` are the tensors that replace those of the loop."""

    def __init__(
        self, unroller: LoopUnroller, values: dict[Output, Output], added: list[Node], number: int
    ) -> None:
        super().__init__(unroller.graph, added)
        self.unroller = unroller
        self.entered = values
        self.values = dict(values)
        self.number = number
        is_last = number == unroller.count
        self.dead = unroller.dead_at_end if is_last else unroller.dead_in_body

    def next(self, loop: WhileLoop) -> IterationCopy:
        """The following iteration, with the values that this one passes on."""
        values = {enter.output(): self.entered[enter.output()] for enter in loop.invariants}
        for variable in loop.variables:
            values[variable.next_iteration.output()] = self.values[variable.next_iteration.output()]
        return IterationCopy(self.unroller, values, self.added, self.number + 1)

    def copy_iteration(self, barrier: Node | None) -> None:
        """Copy the nodes that run in this iteration; its effects wait for the barrier."""
        back: list[Node] = []
        for node in self.unroller.nodes:
            if node in self.dead or self.unroller.context.frames.of_outputs[node] is self.outer:
                continue
            role = role_of(node)
            own = self.unroller.context.frames.of[node] is self.unroller.frame
            if role is Role.MERGE and not own:
                self._copy_inner_merge(node, back)
            elif own and (source := self._forwarded(node)) is not None:
                self._forward(node, source)
            else:
                self._copy_node(node, self._live_inputs(node), barrier)
        for node in back:
            self.graph.set_inputs(self.copies[node], self._live_inputs(node))

    @property
    def outer(self) -> Frame | None:
        """The frame around the loop, in which the outputs of its Exits are."""
        return self.unroller.frame.parent

    def _forwarded(self, node: Node) -> Output | None:
        """The input that a node of the loop's own protocol forwards in this iteration, or None."""
        role = role_of(node)
        if role in (Role.LOOP_COND, Role.NEXT_ITERATION) or self.unroller.phases.is_tested(node):
            return node.inputs[0]
        if role is not Role.MERGE:
            return None
        arrived = [x for x in node.inputs if self._arrives(x)]
        return arrived[0] if len(arrived) == 1 else None

    def _arrives(self, tensor: Output) -> bool:
        """True for an input of a Merge of this loop that is live in this iteration."""
        if role_of(tensor.node) in (Role.ENTER, Role.NEXT_ITERATION):
            return tensor in self.entered
        return tensor not in self.dead

    def _forward(self, node: Node, source: Output) -> None:
        """Replace a node that forwards one input."""
        unroller = self.unroller
        # a NextIteration may run before the Merge that reads the earlier value
        value = self.entered.get(source) or self.values[source]
        controls = self._controls(node)
        if role_of(node) is Role.MERGE and controls:
            # what a Merge waits for may be dead
            name = f"{node.name}/arrived"
            controls = [self._add(name, "ControlTrigger", (), controls, {}, node)]
        if unroller.awaits_test and role_of(node) is Role.SWITCH:
            controls.append(self._control(node.inputs[1].node))
        alias = _alias(
            unroller, node, value, controls, self.added, self.number, needed=_is_awaited(node)
        )
        if alias.node is not value.node:
            self.copies[node] = alias.node
        for port in range(node.output_count or 1):
            self.values[node.output(port)] = alias
        if role_of(node) is Role.MERGE and node.readers(1):
            index = np.array(node.inputs.index(source), np.int32)
            attrs = {"dtype": int32, "value": TensorValue(index)}
            made = self._add(f"{node.name}/value_index", "Const", (), [alias.node], attrs, node)
            self.values[node.output(1)] = made.output()

    def _copy_inner_merge(self, node: Node, back: list[Node]) -> None:
        """Copy a Merge of an inner loop or conditional; back edges are added at the end."""
        inputs = [self.values[x] for x in node.inputs if x not in self.dead and x in self.values]
        self._copy_node(node, inputs, None)
        if len(inputs) < len(node.inputs):
            back.append(node)

    def _live_inputs(self, node: Node) -> list[Output]:
        return [self.values[x] for x in node.inputs if x not in self.dead]

    def _copy_node(self, node: Node, inputs: list[Output], barrier: Node | None) -> None:
        attrs = dict(node.attrs)
        if role_of(node) is Role.MERGE:
            live = [x for x in node.inputs if x not in self.dead]
            attrs["N"] = len(live)
        if draws(node, self.unroller.context.library):
            depth = self.unroller.context.frames.of[node].depth - self.unroller.frame.depth
            attrs |= StreamScope(iterations=(self.number,)).annotations(node, depth)
        controls = self._controls(node)
        if barrier is not None and _is_ordered(node):
            controls.append(barrier)
        name = f"{node.name}/iteration_{self.number}"
        copy = self.copy(node, name, attrs, node.device, inputs, controls)
        self.rename_groups(node, self.graph.nodes)
        self.values.update(zip(node.outputs, copy.outputs, strict=True))

    def _add(
        self,
        name: str,
        op: str,
        inputs: Iterable[Output],
        controls: Collection[Node],
        attrs: dict[str, Any],
        node: Node,
    ) -> Node:
        name = self.graph.unique_name(f"{name}/iteration_{self.number}")
        made = self.graph.create(name, op, inputs, controls, attrs, node.device)
        self.added.append(made)
        return made

    def _controls(self, node: Node) -> list[Node]:
        """The control inputs of a copy; in place of dead nodes, what those wait for."""
        found: dict[Node, None] = {}
        for control in node.controls:
            for source in self.unroller.arrivals(control, self.dead):
                found[self._control(source)] = None
                if source is not control and role_of(source) is Role.SWITCH:
                    found[self._control(source.inputs[1].node)] = None
        return [*found]

    def _control(self, control: Node) -> Node:
        copy = self.copies.get(control)
        return copy if copy is not None else self.values[control.output()].node

    def inputs_of(self, node: Node) -> tuple[list[Output], list[Node]]:
        """The inputs and control inputs that replace those of an Exit."""
        return self._live_inputs(node), self._controls(node)

    def new_frame_name(self, name: bytes) -> bytes:
        """The name of an inner frame in this iteration."""
        return self.unroller.frame_names.unique(name + f"/iteration_{self.number}".encode())

    def barrier(self) -> Node | None:
        """A node that runs after all effects of this iteration, also after dead ones."""
        effects = [copy for node, copy in self.copies.items() if _is_ordered(node)]
        if not effects:
            return None
        return self._add(
            f"{self.unroller.frame.name}/done", "ControlTrigger", (), effects, {}, effects[0]
        )


def _is_awaited(node: Node) -> bool:
    """True for a node with control edges to others."""
    return bool(node.control_readers)


def _is_ordered(node: Node) -> bool:
    """True for an effect that iterations order by waiting; flows order those of TensorArrays."""
    op = lookup(node.op)
    return has_effect(node) and not (op is not None and has_flow(op))


def _alias(
    unroller: LoopUnroller,
    node: Node,
    value: Output,
    controls: Collection[Node],
    added: list[Node],
    number: int,
    *,
    needed: bool = False,
) -> Output:
    """A tensor with this value that waits for nodes; with `needed` its node is live with it."""
    is_side = role_of(value.node) is Role.SWITCH
    if not controls and not (needed and is_side):
        return value
    graph, dtype = unroller.graph, value.dtype
    assert dtype is not None
    name = graph.unique_name(f"{node.name}/iteration_{number}")
    made = graph.create(name, "Identity", [value], controls, {"T": dtype.base}, node.device)
    added.append(made)
    return made.output()
