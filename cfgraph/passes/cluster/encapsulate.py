"""Encapsulate a cluster, as a library function called by one XlaLaunch, and inline it again.

    a -> [m -> n] -> b      is equivalent to      a -> XlaLaunch -> b      with  f(a) = n(m(a))

The arguments are ordered: inputs that must be constant, other tensors, resource handles. The first
nodes of an inlined body wait for the control inputs of the call. Nodes that waited for the call
wait for its results and its side effects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cfgraph.analysis.loops.cycle_graph import skip_transparent
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.attrs import Func
from cfgraph.ir.colocation import without_groups
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ops.opdef.op import is_cluster_call, lookup, may_write
from cfgraph.ops.opdef.random_streams import GRAPH, call_annotations, draws
from cfgraph.passes.cluster.formation.compilable import constant_values
from cfgraph.passes.functionalize.function_body import ArgumentNames, base_dtypes
from cfgraph.passes.node_copier import NodeCopier

if TYPE_CHECKING:
    from cfgraph.passes.cluster.formation.cluster_plan import ClusterBody


class GroupedArguments(NamedTuple):
    """Tensors that enter a cluster, in the order in which XlaLaunch expects them."""

    constants: list[Output]
    plain: list[Output]
    resources: list[Output]


@dataclass(frozen=True, slots=True)
class EncapsulatedCluster:
    """The XlaLaunch of a cluster, its new outputs by old name, and its numbers of arguments.

    `aliases` are the nodes that replace fetched members under their old names.
    """

    launch: Node
    aliases: tuple[Node, ...]
    outputs: Mapping[str, str]
    constants: int
    arguments: int
    resources: int


def encapsulate(
    graph: Graph,
    body: ClusterBody,
    name: str,
    fetched: Collection[Node],
    instances: FunctionInstances,
) -> EncapsulatedCluster:
    """Replace the nodes of a cluster by one XlaLaunch; `fetched` ones keep their names.

    `instances` are those of the graph's functions.
    """
    inside = {*body.members, *body.copies}
    arguments = _grouped_arguments(instances, body.members, inside)
    constants, plain, resources = arguments
    results = list(_cluster_results(body.members, inside, fetched))
    names = ArgumentNames(node.name for node in inside)
    inputs = {names.new(tensor): tensor for group in arguments for tensor in group}
    outputs = {names.new(tensor, "out"): tensor for tensor in results}
    effects = {node.name: node for node in body.members if may_write(node)}
    nodes = [*body.copies, *body.members]
    function = function_from_nodes(name, nodes, inputs, outputs, effects, graph.functions)
    graph.functions[name] = _without_placement(function)
    launch = graph.add(
        "XlaLaunch",
        *constants,
        *plain,
        *resources,
        name=name,
        controls=_external_controls(body, inside),
        device=body.members[0].device,
        Tconstants=base_dtypes(constants),
        Targs=base_dtypes(plain),
        Nresources=len(resources),
        Tresults=base_dtypes(results),
        function=Func(name),
        attrs=call_annotations([function], graph.functions),
    )
    new_names = {tensor.name: launch.output(port).name for port, tensor in enumerate(results)}
    _redirect_consumers(graph, body.members, results, launch)
    aliases = tuple(_replace_members(graph, body.members, fetched, results, launch))
    return EncapsulatedCluster(
        launch, aliases, new_names, len(constants), len(plain), len(resources)
    )


def _grouped_arguments(
    instances: FunctionInstances, members: Collection[Node], inside: Collection[Node]
) -> GroupedArguments:
    """Group the tensors that members read from outside, each once."""
    groups = GroupedArguments([], [], [])
    constant = constant_values(instances, members, inside)
    tensors = (tensor for node in members for tensor in node.inputs if tensor.node not in inside)
    for tensor in dict.fromkeys(tensors):
        is_resource = tensor.dtype is not None and tensor.dtype.kind == "resource"
        group = groups.constants if tensor in constant else groups.plain
        (groups.resources if is_resource else group).append(tensor)
    return groups


def _cluster_results(
    members: Iterable[Node], inside: Collection[Node], fetched: Collection[Node]
) -> Iterator[Output]:
    """Yield the tensors that are read outside or fetched."""
    for node in members:
        read = {
            use.node.inputs[use.slot].port
            for use in node.uses
            if use.slot >= 0 and use.node not in inside
        }
        if node in fetched:
            read.update(range(node.output_count or 0))
        yield from (Output(node, port) for port in sorted(read))


def _external_controls(body: ClusterBody, inside: Collection[Node]) -> list[Node]:
    """Return the control inputs of the cluster."""
    sources = [control for node in (*body.copies, *body.members) for control in node.controls]
    controls = skip_transparent(sources, body.transparent)
    return [control for control in controls if control not in inside]


def _without_placement(function: Function) -> Function:
    """Drop devices and colocation: the function runs on the device of its XlaLaunch."""

    def without_placement(node: BodyNode) -> BodyNode:
        return replace(node, device="", attrs=without_groups(node.attrs))

    nodes = tuple(map(without_placement, function.definition.nodes))
    return Function(function.name, replace(function.definition, nodes=nodes))


def _redirect_consumers(
    graph: Graph, members: Collection[Node], results: Iterable[Output], launch: Node
) -> None:
    """Rewire remaining consumers and control edges to the XlaLaunch."""
    removed = set(members)
    for port, tensor in enumerate(results):
        for use in tensor.node.readers(tensor.port):
            if use.node not in removed:
                graph.set_input(use.node, use.slot, launch.output(port))
    for node in members:
        for reader in node.control_readers:
            if reader not in removed:
                controls = [launch if source is node else source for source in reader.controls]
                graph.set_controls(reader, controls)


def _replace_members(
    graph: Graph,
    members: Iterable[Node],
    fetched: Collection[Node],
    results: list[Output],
    launch: Node,
) -> Iterator[Node]:
    """Remove the members; yield for each fetched one a node that forwards results by its name."""
    nodes = list(members)
    graph.remove(*nodes)
    port_of = {tensor: port for port, tensor in enumerate(results)}
    for node in nodes:
        if node not in fetched:
            continue
        outputs = [launch.output(port_of[tensor]) for tensor in node.outputs]
        options: dict[str, Any] = {"name": node.name, "device": node.device}
        if not outputs:
            yield graph.add("NoOp", controls=[launch], **options)
        elif len(outputs) == 1:
            yield graph.add("Identity", *outputs, **options)
        else:
            yield graph.add("IdentityN", *outputs, **options)


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
    copier = NodeCopier(graph)
    arguments = {node.output(): x for node, x in zip(function.arguments, call.inputs, strict=True)}
    copier.tensors.update(arguments)
    streams = GRAPH.inside(call)
    controls = list(call.controls)
    if needs_pivot and not controls and call.inputs:
        name = graph.unique_name(f"{call.name}/pivot")
        controls = [graph.add("Identity", call.inputs[0], name=name, device=call.device)]
    for node in function.graph:
        if node.output() not in arguments:
            name = node.name if node.name not in graph else f"{call.name}/{node.name}"
            attrs = node.attrs
            if draws(node, graph.functions):
                attrs = {**attrs, **streams.annotations(node)}
            copier.copy(node, name, attrs, call.device)
    clones, inlined = copier.copies, copier.output
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
