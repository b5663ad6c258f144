"""Replace cluster calls by the nodes of their functions.

    a -> XlaLaunch -> b   with  f(a) = n(m(a))      becomes      a -> [m -> n] -> b

The first nodes of the body wait for the control inputs of the call. Nodes that waited for the call
wait for its results and its side effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.families.functional import is_cluster_call
from cfgraph.ops.opdef.op import lookup

InlinedNodes = dict[str, tuple[Node, ...]]
_FUNCTION_ATTR: Final = "function"


def cluster_calls(graph: Graph) -> list[Node]:
    """The nodes that run clusters."""
    ops = {op for op in graph.ops if is_cluster_call(lookup(op))}
    return [node for node in graph if node.op in ops] if ops else []


def called_function(graph: Graph, launch: Node) -> Function | None:
    """The function of a launch, if there is one."""
    called = launch.attrs.get(_FUNCTION_ATTR)
    return graph.functions.get(called.name) if isinstance(called, Func) else None


def inline_clusters(graph: Graph, launches: Iterable[Node]) -> InlinedNodes:
    """Replace launches by the nodes of their functions, in place; the nodes, by launch.

    A node has the name that it has in the function, or behind that of the launch where another one
    has it. Raises InvalidInput for a launch that does not fit its function.
    """
    instances, chosen = FunctionInstances(dict(graph.functions)), list(launches)
    found = [
        instances.get(node.attr(_FUNCTION_ATTR).name, node.attr(_FUNCTION_ATTR).attrs)
        for node in chosen
    ]
    where = frames(graph)
    inner = {node for node in chosen if where.of.get(node, where.root) is not where.root}
    return {
        node.name: _inline_cluster(graph, node, function, tied=node in inner)
        for node, function in zip(chosen, found, strict=True)
    }


def _inline_cluster(
    graph: Graph, launch: Node, function: FunctionGraph, *, tied: bool
) -> tuple[Node, ...]:
    """Put the nodes of a function in the place of its launch; if `tied`, into the launch's loop."""
    sources = dict(zip(function.arguments, launch.inputs, strict=True))
    made: dict[Node, Node] = {}
    waits = list(launch.controls)
    if tied and not waits and launch.inputs:
        name = graph.unique_name(f"{launch.name}/pivot")
        waits = [graph.add("Identity", launch.inputs[0], name=name, device=launch.device)]
    for node in function.graph:
        if node not in sources:
            name = node.name if node.name not in graph else f"{launch.name}/{node.name}"
            made[node] = graph.create(
                graph.unique_name(name), node.op, attrs=dict(node.attrs), device=launch.device
            )

    def tensor(item: Output) -> Output:
        given = sources.get(item.node)
        return Output(made[item.node], item.port) if given is None else given

    for node, twin in made.items():
        begins = not any(item.node in made for item in node.inputs) and not node.controls
        controls = [made[control] for control in node.controls]
        needs = waits if launch.controls or not node.inputs else ()
        graph.connect(twin, map(tensor, node.inputs), [*controls, *(needs if begins else ())])
    for port, item in enumerate(function.returns):
        graph.replace_uses(launch.output(port), tensor(item))
    ends = [made[item.node] for item in function.returns if item.node in made]
    ends = list(dict.fromkeys([*ends, *(made[node] for node in function.control_returns)]))
    for reader in launch.control_readers:
        kept = [control for control in reader.controls if control is not launch]
        graph.set_controls(reader, [*kept, *(ends or launch.controls)])
    graph.remove(launch)
    return tuple(made.values())
