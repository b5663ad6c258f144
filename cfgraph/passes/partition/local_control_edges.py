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
from cfgraph.passes.partition.control_loops import AddedNodes, ControlLoops
from cfgraph.passes.partition.distributed_loops import DistributedLoops

EntryTensorOnDevice = Callable[[Node, str], Output]


class LocalControlEdges:
    """Finds for a node and a device what can be waited for there in its stead."""

    def __init__(
        self, graph: Graph, maker: AddedNodes, loops: DistributedLoops, control_loops: ControlLoops
    ) -> None:
        self._graph = graph
        self._maker = maker
        self._loops = loops
        self._control_loops = control_loops
        self._effects: EffectOrder | None = None

    def local(
        self, node: Node, device: str, reader: Node, entry_tensor: EntryTensorOnDevice
    ) -> list[Node] | None:
        """What `reader` may wait for on its device; None if the edge must cross.

        `alive_at(enter, device)` is a constant tensor in the loop there, live if `enter` is.
        """
        frame = self._loops.found.of[node]
        if frame.parent is None:
            return None
        if self._loops.is_variable(node):
            return self._gate(node, frame, device, reader, entry_tensor)
        pivot = self._loops.pivot(node)
        if pivot is None:
            return None
        merge = pivot.node.inputs[0].node
        machines = self._control_loops
        if not machines.is_before_condition(merge, frame) and self._ordered(merge, reader):
            return None
        return [machines.side(frame, device, pivot.port)]

    def _gate(
        self,
        merge: Node,
        frame: Frame,
        device: str,
        reader: Node,
        entry_tensor: EntryTensorOnDevice,
    ) -> list[Node] | None:
        if self._ordered(merge, reader):
            return None
        alive, gate = self._loops.alive, self._control_loops.gate(frame, device)
        is_own = not self._control_loops.is_control_loop(frame, device)
        have, wanted = alive.of(gate) if is_own else ALWAYS_LIVE, alive.of(merge)
        if have == wanted:
            return [gate]
        if not have <= wanted:
            return None
        enter = next(i.node for i in merge.inputs if self._loops.roles[i.node.op] is Role.ENTER)
        return [gate, entry_tensor(enter, device).node]

    def _ordered(self, first: Node, second: Node) -> bool:
        if self._effects is None:
            self._effects = EffectOrder(self._graph)
        return self._effects.are_ordered(first, second)


class EffectOrder:
    """The nodes that come after an effect, and those before one; in any iteration of a loop."""

    def __init__(self, graph: Graph) -> None:
        touching = [node for node in graph if _touches_state(node)]
        if not any(map(may_write, touching)):
            touching = []
        self._after = _reachable_nodes(touching, lambda node: (use.node for use in node.uses))
        self._before = _reachable_nodes(
            touching, lambda node: (*(item.node for item in node.inputs), *node.controls)
        )

    def are_ordered(self, first: Node, second: Node) -> bool:
        """True if `second` may have to wait for `first` for the sake of an effect."""
        return first in self._after and second in self._before


def _touches_state(node: Node) -> bool:
    """True for an effect, and for a reference: an Identity that reads it has no effect itself."""
    if role_of(node):
        return False
    return has_effect(node) or (makes_handle(node) and _has_reference(node))


def _has_reference(node: Node) -> bool:
    return any(dtype.is_ref for dtype in registry.output_types(node) or ())


def _reachable_nodes(start: Iterable[Node], onward: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found = set(start)
    todo = list(found)
    while todo:
        for node in onward(todo.pop()):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found
