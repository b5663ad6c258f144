"""Order of a run that the predicates of its loops imply, without any other message.

A worker begins an iteration when it knows the predicate, and thus after all that the predicate
depends on. A control edge from there orders nothing else:

    body = Identity(Switch(counter, predicate))
    c = Const(^body)     # its value is known, and so is that the iteration has begun

An edge from a node that may fail, or reads or changes what outlives it, says more, unless the
predicate depends on that node as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.graph import Node
from cfgraph.ir.role import MERGE, NEXT_ITERATION
from cfgraph.ir.traversal import reachable
from cfgraph.ops.opdef.op import makes_handle
from cfgraph.runtime.engine.plan import NodePlan, Plan


class ImpliedOrder:
    """Order that is implied in the iterations of each loop of a run, merged on one device."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._before_predicates: dict[Frame, set[Node]] = {}
        self._known: dict[tuple[Node, Frame], bool] = {}

    def is_implied(self, sources: Iterable[Node], frame: Frame) -> bool:
        """True if a node that runs in a loop after its test need not wait for others."""
        return frame.parent is not None and all(
            self._is_before_predicates(source, frame) for source in sources
        )

    def _is_before_predicates(self, source: Node, frame: Frame) -> bool:
        """True if all that a node depends on precedes the predicates of loops, or never matters."""
        key = source, frame
        known = self._known.get(key)
        if known is None:
            before = self._before(frame)
            reached = self._reached([source], before, same_iteration=False)
            known = not any(self._is_observable(node) for node in reached)
            self._known[key] = known
        return known

    def _before(self, frame: Frame) -> set[Node]:
        """The nodes that run before the predicates of a loop, and of those that contain it.

        Of earlier iterations, only those are meant that the same nodes depend on.
        """
        before = self._before_predicates.get(frame)
        if before is None:
            outer = self._before(frame.parent) if frame.parent is not None else set[Node]()
            before = outer | self._reached(frame.loop_conds, outer, same_iteration=True)
            self._before_predicates[frame] = before
        return before

    def _reached(
        self, sources: Iterable[Node], known: set[Node], *, same_iteration: bool
    ) -> set[Node]:
        """The nodes that the sources depend on, without those that are known."""
        plans = self._plan.nodes

        def unknown(nodes: Iterable[Node]) -> list[Node]:
            return [node for node in nodes if node in plans and node not in known]

        def predecessors(node: Node) -> list[Node]:
            found = unknown(node.predecessors)
            if same_iteration and plans[node].op.role is MERGE:
                return [source for source in found if plans[source].op.role is not NEXT_ITERATION]
            return found

        return set(reachable(unknown(sources), predecessors))

    def _is_observable(self, node: Node) -> bool:
        """True for a node that may fail, or reads or changes what outlives it."""
        known: NodePlan = self._plan.nodes[node]
        op = known.op
        if op.effects.stateful:
            return not (op.effects.random or makes_handle(node))
        may_fail = bool(node.inputs) and op.role is None and not op.aliasing.is_identity
        return may_fail and op.can_fail(node)
