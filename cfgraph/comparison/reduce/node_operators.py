"""Operators on nodes and edges: outputs, nodes, their sources, bypasses, control edges."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.comparison.reduce.removal import StandIns, dead_ends, without_nodes
from cfgraph.comparison.reduce.search import ItemOperator
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph

_MAX_REWIRED: Final = 24


def node_names(subject: Subject) -> list[str]:
    """Return the names of the nodes of all graphs, in order."""
    return list(dict.fromkeys(node.name for graph in subject.graphs for node in graph))


@dataclass(frozen=True, slots=True)
class OutputOperator:
    """Removal of outputs, and of the nodes that only they need."""

    name: str = "outputs"

    def items(self, subject: Subject) -> list[str]:
        """Return the nodes that no other node reads."""
        graph = subject.graphs[0]
        return [node.name for node in graph if not node.uses]

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject without some outputs."""
        if len(items) == sum(1 for node in subject.graphs[0] if not node.uses):
            return None
        return subject.edited(lambda graph: _without_dead_ends(copy_graph(graph), items))


def _without_dead_ends(copy: Graph, names: Collection[str]) -> Graph:
    copy.remove(*dead_ends(copy, names))
    return copy


@dataclass(frozen=True, slots=True)
class NodeOperator:
    """Removal of nodes; the tensors that remaining nodes read get stand-ins."""

    stand_ins: StandIns
    name: str = "nodes"

    def items(self, subject: Subject) -> list[str]:
        """Return all nodes."""
        return node_names(subject)

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject without some nodes."""
        if all(node.name in items for node in subject.graphs[0]):
            return None
        return subject.edited(lambda graph: without_nodes(graph, items, self.stand_ins))


@dataclass(frozen=True, slots=True)
class SourceOperator:
    """Replacement of a node's outputs by stand-ins, without the nodes that only it needs."""

    stand_ins: StandIns
    name: str = "sources"

    def items(self, subject: Subject) -> list[str]:
        """Return the nodes that have sources and readers, the last ones first."""
        graph = subject.graphs[0]
        return [node.name for node in graph if node.inputs and node.uses][::-1]

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject in which stand-ins replace some nodes."""

        def edit(graph: Graph) -> Graph | None:
            removed = {graph.nodes[name] for name in items if name in graph.nodes}
            return without_nodes(graph, only_needed_by(removed), self.stand_ins)

        return subject.edited(edit)


def only_needed_by(removed: Collection[Node]) -> set[str]:
    """Return the names of nodes, and of the sources that nothing else needs."""
    gone = set(removed)
    queue = list(gone)
    while queue:
        node = queue.pop()
        for source in node.predecessors:
            if source not in gone and all(use.node in gone for use in source.uses):
                gone.add(source)
                queue.append(source)
    return {node.name for node in gone}


@dataclass(frozen=True, slots=True)
class BypassOperator(ItemOperator):
    """Removal of nodes whose readers can read one of their inputs instead."""

    name: str = "bypasses"

    def items(self, subject: Subject) -> list[tuple[str, int]]:
        """Return nodes with the number of an input of the same type in the same frame."""
        graph = subject.graphs[0]
        found = [(node, slot) for node in graph for slot in _bypass_slots(graph, node)]
        found.sort(key=lambda item: item[1])
        return [(node.name, slot) for node, slot in found]

    def remove(self, graph: Graph, item: tuple[str, int]) -> None:
        """Bypass a node."""
        name, slot = item
        if name in graph.nodes:
            bypass(graph, graph.nodes[name], slot)


def _bypass_slots(graph: Graph, node: Node) -> Iterator[int]:
    known = frames(graph)
    ports = {use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0}
    types = {node.output(port).dtype for port in ports}
    if None in types or not node.uses:
        return
    for slot, source in enumerate(node.inputs):
        if (
            source.node is not node
            and types <= {source.dtype}
            and known.of_outputs[source.node] is known.of_outputs[node]
        ):
            yield slot


def bypass(graph: Graph, node: Node, slot: int) -> None:
    """Let the readers of a node read one of its inputs, and remove the node, in place."""
    if slot >= len(node.inputs):
        return
    source = node.inputs[slot]
    sources = [item.node.name for item in node.inputs] + [item.name for item in node.controls]
    for tensor in node.outputs:
        graph.replace_uses(tensor, source)
    for reader in node.control_readers:
        graph.remove_control(reader, node)
        if source.node is not reader:
            graph.add_control(reader, source.node)
    if node.uses:
        return
    graph.remove(node)
    graph.remove(*dead_ends(graph, sources))


@dataclass(frozen=True, slots=True)
class ControlOperator(ItemOperator):
    """Removal of control edges."""

    name: str = "control edges"

    def items(self, subject: Subject) -> list[tuple[str, str]]:
        """Return the control edges as pairs of names."""
        edges = (
            (node.name, item.name)
            for graph in subject.graphs
            for node in graph
            for item in node.controls
        )
        return list(dict.fromkeys(edges))

    def remove(self, graph: Graph, item: tuple[str, str]) -> None:
        """Remove a control edge."""
        reader, source = map(graph.nodes.get, item)
        if reader is not None and source is not None:
            graph.remove_control(reader, source)


@dataclass(frozen=True, slots=True)
class RewireOperator(ItemOperator):
    """Replacement of an input by a tensor of the same type that is computed earlier.

    It removes nothing, but then other operators may. Only small graphs are rewired.
    """

    name: str = "inputs"

    def items(self, subject: Subject) -> list[tuple[str, int, str]]:
        """Return nodes with the number of an input and the name of another tensor."""
        graph = subject.graphs[0]
        if len(graph) > _MAX_REWIRED:
            return []
        known = frames(graph)
        tensors = [tensor for node in graph for tensor in node.outputs]
        return [
            (node.name, slot, tensor.name)
            for node in graph
            for slot, source in enumerate(node.inputs)
            for tensor in tensors
            if tensor.node not in (node, source.node)
            and tensor.dtype == source.dtype
            and known.of_outputs[tensor.node] is known.of_outputs[source.node]
        ]

    def candidate(self, subject: Subject, items: Sequence[tuple[str, int, str]]) -> Subject | None:
        """Return a subject with another input; inputs are replaced one by one."""
        return ItemOperator.candidate(self, subject, items) if len(items) == 1 else None

    def remove(self, graph: Graph, item: tuple[str, int, str]) -> None:
        """Replace an input, and remove what only it needed."""
        name, slot, tensor = item
        if name in graph.nodes and slot < len(graph.nodes[name].inputs):
            source = graph.nodes[name].inputs[slot].node.name
            graph.set_input(graph.nodes[name], slot, graph.tensor(tensor))
            graph.remove(*dead_ends(graph, [source]))
