"""Updates of variables that outputs wait for without reading a value of them.

x ──▶ assign v                      x
        ┆            becomes        ┆
z ──▶   y                     z ──▶ y

An update stays if a node that an output needs reads the variable after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, reachable
from cfgraph.ops.opdef.op import function_calls, role_of

_Key = tuple[str, str]
# the key of a handle that may be that of any variable
_ANY_VARIABLE = ("", "")


def awaited_updates(graph: Graph, outputs: Collection[Node]) -> dict[Node, Node | None]:
    """The nodes that write variables, and that only control edges connect to the outputs.

    Each with a needed node that uses its variable afterwards, or None. What such an update reads is
    needed, too.
    """
    analysis = EffectAnalysis()
    writers = {
        access.node: variable_key(graph[access.name])
        for access in analysis.accesses(graph)
        if access.writes and access.name in graph and is_variable(graph[access.name])
    }
    if not writers:
        return {}

    def read(node: Node) -> Iterator[Node]:
        yield from (tensor.node for tensor in node.inputs)
        yield from (control for control in node.controls if control not in writers)

    needed = reachable(outputs, read)
    awaited = [node for node in ancestors(graph, outputs) if node in writers and node not in needed]
    users = _VariableUsers(graph, analysis)
    found: dict[Node, Node | None] = dict.fromkeys(awaited)
    while users.add(needed):
        for node in awaited:
            found[node] = found[node] or users.after(node, writers[node])
        needed = reachable([*outputs, *(node for node in awaited if found[node])], read)
    return found


@dataclass(slots=True)
class _VariableUsers:
    """The needed nodes that take the handle of a variable, by its key."""

    graph: Graph
    analysis: EffectAnalysis
    nodes: set[Node] = field(default_factory=set)
    by_key: defaultdict[_Key, set[Node]] = field(default_factory=lambda: defaultdict(set))

    def add(self, nodes: Collection[Node]) -> bool:
        """Add the needed nodes; false if there are no new ones."""
        new = {*nodes} - self.nodes
        self.nodes |= new
        for node in new:
            for key in self._variables_of(node):
                self.by_key[key].add(node)
        return bool(new)

    def after(self, update: Node, key: _Key) -> Node | None:
        """The nearest user of this variable that an update precedes, also in a later iteration."""
        users = (self.by_key[key] | self.by_key[_ANY_VARIABLE]) - {update}
        if not users:
            return None
        later = reachable([update], lambda node: (use.node for use in node.uses))
        return next((node for node in later if node in users), None)

    def _variables_of(self, node: Node) -> Iterator[_Key]:
        """The variables whose handles a node takes, or that a function that it calls names."""
        for tensor in node.inputs:
            dtype = tensor.dtype
            if dtype is not None and (dtype.is_ref or dtype.is_handle):
                origin = self.analysis.origin(tensor).node
                if is_variable(origin):
                    yield variable_key(origin)
                elif role_of(origin) is Role.MERGE:
                    yield _ANY_VARIABLE
        if node.op in self.graph.functions or function_calls(node.op).kind:
            for name in called_functions(self.graph, nodes=[node]):
                inner = self.graph.functions[name].definition.nodes
                yield from (variable_key(x) for x in inner if is_variable(x))


def drop_updates(graph: Graph, updates: Collection[Node]) -> None:
    """Let what waits for these updates wait for their inputs instead."""
    for update in updates:
        inputs = [tensor for tensor in update.inputs if tensor.node.predecessors]
        varying = [tensor for tensor in inputs if not _is_constant_enter(tensor.node)]
        sources = [_live_with(graph, tensor) for tensor in varying or inputs]
        sources += [control for control in update.controls if control.predecessors]
        for node in update.control_readers:
            others = [control for control in node.controls if control is not update]
            graph.set_controls(node, list(dict.fromkeys([*others, *sources])))


def _is_constant_enter(node: Node) -> bool:
    """True for a node that is live in each iteration of its loop."""
    return role_of(node) is Role.ENTER and bool(node.attr("is_constant"))


def _live_with(graph: Graph, tensor: Output) -> Node:
    """A node that is live where a tensor is, which a Switch by itself is not."""
    if role_of(tensor.node) is not Role.SWITCH:
        return tensor.node
    name = f"{tensor.node.name}/pivot"
    return graph.add("Identity", tensor, name=name, device=tensor.node.device)
