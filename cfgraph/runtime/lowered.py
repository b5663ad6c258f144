"""What is functional in a run is lowered before it, in a copy of what the run needs."""

from __future__ import annotations

from cfgraph.analysis.reachability import ancestors
from cfgraph.ir.function_graph import OutputPorts
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph, remove_uncalled_functions
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ops.functional import is_functional

Run = tuple[Graph, tuple[Output, ...], tuple[Node, ...], tuple[Output, ...]]


def lowered_run(
    graph: Graph, fetches: tuple[Output, ...], targets: tuple[Node, ...], feeds: tuple[Output, ...]
) -> Run:
    """The same run on a lowered graph, or as it came where nothing in it is functional.

    Raises what `lower` raises.
    """
    wanted = [*(item.node for item in fetches), *targets]
    if not is_functional(graph, ancestors(graph, wanted, frozenset(feeds))):
        return graph, fetches, targets, feeds
    from cfgraph.passes.lower.lower import lower

    nodes = ancestors(graph, [*wanted, *(item.node for item in feeds)])
    copy = copy_graph(graph, nodes)
    remove_uncalled_functions(copy)  # what is wrong in them is no matter of the run
    fed = {item: _fed(copy, Output(copy[item.node.name], item.port)) for item in feeds}
    lower(copy)
    return (
        copy,
        tuple(fed.get(item) or Output(copy[item.node.name], item.port) for item in fetches),
        tuple(copy[node.name] for node in targets),
        tuple(fed.values()),
    )


def moved(run: Run, graph: Graph) -> Run:
    """The same run on a graph whose nodes have the same names."""
    _, fetches, targets, feeds = run
    return (
        graph,
        tuple(Output(graph[item.node.name], item.port) for item in fetches),
        tuple(graph[node.name] for node in targets),
        tuple(Output(graph[item.node.name], item.port) for item in feeds),
    )


def _fed(graph: Graph, item: Output) -> Output:
    """What is fed for an output; those of functional nodes lose their readers by lowering."""
    return stand_in(graph, item) if is_functional(graph, [item.node]) else item


def stand_in(graph: Graph, item: Output) -> Output:
    """A placeholder that takes the readers of an output; the output where its type is unknown."""
    dtype = OutputPorts(graph.functions).dtype(item)
    if dtype is None:
        return item
    name = graph.unique_name(f"{item.node.name}/fed")
    attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
    fed = graph.create(name, "Placeholder", attrs=attrs, device=item.node.device).output()
    graph.replace_uses(item, fed)
    return fed
