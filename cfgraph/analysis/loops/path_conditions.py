"""Path conditions: the branch decisions under which a tensor is live, read from a bare graph.

The path condition of a tensor is a list of decisions, outermost first; each is a predicate, as its
frame reads it, and the branch that it must select. A Switch adds a decision; a Merge removes those
that its inputs exhaust together; any other node has the decisions of all its inputs. Inside a loop
a path condition covers one iteration: the LoopCond of the loop is a decision there. After the Exits
it is the condition under which the loop was entered.

Predicates are identified by their origin: through Identity, LoopCond, LogicalNot, and constant
Enters.
"""

from __future__ import annotations

from typing import Final

from cfgraph.analysis.loops.decision_tree import DecisionTree
from cfgraph.analysis.loops.path_condition import BranchDecision, PathCondition
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import CONTROL_TRIGGER, ENTER, LOOP_COND, MERGE, SWITCH, Role
from cfgraph.ir.topological_order import OpRoles
from cfgraph.ops.opdef.op import back_edge_of, lookup

# roles of nodes that change a path condition
DECIDING_ROLES: Final = (SWITCH, MERGE)
# roles of nodes that are live whatever they read
_ALWAYS_LIVE_ROLES: Final = (CONTROL_TRIGGER, ENTER)


class PathConditions:
    """Path conditions of tensors, computed on demand for nodes that are added later.

    `put` sets a condition that is known from elsewhere, before any reader of the node is visited.
    """

    def __init__(self) -> None:
        self.none: Final = PathCondition()
        self._roles = OpRoles()
        self._of: dict[Node, PathCondition] = {}
        self._sources: dict[Output, tuple[Output, bool]] = {}
        self._trees: dict[Node, DecisionTree] = {}

    def put(self, guard: PathCondition, *nodes: Node) -> None:
        """Set the path condition of nodes."""
        self._of.update(dict.fromkeys(nodes, guard))

    def forget(self, node: Node) -> None:
        """Recompute the path condition of a node whose edges changed."""
        del self._of[node]

    def of(self, x: Output) -> PathCondition:
        """The path condition of a tensor."""
        node = x[0]
        guard = self._of.get(node) or self.of_node(node)
        return guard.also(self.decision(x)) if self._roles[node.op] is SWITCH else guard

    def of_node(self, node: Node) -> PathCondition:
        """The condition under which all inputs of a node are live; for a Merge, any input."""
        condition = self._of.get(node)
        if condition is not None:
            return condition
        known, todo = self._of, [node]
        while todo:
            current = todo[-1]
            kind = self._roles[current.op]
            sources = _condition_sources(current, kind)
            unknown = [source for source in sources if source not in known]
            if unknown:
                todo += unknown
            elif kind is MERGE and sources:
                known[todo.pop()] = self._behind(current)
            else:
                known[todo.pop()] = self._all(current) if sources else self.none
        return known[node]

    def decision(self, x: Output) -> BranchDecision:
        """The decision of the Switch that outputs a tensor."""
        pred = x.node.inputs[1]
        source, negated = self.source(pred)
        sides = registry.output_count(x.node) or 2
        side = sides - 1 - x.port if negated else x.port
        return BranchDecision(source, side, sides, pred, x.port)

    def source(self, pred: Output) -> tuple[Output, bool]:
        """The origin of a predicate, and True if it is negated on the way."""
        trail: list[Output] = []
        current = pred
        while current not in self._sources:
            trail.append(current)
            before = _forwarded_input(current)
            if before is None:
                self._sources[current] = (current, False)
                break
            current = before
        origin, negated = self._sources[current]
        for tensor in reversed(trail):
            if tensor is not current and _is_negation(tensor.node):
                negated = not negated
            self._sources[tensor] = (origin, negated)
        return self._sources[pred]

    def shared_by_inputs(self, merge: Node) -> PathCondition:
        """The decisions that the conditions of all inputs of a Merge contain."""
        return self._tree(merge).common

    def alone(self, merge: Node, slot: int) -> bool:
        """True if no other input of a Merge can be live together with this one."""
        return self._tree(merge).excludes(self.of(merge.inputs[slot]))

    def _tree(self, merge: Node) -> DecisionTree:
        tree = self._trees.get(merge)
        if tree is None:
            tree = self._trees[merge] = DecisionTree([self.of(tensor) for tensor in merge.inputs])
        return tree

    def _all(self, node: Node) -> PathCondition:
        """The condition of a node that waits for all its inputs."""
        guards = dict.fromkeys(map(self.of, node.inputs))
        if node.controls:
            guards.update(dict.fromkeys(map(self.of_node, node.controls)))
        return self.none.union(*guards)

    def _behind(self, merge: Node) -> PathCondition:
        """The condition of a Merge: what its inputs share, if the rest is exhaustive."""
        tree = self._tree(merge)
        if tree.is_exhaustive:
            return tree.common
        output = merge.output()
        return tree.common.also(BranchDecision(output, 0, 0, output, 0))


def _forwarded_input(x: Output) -> Output | None:
    """The input that a node forwards to an output, possibly negated."""
    node = x.node
    op = lookup(node.op)
    if op is None or not node.inputs:
        return None
    if op.aliasing.is_identity:
        return node.inputs[x.port]
    constant = op.role is ENTER and bool(node.attrs.get("is_constant"))
    if constant or op.role is LOOP_COND or op.algebra.boolean_semantics == "not":
        return node.inputs[0]
    return None


def _condition_sources(node: Node, kind: Role | None) -> list[Node]:
    """The nodes that determine the condition of a node of a role.

    Empty for a node that is live in every iteration.
    """
    sources = [tensor[0] for tensor in node.inputs]
    if kind is MERGE:
        return sources if back_edge_of(node) is None else []
    if kind in _ALWAYS_LIVE_ROLES:
        return []
    sources += node.controls
    return sources


def _is_negation(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.algebra.boolean_semantics == "not"
