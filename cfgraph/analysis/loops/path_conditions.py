"""Path conditions: the branch decisions under which a tensor is live, read from a bare graph.

A Switch adds a decision; a Merge has those that its inputs share, if the others are exhaustive, and
else one more that no predicate makes; any other node has the decisions of all its inputs.

Inside a loop a path condition covers one iteration: the LoopCond of the loop is a decision there.
After the Exits it is the condition under which the loop was entered. Over the frames of a graph it
covers the run instead: it includes the entry of each loop, and the arrival of each message.

Predicates are identified by their origin: through Identity, LoopCond, LogicalNot, and constant
Enters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from cfgraph.analysis.loops.alternatives import Alternatives, whole
from cfgraph.analysis.loops.branch_decisions import BranchDecision, BranchTest, PathCondition
from cfgraph.analysis.loops.frame import Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import (
    CONTROL_TRIGGER,
    ENTER,
    EXIT,
    LOOP_COND,
    MERGE,
    NEXT_ITERATION,
    RECV,
    SWITCH,
    Role,
)
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import back_edge_of, lookup

# roles of nodes that change a path condition
DECIDING_ROLES: Final = (SWITCH, MERGE)


class PathConditions:
    """Path conditions of tensors, computed on demand for nodes that are added later.

    With `frames` they cover the run, else one iteration. `put` sets a condition that is known from
    elsewhere, before any reader of the node is visited.
    """

    def __init__(self, frames: Frames | None = None) -> None:
        self.none: Final = PathCondition()
        self.frames: Final = frames
        self._of: dict[Node, PathCondition] = {}
        self._sources: dict[Output, tuple[Output, bool]] = {}
        self._tests: dict[tuple[Output, int], BranchTest] = {}
        self._alternatives: dict[Node, Alternatives] = {}

    def put(self, guard: PathCondition, *nodes: Node) -> None:
        """Set the path condition of nodes."""
        self._of.update(dict.fromkeys(nodes, guard))

    def forget(self, node: Node) -> None:
        """Recompute the path condition of a node whose edges changed."""
        del self._of[node]

    def of_output(self, x: Output) -> PathCondition:
        """The path condition of a tensor."""
        node = x[0]
        guard, role = self._of.get(node) or self.of_node(node), ROLES[node.op]
        if role is SWITCH:
            return guard.also(self.decision(x))
        if role is RECV and self.frames is not None:
            return guard.also(self._unknown(x))
        return guard

    def of_node(self, node: Node) -> PathCondition:
        """The condition under which all inputs of a node are live; for a Merge, any input."""
        condition = self._of.get(node)
        if condition is not None:
            return condition
        known, todo = self._of, [node]
        while todo:
            check_deadline()
            current = todo[-1]
            role = ROLES[current.op]
            inputs, controls = self._edges(current, role)
            unknown = [x[0] for x in inputs if x[0] not in known]
            unknown += [source for source in controls if source not in known]
            if unknown:
                todo += unknown
            elif role is MERGE and inputs:
                known[todo.pop()] = self._any(current, inputs)
            else:
                known[todo.pop()] = self._all(current, role, inputs, controls)
        return known[node]

    def decision(self, x: Output) -> BranchDecision:
        """The decision of the Switch that outputs a tensor."""
        branches = x.node.output_count or 2
        return BranchDecision(*self.branch(x.node.inputs[1], x.port, branches), x)

    def branch(self, pred: Output, port: int = 1, branches: int = 2) -> tuple[BranchTest, int]:
        """The test of a predicate, and the branch for an output of its Switches."""
        source, negated = self.source(pred)
        return self._test(source, branches), branches - 1 - port if negated else port

    def source(self, pred: Output) -> tuple[Output, bool]:
        """The origin of a predicate, and True if it is negated on the way."""
        trail: list[Output] = []
        current = pred
        while current not in self._sources:
            check_deadline()
            trail.append(current)
            before = forwarded_input(current) or _negated_input(current)
            if before is None:
                self._sources[current] = (current, False)
                break
            current = before
        origin, negated = self._sources[current]
        for tensor in reversed(trail):
            if tensor is not current and _negated_input(tensor):
                negated = not negated
            self._sources[tensor] = (origin, negated)
        return self._sources[pred]

    def shared_by_inputs(self, merge: Node) -> PathCondition:
        """The decisions that the conditions of all inputs of a Merge contain."""
        return self._inputs(merge, merge.inputs).common

    def alone(self, merge: Node, slot: int) -> bool:
        """True if no other input of a Merge can be live together with this one."""
        return self._inputs(merge, merge.inputs).excludes(self.of_output(merge.inputs[slot]))

    def _inputs(self, merge: Node, inputs: Sequence[Output]) -> Alternatives:
        known = self._alternatives.get(merge)
        if known is None:
            known = self._alternatives[merge] = Alternatives([self.of_output(x) for x in inputs])
        return known

    def _test(self, source: Output, branches: int) -> BranchTest:
        test = self._tests.get((source, branches))
        if test is None:
            test = self._tests[source, branches] = BranchTest(source, branches)
        return test

    def _unknown(self, x: Output) -> BranchDecision:
        """The decision, which no predicate makes, that a tensor is live."""
        return BranchDecision(self._test(x, 0), 0, x)

    def _edges(self, node: Node, role: Role | None) -> tuple[Sequence[Output], Sequence[Node]]:
        """The edges that determine the condition of a node."""
        if role is CONTROL_TRIGGER or (role is ENTER and self.frames is None):
            return (), ()
        if role is not MERGE:
            return node.inputs, node.controls
        if back_edge_of(node) is None:
            return node.inputs, ()
        if self.frames is None:
            return (), ()
        return [x for x in node.inputs if ROLES[x.node.op] is not NEXT_ITERATION], ()

    def _all(
        self, node: Node, role: Role | None, inputs: Sequence[Output], controls: Iterable[Node]
    ) -> PathCondition:
        """The condition of a node that waits for all its inputs."""
        guards = dict.fromkeys(map(self.of_output, inputs))
        if controls:
            guards.update(dict.fromkeys(map(self.of_node, controls)))
        condition = self.none.union(*guards)
        if role is EXIT and self.frames is not None:
            tests = [self.branch(cond.output())[0] for cond in self.frames.of[node].loop_conds]
            return reduce(PathCondition.without, tests, condition)
        return condition

    def _any(self, merge: Node, inputs: Sequence[Output]) -> PathCondition:
        """The condition of a Merge: what its inputs share, if the rest is exhaustive."""
        outer = whole([self.of_output(x) for x in inputs])
        if outer is not None:
            return outer
        alternatives = self._inputs(merge, inputs)
        if alternatives.is_exhaustive:
            return alternatives.common
        return alternatives.common.also(self._unknown(merge.output()))


def forwarded_input(x: Output) -> Output | None:
    """The input that a node forwards to an output in every iteration, or None."""
    node = x.node
    op = lookup(node.op)
    if op is None or not node.inputs:
        return None
    if op.role is LOOP_COND or (op.role is ENTER and node.attrs.get("is_constant")):
        return node.inputs[0]
    return node.inputs[x.port] if op.aliasing.is_identity else None


def _negated_input(x: Output) -> Output | None:
    """The input of which a node is the negation, or None."""
    op, inputs = lookup(x.node.op), x.node.inputs
    return inputs[0] if op and inputs and op.algebra.boolean_semantics == "not" else None
