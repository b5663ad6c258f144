"""Lists in place of stacks, so that the values that a loop saved can be read many times.

    backward loop:   Pop(stack)     becomes     Enter(list) ▸ Merge ▸ Switch ▸ PopBack ▸ Next

Every run of the backward loop starts from the same list. Where a value is saved only under a
condition, the list passes a Switch and a Merge:

    if p: Push(stack, x)     becomes     Merge(PushBack(Switch(list, p):1, x), Switch(list, p):0)
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cfgraph.analysis.loops.branch_decisions import BranchDecision
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.regions import Regions, regions
from cfgraph.analysis.resource_handles import (
    StackAccesses,
    handle_uses,
    popped_values,
    stacks,
)
from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import variant
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.functionalize.lists.stack_to_list import StackReplacement, StackUse


def make_repeatable(graph: Graph, pops: Collection[Node]) -> list[Node]:
    """Replace the stacks that some nodes pop by lists, in place; return the nodes of these.

    Raises Unsupported for a stack that several nodes push or pop.
    """
    accesses = {id(item): item for node, item in stacks(graph).items() if node in pops}
    if not accesses:
        return []
    graph_regions, shapes = regions(graph), infer_shapes(graph, received=popped_values(graph))
    uses = [_stack_use(stack, graph_regions) for stack in accesses.values()]
    preds = _Predicates(graph)
    lists = [_RepeatableStack(graph, use, shapes, graph_regions, preds) for use in uses]
    return [*preds.nodes(), *(node for item in lists for node in item.run())]


def _stack_use(stack: StackAccesses, graph_regions: Regions) -> StackUse:
    if len(stack.pushes) != 1 or len(stack.pops) != 1 or stack.others:
        message = f"the stack {stack.handle.name!r} is used by more than one push and one pop"
        hint = "a Jacobian reads saved values for each row"
        raise Unsupported(message, node=stack.handle, hint=hint, code="CFG508")
    (push,), (pop,) = stack.pushes, stack.pops
    loops = [graph_regions.frames.of[node].loops for node in (push, pop)]
    _, handles = handle_uses(stack.handle.output())
    forwarding = tuple(dict.fromkeys(x.node for x in handles[1:]))
    return StackUse(stack.handle, push, pop, loops[0], loops[1], forwarding)


class _Predicates:
    """Identities of predicates, which follow when a list replaces the stack that one is from."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._copies: dict[Output, Output] = {}

    def copy(self, pred: Output) -> Output:
        """The Identity of a predicate, in its frame."""
        if pred not in self._copies:
            name = f"{pred.node.name}/list/pred"
            self._copies[pred] = self.graph.add("Identity", pred, name=name).output()
        return self._copies[pred]

    def nodes(self) -> list[Node]:
        """All Identities."""
        return [x.node for x in self._copies.values()]


class _RepeatableStack(StackReplacement):
    """Replacement of a stack by a list of any length, also where conditions decide."""

    def __init__(
        self,
        graph: Graph,
        use: StackUse,
        shapes: StaticShapes,
        graph_regions: Regions,
        preds: _Predicates,
    ) -> None:
        super().__init__(graph, use, shapes)
        self.regions = graph_regions
        path: list[Frame | Node] = [*use.push_loops, use.push, *use.pop_loops, use.pop]
        # what the conditions are read from may be part of another stack, which is replaced first
        self.decisions = {
            target: [(preds.copy(each.pred), each.output.port) for each in self._decisions(target)]
            for target in path
        }

    def max_elements(self) -> Output:
        """No limit."""
        return self.constant("most", -1)

    def within(
        self, target: Frame | Node, tensor_list: Output, inner: Callable[[Output], Output | None]
    ) -> Output | None:
        """Pass the list through the conditionals that decide whether a loop or a node runs."""
        like = target.enters[0] if isinstance(target, Frame) else target
        base, others = f"{self.stack.name}/list", list[list[Output]]()
        for pred, port in self.decisions[target]:
            inputs = [tensor_list, pred]
            switch = self.add_primitive("Switch", f"{base}/Switch", inputs, like, {"T": variant})
            others.append([switch.output(1 - port)])
            tensor_list = switch.output(port)
        result = inner(tensor_list)
        if result is None:
            return None
        for other in reversed(others):
            attrs = {"T": variant, "N": 2}
            merge = self.add_primitive("Merge", f"{base}/Merge", [result, *other], like, attrs)
            result = merge.output()
        return result

    def _decisions(self, target: Frame | Node) -> list[BranchDecision]:
        """The branch decisions under which a loop or a node runs, in one iteration around it."""
        guards, frames = self.regions.guards, self.regions.frames
        if isinstance(target, Frame):
            condition, parent = self.regions.entry_condition(self.regions.of[target]), target.parent
        else:
            condition, parent = guards.of_node(target), frames.of[target]
        conds = [] if parent is None else parent.loop_conds
        own = [guards.branch(cond.output())[0] for cond in conds]
        decisions = [item for item in condition.decisions() if item.test not in own]
        for decision in decisions:
            if decision.test.branches != 2:
                message = "no predicate of two branches determines whether it is live"
                raise Unsupported(message, node=decision.output.node, code="CFG505")
        return decisions
