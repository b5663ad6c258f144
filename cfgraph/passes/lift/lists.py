"""Let stacks and arrays be values, so that loops which use them change nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.op import role
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.passes.cluster.agreement import Agreement
from cfgraph.passes.cluster.reasons import Reason
from cfgraph.passes.cluster.report import Region
from cfgraph.passes.lift.arrays import array_as_list, array_use, arrays
from cfgraph.passes.lift.given_lists import given_lists, require_holdable
from cfgraph.passes.lift.pushes import stack_as_list
from cfgraph.passes.lift.refused import Refused
from cfgraph.passes.lift.stack_form import is_stack, stack_form


@dataclass(slots=True)
class Lists:
    """The lists that stacks and arrays became, by the name of what made those, and the refused.

    Each node that handles a list stands for nodes that were: their names and ops.
    """

    nodes: dict[str, dict[Node, dict[str, str]]] = field(default_factory=dict)
    kept: dict[str, Region] = field(default_factory=dict)

    def handling(self, graph: Graph) -> dict[str, list[Node]]:
        """For each list the nodes that handle it and are still in the graph."""
        return {
            name: [node for node in nodes if graph.nodes.get(node.name) is node]
            for name, nodes in self.nodes.items()
        }

    def stands_for(self) -> dict[Node, dict[str, str]]:
        """What each node that handles a list stands for."""
        return {node: ops for nodes in self.nodes.values() for node, ops in nodes.items()}

    def computing(self, graph: Graph) -> list[Node]:
        """The nodes that handle lists outside of regions, and are no control flow."""
        groups = self.handling(graph).values()
        return [node for nodes in groups for node in nodes if not role(node)]


def raise_lists(
    graph: Graph, agreed: Agreement, refused: Mapping[str, Reason], kept: Collection[Node]
) -> Lists:
    """Replace the stacks and arrays of a graph by lists, where that can be; `kept` nodes stay."""
    lists = Lists()
    given = list(given_lists(graph))
    made = [*arrays(graph), *filter(is_stack, graph)]
    if not made and not given:
        return lists
    shapes = infer_shapes(graph)
    for group in given:
        name, ops = group[0].name, {node.name: node.op for node in group}
        try:
            if name in refused:
                raise Refused(refused[name])
            require_holdable(group, shapes, kept)
            lists.nodes[name] = {node: {node.name: node.op} for node in group}
        except Refused as error:
            lists.kept[name] = Region("list", name, ops, None, error.reason)
    for node in made:
        name, op = node.name, node.op
        try:
            if name in refused:
                raise Refused(refused[name])
            if is_stack(node):
                lists.nodes[name] = stack_as_list(graph, stack_form(node, agreed, kept), shapes)
            else:
                lists.nodes[name] = array_as_list(graph, array_use(node, agreed, kept, shapes))
        except Refused as error:
            lists.kept[name] = Region("list", name, {name: op}, None, error.reason)
    return lists
