"""Remove branches that never run, and the Switches and Merges that decide nothing.

    Merge(x, dead)          becomes      Identity(x)
    Merge(x), with index    becomes      IdentityN(x, 0)
    Switch(x, p):1          becomes      IdentityN(x, p), where p is true
    _SwitchN of one output  becomes      IdentityN of its data and its index

A predicate that an outer conditional decided already selects one branch of an inner one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np

from cfgraph.analysis.deadness.deadness import Deadness
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, downstream, reachable
from cfgraph.ops.opdef.op import back_edge_of, role_of, strip_identities
from cfgraph.passes.functionalize.function_body import must_run_once


class DecidedBranches:
    """Rewrites of one graph; `rewrites` counts them, `dropped` has the names of removed nodes.

    `fetched` nodes remain, and the Merges of `fetched_indices` keep all inputs.
    """

    def __init__(
        self, graph: Graph, fetched: Iterable[Node] = (), fetched_indices: Iterable[Node] = ()
    ) -> None:
        self.graph = graph
        self.fetched = set(fetched)
        self.fetched_indices = set(fetched_indices)
        self.rewrites = 0
        self.dropped: list[str] = []

    def forward_single(self) -> None:
        """Replace Switches of one output, and Merges of one input, by identities."""
        for node in list(self.graph):
            role = role_of(node)
            if role is Role.MERGE and len(node.inputs) == 1:
                self._forward_merge(node)
            elif role is Role.SWITCH and node.output_count == 1:
                self._forward_switch(node, 0)

    def _forward_merge(self, merge: Node) -> None:
        # they may be dead, and an Identity would be dead then
        controls = self._effects_among(merge.controls)
        if controls:
            name = f"{merge.name}/order"
            device = merge.device
            trigger = self.graph.add("ControlTrigger", name=name, controls=controls, device=device)
            controls = [trigger]
        self.graph.set_controls(merge, controls)
        if self._has_index(merge):
            index = self.graph.add(
                "Const",
                name=f"{merge.name}/index",
                controls=[merge.inputs[0].node],
                device=merge.device,
                dtype=int32,
                value=TensorValue(np.array(0, np.int32)),
            )
            self.graph.set_op(merge, "IdentityN", {"T": (merge.attr("T"), int32)})
            self.graph.set_inputs(merge, [*merge.inputs, index.output()])
        else:
            self.graph.set_op(merge, "Identity", {"T": merge.attr("T")})
        self.rewrites += 1

    def _forward_switch(self, switch: Node, port: int) -> None:
        """Replace a Switch by an IdentityN that still waits for the predicate."""
        types = tuple(tensor.dtype for tensor in switch.inputs)
        if any(dtype is None or dtype.is_ref for dtype in types):
            return
        if port:
            self.graph.replace_uses(switch.output(port), switch.output())
        self.graph.set_op(switch, "IdentityN", {"T": types})
        self.rewrites += 1

    def _has_index(self, merge: Node) -> bool:
        return bool(merge.readers(1)) or merge in self.fetched_indices

    @cached_property
    def _ordered(self) -> Collection[Node]:
        # also through the back edges of loops
        return downstream(filter(must_run_once, self.graph))

    def _effects_among(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes that have effects or follow some."""
        distinct = dict.fromkeys(nodes)
        return [node for node in distinct if node in self._ordered] if distinct else []

    # -- branches that never run -----------------------------------------------------------------

    def drop_never_live(self, conditions: Deadness) -> bool:
        """Remove nodes that never run, and what decides that; return true if any did.

        A Merge that loses an input waits for the effects that this input waited for.
        """
        before = self.rewrites
        # calls took the place of nodes since
        self.__dict__.pop("_ordered", None)
        dead = {node for node in self.graph if conditions.never_runs(node)}
        merges = [
            node
            for node in self.graph
            if node not in dead and role_of(node) is Role.MERGE and back_edge_of(node) is None
        ]
        indexed = [merge for merge in merges if self._has_index(merge)]
        required = {*self.fetched, *(tensor.node for merge in indexed for tensor in merge.inputs)}
        required.update(_loop_nodes(self.graph, conditions, dead))
        if not required.isdisjoint(dead):
            dead.difference_update(ancestors(self.graph, required & dead))
        for merge in merges:
            if merge not in indexed:
                self._drop_inputs(merge, conditions, dead)
        self._remove(dead)
        for merge in merges:
            if len(merge.inputs) == 1:
                self._forward_merge(merge)
        for switch in [node for node in self.graph if role_of(node) is Role.SWITCH]:
            self._forward_decided(switch, conditions)
        return self.rewrites > before or bool(dead)

    def _drop_inputs(self, merge: Node, conditions: Deadness, dead: set[Node]) -> None:
        """Remove the inputs of a Merge that are never live."""
        live = [tensor for tensor in merge.inputs if not _never_arrives(conditions, tensor)]
        if len(live) == len(merge.inputs):
            return
        dropped = [tensor.node for tensor in merge.inputs if tensor not in live]
        controls = self._effects_among(_running_sources(dropped, dead))
        self.graph.connect(merge, live, dict.fromkeys((*merge.controls, *controls)))
        self.graph.set_attr(merge, "N", len(live))
        self.rewrites += 1

    def _remove(self, dead: set[Node]) -> None:
        """Remove nodes; what waited for one waits for the effects before it."""
        for node in [node for node in self.graph if node in dead]:
            users = [use.node for use in node.uses if use.slot == CONTROL and use.node not in dead]
            if not users:
                continue
            controls = self._effects_among(_running_sources([node], dead))
            for user in users:
                self.graph.remove_control(user, node)
                for control in controls:
                    self.graph.add_control(user, control)
        names = [node.name for node in self.graph if node in dead]
        self.graph.remove(*dead)
        self.dropped += names

    def _forward_decided(self, switch: Node, conditions: Deadness) -> None:
        """Replace a Switch of which one output is ever live."""
        predicate = strip_identities(switch.inputs[1])
        if switch in self.fetched or role_of(predicate.node) is Role.LOOP_COND:
            return
        count = switch.output_count or 2
        live = [p for p in range(count) if not _never_arrives(conditions, switch.output(p))]
        used = {
            tensor.port
            for use in switch.uses
            for tensor in use.node.inputs
            if tensor.node is switch
        }
        if len(live) == 1 and used <= {*live}:
            self._forward_switch(switch, live[0])


def _never_arrives(conditions: Deadness, tensor: Output) -> bool:
    """Return true for a tensor that never arrives at a Merge."""
    return conditions.is_false(conditions.merge_input_condition(tensor))


def _loop_nodes(graph: Graph, conditions: Deadness, dead: set[Node]) -> Iterable[Node]:
    """Yield the nodes that give a loop its form, of the loops that run."""
    for frame in conditions.frames.all:
        if any(enter not in dead for enter in frame.enters):
            members = (*frame.enters, *frame.exits, *frame.next_iterations, *frame.loop_conds)
            yield from (*members, *frame.merges)


def _running_sources(nodes: Iterable[Node], dead: Collection[Node]) -> list[Node]:
    """Return the nodes outside of `dead` that nodes wait for."""
    sources = reachable(nodes, lambda node: node.predecessors if node in dead else ())
    return [node for node in sources if node not in dead]
