"""Encapsulate a cluster: turn it into a library function called by one XlaLaunch.

    a -> [m -> n] -> b      becomes      a -> XlaLaunch -> b      with  f(a) = n(m(a))

The arguments are ordered: inputs that must be constant, other tensors, resource handles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cfgraph.ir import registry
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ops.opdef.evaluation import constant_slots
from cfgraph.ops.opdef.op import lookup, may_write
from cfgraph.passes.cluster.formation.cluster_plan import ClusterBody
from cfgraph.passes.cluster.formation.cycle_graph import skip_transparent
from cfgraph.passes.cluster.functionalize.function_body import ArgumentNames, base_dtypes

_COLOCATION_ATTR: Final = "_class"


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
    graph: Graph, body: ClusterBody, name: str, fetched: Collection[Node]
) -> EncapsulatedCluster:
    """Replace the nodes of a cluster by one XlaLaunch; `fetched` ones keep their names."""
    inside = {*body.members, *body.copies}
    arguments = _grouped_arguments(graph, body.members, inside)
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
    )
    new_names = {tensor.name: launch.output(port).name for port, tensor in enumerate(results)}
    _redirect_consumers(graph, body.members, results, launch)
    aliases = tuple(_replace_members(graph, body.members, fetched, results, launch))
    return EncapsulatedCluster(
        launch, aliases, new_names, len(constants), len(plain), len(resources)
    )


def _grouped_arguments(
    graph: Graph, members: Collection[Node], inside: Collection[Node]
) -> GroupedArguments:
    """Group the tensors that members read from outside, each once."""
    groups = GroupedArguments([], [], [])
    constant = _constant_values(graph, members, inside)
    tensors = (tensor for node in members for tensor in node.inputs if tensor.node not in inside)
    for tensor in dict.fromkeys(tensors):
        is_resource = tensor.dtype is not None and tensor.dtype.kind == "resource"
        group = groups.constants if tensor in constant else groups.plain
        (groups.resources if is_resource else group).append(tensor)
    return groups


def _constant_values(
    graph: Graph, members: Iterable[Node], inside: Collection[Node]
) -> set[Output]:
    """Return the tensors that determine inputs which must be constant, other than by shape."""
    todo: list[Output] = []
    instances = FunctionInstances(graph.functions)
    for node in members:
        op = lookup(node.op)
        slots = constant_slots(node, op, instances) if op else ()
        todo.extend(node.inputs[slot] for slot in sorted(slots))
    seen = set(todo)
    for tensor in todo:
        op = lookup(tensor.node.op)
        if tensor.node in inside and not (op is not None and op.algebra.shape_only):
            new = [source for source in tensor.node.inputs if source not in seen]
            seen.update(new)
            todo.extend(new)
    return seen


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
            read.update(range(registry.output_count(node) or 0))
        yield from (Output(node, port) for port in sorted(read))


def _external_controls(body: ClusterBody, inside: Collection[Node]) -> list[Node]:
    """Return the control inputs of the cluster."""
    sources = [control for node in (*body.copies, *body.members) for control in node.controls]
    controls = skip_transparent(sources, body.transparent)
    return [control for control in controls if control not in inside]


def _without_placement(function: Function) -> Function:
    """Drop devices and colocation: the function runs on the device of its XlaLaunch."""

    def without_placement(node: BodyNode) -> BodyNode:
        attrs = {key: value for key, value in node.attrs.items() if key != _COLOCATION_ATTR}
        return replace(node, device="", attrs=attrs)

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
        count = registry.output_count(node) or 0
        outputs = [launch.output(port_of[Output(node, port)]) for port in range(count)]
        options: dict[str, Any] = {"name": node.name, "device": node.device}
        if not outputs:
            yield graph.add("NoOp", controls=[launch], **options)
        elif len(outputs) == 1:
            yield graph.add("Identity", *outputs, **options)
        else:
            yield graph.add("IdentityN", *outputs, **options)
