"""Replace cluster calls by the nodes of their functions (the reverse of `encapsulate`).

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
from cfgraph.ops.opdef.op import is_cluster_call, lookup

InlinedNodes = dict[str, tuple[Node, ...]]
_FUNCTION_ATTR: Final = "function"


def cluster_calls(graph: Graph) -> list[Node]:
    """Return the nodes that call clusters."""
    ops = {op for op in graph.ops if is_cluster_call(lookup(op))}
    return [node for node in graph if node.op in ops] if ops else []


def called_function(graph: Graph, call: Node) -> Function | None:
    """Return the function of a cluster call, None if the graph lacks it."""
    called = call.attrs.get(_FUNCTION_ATTR)
    return graph.functions.get(called.name) if isinstance(called, Func) else None


def inline_clusters(graph: Graph, calls: Iterable[Node]) -> InlinedNodes:
    """Replace cluster calls by the nodes of their functions, in place; return these by call.

    A node keeps its name in the function, prefixed with the name of the call if the graph has
    another node of that name. Raises InvalidInput for a call that does not fit its function.
    """
    instances, chosen = FunctionInstances(dict(graph.functions)), list(calls)
    functions = [
        instances.get(node.attr(_FUNCTION_ATTR).name, node.attr(_FUNCTION_ATTR).attrs)
        for node in chosen
    ]
    loop_frames = frames(graph)
    root = loop_frames.root
    in_loop = {node for node in chosen if loop_frames.of.get(node, root) is not root}
    return {
        node.name: _inline_cluster(graph, node, function, needs_pivot=node in in_loop)
        for node, function in zip(chosen, functions, strict=True)
    }


def _inline_cluster(
    graph: Graph, call: Node, function: FunctionGraph, *, needs_pivot: bool
) -> tuple[Node, ...]:
    """Replace one call; `needs_pivot` ties nodes without inputs to the loop of the call."""
    sources = dict(zip(function.arguments, call.inputs, strict=True))
    clones: dict[Node, Node] = {}
    controls = list(call.controls)
    if needs_pivot and not controls and call.inputs:
        name = graph.unique_name(f"{call.name}/pivot")
        controls = [graph.add("Identity", call.inputs[0], name=name, device=call.device)]
    for node in function.graph:
        if node not in sources:
            name = node.name if node.name not in graph else f"{call.name}/{node.name}"
            clones[node] = graph.create(
                graph.unique_name(name), node.op, attrs=dict(node.attrs), device=call.device
            )

    def inlined(tensor: Output) -> Output:
        source = sources.get(tensor.node)
        return Output(clones[tensor.node], tensor.port) if source is None else source

    for node, clone in clones.items():
        inner = [clones[control] for control in node.controls]
        is_first = not inner and not any(tensor.node in clones for tensor in node.inputs)
        waits = is_first and (call.controls or not node.inputs)
        graph.connect(clone, map(inlined, node.inputs), [*inner, *(controls if waits else ())])
    for port, tensor in enumerate(function.returns):
        graph.replace_uses(call.output(port), inlined(tensor))
    ends = [clones[tensor.node] for tensor in function.returns if tensor.node in clones]
    ends = list(dict.fromkeys([*ends, *(clones[node] for node in function.control_returns)]))
    for reader in call.control_readers:
        remaining = [control for control in reader.controls if control is not call]
        graph.set_controls(reader, [*remaining, *(ends or call.controls)])
    graph.remove(call)
    return tuple(clones.values())
