"""Control edges into a loop that need not cross devices: they attach to the local driver instead.

A node controlled by the pivot of the body (an Identity of a Switch on the predicate) is controlled
by the same side of the local driver; a node controlled by the Merge of a loop variable is
controlled by the local pivot Merge. The first is as live, and as late, as the original if the
LoopCond depends on that variable. The pivot Merge of a control loop is live even if the loop is
entered dead, and it waits for no variable. A constant Enter therefore carries the liveness of the
loop, and an edge that may order side effects still crosses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.node_effects import has_effect, makes_handle, may_write
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.partition.branch_conditions import ALWAYS_LIVE
from cfgraph.passes.partition.control_loops import ControlLoops
from cfgraph.passes.partition.distributed_loops import DistributedLoops

EntryTensorOnDevice = Callable[[Node, str], Output]


class LocalControlEdges:
    """Local replacements for control edges from another device."""

    def __init__(self, graph: Graph, loops: DistributedLoops, control_loops: ControlLoops) -> None:
        self._graph = graph
        self._loops = loops
        self._control_loops = control_loops
        self._effects: EffectReachability | None = None

    def replacements(
        self, node: Node, device: str, reader: Node, entry_tensor: EntryTensorOnDevice
    ) -> list[Node] | None:
        """Return local control inputs of `reader` instead of `node`, None if the edge must cross.

        `entry_tensor(enter, device)` is a constant tensor in the loop that is live if `enter` is.
        """
        frame = self._loops.frames.of[node]
        if frame.parent is None:
            return None
        if self._loops.is_variable(node):
            return self._for_variable(node, frame, device, reader, entry_tensor)
        pivot = self._loops.pivot(node)
        if pivot is None:
            return None
        merge = pivot.node.inputs[0].node
        is_early = self._control_loops.is_before_condition(merge, frame)
        if not is_early and self._are_ordered(merge, reader):
            return None
        return [self._control_loops.pivot_branch(frame, device, pivot.port)]

    def _for_variable(
        self,
        merge: Node,
        frame: Frame,
        device: str,
        reader: Node,
        entry_tensor: EntryTensorOnDevice,
    ) -> list[Node] | None:
        if self._are_ordered(merge, reader):
            return None
        conditions, pivot = self._loops.conditions, self._control_loops.pivot_merge(frame, device)
        is_variable = not self._control_loops.is_control_loop(frame, device)
        available = conditions.sides(pivot) if is_variable else ALWAYS_LIVE
        required = conditions.sides(merge)
        if available == required:
            return [pivot]
        if not available <= required:
            return None
        roles = self._loops.roles
        enter = next(t.node for t in merge.inputs if roles[t.node.op] is Role.ENTER)
        return [pivot, entry_tensor(enter, device).node]

    def _are_ordered(self, first: Node, second: Node) -> bool:
        if self._effects is None:
            self._effects = EffectReachability(self._graph)
        return self._effects.are_ordered(first, second)


class EffectReachability:
    """Nodes downstream of an effect, and nodes upstream of one, in any iteration of a loop."""

    def __init__(self, graph: Graph) -> None:
        stateful = [node for node in graph if _touches_state(node)]
        if not any(map(may_write, stateful)):
            stateful = []
        self._downstream = _reachable_nodes(stateful, lambda node: (use.node for use in node.uses))
        self._upstream = _reachable_nodes(
            stateful, lambda node: (*(tensor.node for tensor in node.inputs), *node.controls)
        )

    def are_ordered(self, first: Node, second: Node) -> bool:
        """Return true if a path from `first` to `second` may order two effects."""
        return first in self._downstream and second in self._upstream


def _touches_state(node: Node) -> bool:
    """Return true for nodes with effects, and for references, which any node may read."""
    if role_of(node):
        return False
    return has_effect(node) or (makes_handle(node) and _has_reference(node))


def _has_reference(node: Node) -> bool:
    return any(dtype.is_ref for dtype in registry.output_types(node) or ())


def _reachable_nodes(
    start: Iterable[Node], neighbors: Callable[[Node], Iterable[Node]]
) -> set[Node]:
    reached = set(start)
    todo = list(reached)
    while todo:
        for node in neighbors(todo.pop()):
            if node not in reached:
                reached.add(node)
                todo.append(node)
    return reached
