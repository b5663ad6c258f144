"""Turn a cluster into a library function called by one XlaLaunch.

    a -> [m -> n] -> b      becomes      a -> XlaLaunch -> b      with  f(a) = n(m(a))

The arguments are ordered: inputs that must be constant, other tensors, resource handles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cfgraph.ir import registry
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ops.opdef.evaluation import constant_slots
from cfgraph.ops.opdef.node_effects import may_write
from cfgraph.ops.opdef.op import lookup
from cfgraph.passes.cluster.formation.cycle_graph import skip_transparent
from cfgraph.passes.cluster.functionalize.function_body import ArgumentNames

_COLOCATION_ATTR: Final = "_class"


@dataclass(frozen=True, slots=True)
class ClusterBody:
    """The nodes of a cluster in order, and the constants that are copied into it.

    Instead of `transparent` nodes, the copied ones among them, it waits for what they wait for.
    """

    members: tuple[Node, ...]
    copies: tuple[Node, ...]
    transparent: Collection[Node] = ()


@dataclass(frozen=True, slots=True)
class EncapsulatedCluster:
    """The launch of a cluster, what keeps old names, and where each output went."""

    launch: Node
    kept: tuple[Node, ...]
    outputs: Mapping[str, str]
    constants: int
    arguments: int
    resources: int


def encapsulate(
    graph: Graph, body: ClusterBody, name: str, keep: Collection[Node]
) -> EncapsulatedCluster:
    """Replace the nodes of a cluster by one launch; those of `keep` leave their names behind."""
    inside = {*body.members, *body.copies}
    arguments = _external_inputs(body.members, inside)
    groups = _group_arguments(arguments, _constant_values(graph, body.members, inside))
    results = list(_cluster_results(body.members, inside, keep))
    names = ArgumentNames(node.name for node in inside)
    inputs = {names.new(item): item for group in groups for item in group}
    outputs = {names.new(item, "out"): item for item in results}
    effects = {node.name: node for node in body.members if may_write(node)}
    nodes = [*body.copies, *body.members]
    function = function_from_nodes(name, nodes, inputs, outputs, effects, graph.functions)
    graph.functions[name] = _without_placement(function)
    constants, plain, handles = groups
    launch = graph.add(
        "XlaLaunch",
        *constants,
        *plain,
        *handles,
        name=name,
        controls=_external_controls(body, inside),
        device=body.members[0].device,
        Tconstants=_value_dtypes(constants),
        Targs=_value_dtypes(plain),
        Nresources=len(handles),
        Tresults=_value_dtypes(results),
        function=Func(name),
    )
    told = {item.name: launch.output(port).name for port, item in enumerate(results)}
    _redirect_consumers(graph, body.members, results, launch)
    kept = tuple(_replace_members(graph, body.members, keep, results, launch))
    return EncapsulatedCluster(launch, kept, told, len(constants), len(plain), len(handles))


def _external_inputs(members: Iterable[Node], inside: Collection[Node]) -> list[Output]:
    """The tensors that come in, each once."""
    items = (item for node in members for item in node.inputs if item.node not in inside)
    return list(dict.fromkeys(items))


def _group_arguments(
    items: Iterable[Output], constant: Collection[Output]
) -> tuple[list[Output], ...]:
    groups: tuple[list[Output], ...] = ([], [], [])
    for item in items:
        handle = item.dtype is not None and item.dtype.kind == "resource"
        groups[2 if handle else 1 if item not in constant else 0].append(item)
    return groups


def _constant_values(
    graph: Graph, members: Iterable[Node], inside: Collection[Node]
) -> set[Output]:
    """All that an input which must be constant is made of; shapes are known without values."""
    todo: list[Output] = []
    instances = FunctionInstances(graph.functions)
    for node in members:
        op = lookup(node.op)
        slots = constant_slots(node, op, instances) if op else ()
        todo.extend(node.inputs[slot] for slot in sorted(slots))
    seen = set(todo)
    for item in todo:
        op = lookup(item.node.op)
        if item.node in inside and not (op is not None and op.shape_only):
            new = [source for source in item.node.inputs if source not in seen]
            seen.update(new)
            todo.extend(new)
    return seen


def _cluster_results(
    members: Iterable[Node], inside: Collection[Node], keep: Collection[Node]
) -> Iterator[Output]:
    """The tensors that go out."""
    for node in members:
        read = {
            use.node.inputs[use.slot].port
            for use in node.uses
            if use.slot >= 0 and use.node not in inside
        }
        if node in keep:
            read.update(range(registry.output_count(node) or 0))
        yield from (Output(node, port) for port in sorted(read))


def _external_controls(body: ClusterBody, inside: Collection[Node]) -> list[Node]:
    """What the cluster waits for by control edges."""
    sources = [control for node in (*body.copies, *body.members) for control in node.controls]
    found = skip_transparent(sources, body.transparent)
    return [control for control in found if control not in inside]


def _value_dtypes(items: Iterable[Output]) -> tuple[Any, ...]:
    return tuple(item.dtype.base for item in items if item.dtype is not None)


def _without_placement(function: Function) -> Function:
    """The function without wishes for devices and neighbours: it runs where its launch does."""

    def freed(node: BodyNode) -> BodyNode:
        attrs = {key: value for key, value in node.attrs.items() if key != _COLOCATION_ATTR}
        return replace(node, device="", attrs=attrs)

    nodes = tuple(map(freed, function.definition.nodes))
    return Function(function.name, replace(function.definition, nodes=nodes))


def _redirect_consumers(
    graph: Graph, members: Collection[Node], results: Iterable[Output], launch: Node
) -> None:
    """Let whoever stays read the launch, and wait for it."""
    gone = set(members)
    for port, item in enumerate(results):
        for use in item.node.readers(item.port):
            if use.node not in gone:
                graph.set_input(use.node, use.slot, launch.output(port))
    for node in members:
        for reader in node.control_readers:
            if reader not in gone:
                controls = [launch if source is node else source for source in reader.controls]
                graph.set_controls(reader, controls)


def _replace_members(
    graph: Graph,
    members: Iterable[Node],
    keep: Collection[Node],
    results: list[Output],
    launch: Node,
) -> Iterator[Node]:
    """Remove the nodes; those whose names are kept hand on what the launch gives."""
    nodes = list(members)
    graph.remove(*nodes)
    place = {item: port for port, item in enumerate(results)}
    for node in nodes:
        if node not in keep:
            continue
        count = registry.output_count(node) or 0
        items = [launch.output(place[Output(node, port)]) for port in range(count)]
        where: dict[str, Any] = {"name": node.name, "device": node.device}
        if not items:
            yield graph.add("NoOp", controls=[launch], **where)
        elif len(items) == 1:
            yield graph.add("Identity", *items, **where)
        else:
            yield graph.add("IdentityN", *items, **where)
