"""Feeds of nodes inside of loops and functions: one value, in every iteration and call.

The run has a copy of the graph in which a placeholder outside of all loops is fed instead. A
constant Enter leads its value into each loop. Where the fed node would be dead, so is the value: an
Identity waits for the branches and for the body that the node is in.

    x = Neg(a)   in a loop     ->   x/fed = Placeholder()                    outside of the loop
    y = Exp(x)                      enter = Enter(x/fed) {is_constant}
                                    y = Exp(Identity(enter, ^taken))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.analysis.inner_nodes import inner_nodes
from cfgraph.analysis.loops.branch_decisions import BranchDecision
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.analysis.loops.while_loop import loop_variable
from cfgraph.errors import UsageError
from cfgraph.ir.colocation import COLOCATION_ATTR
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import OutputPorts
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.node import node_name
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ops.opdef.op import is_functional, role_of, strip_identities
from cfgraph.runtime.fetches import calling_node
from cfgraph.runtime.preparation.run_passes import lowered_graph

# nodes of a loop that are its structure: their inputs can be fed
_STRUCTURE: Final = (Role.ENTER, Role.LOOP_COND, Role.NEXT_ITERATION)


class InnerFeeds(NamedTuple):
    """A copy of a graph, and the placeholders to feed in it, by the names of inner tensors.

    `replaced` are these tensors in the copy, which nothing reads.
    """

    graph: Graph
    placeholders: Mapping[str, Output]
    replaced: tuple[Output, ...]


def inner_feeds(graph: Graph, names: Iterable[str]) -> InnerFeeds | None:
    """The copy in which tensors of loops and functions can be fed, or None if no name is of one.

    `FUNCTION/NODE` is a node in all calls of a function. Raises UsageError for a tensor that cannot
    be fed, naming one that can.
    """
    tensors = {name: [*_tensor_names(graph, name)] for name in _inner_names(graph, names)}
    return replace_by_inputs(graph, tensors) if tensors else None


def replace_by_inputs(graph: Graph, tensors: Mapping[str, Sequence[str]]) -> InnerFeeds:
    """The copy in which the readers of tensors, by name in a run, read a placeholder per list.

    Raises UsageError for a tensor that cannot be replaced, naming one that can.
    """
    copy = lowered_graph(graph) if is_functional(graph, graph) else copy_graph(graph)
    placeholders, replaced = {}, list[Output]()
    for name, listed in tensors.items():
        outputs = [*map(copy.tensor, listed)]
        placeholders[name] = _replace(copy, outputs)
        replaced += outputs
    return InnerFeeds(copy, placeholders, tuple(replaced))


def remove_unread(graph: Graph, nodes: Iterable[Node], original: Graph) -> None:
    """Remove nodes that nothing reads, and what only they read, but no node of the original."""
    unread = [node for node in dict.fromkeys(nodes) if not node.uses]
    while unread:
        node = unread.pop()
        sources = dict.fromkeys([*(tensor.node for tensor in node.inputs), *node.controls])
        graph.remove(node)
        unread += [item for item in sources if not item.uses and item.name not in original]


def function_tensors(graph: Graph, names: Iterable[str]) -> dict[str, list[str]]:
    """The names in a run of tensors of functions that the graph calls: one, or one per call.

    Raises UsageError for a node that no call has.
    """
    inner = (name for name in _inner_names(graph, names) if node_name(name) not in graph)
    return {name: [*_tensor_names(graph, name)] for name in inner}


def _inner_names(graph: Graph, names: Iterable[str]) -> Iterator[str]:
    """The names of tensors in loops, and in functions that the graph calls."""
    fed = {name: graph.nodes.get(node_name(name)) for name in names}
    has_loops = any(ROLES[op] is Role.ENTER for op in graph.ops)
    is_placed = has_loops and any(node and not is_input(node) for node in fed.values())
    graph_frames = frames(graph) if is_placed else None
    outside = () if graph_frames is None else (None, graph_frames.root)
    for name, node in fed.items():
        if node is None:
            base = node_name(name)
            if base.partition("/")[0] in graph.functions or calling_node(graph, base) is not None:
                yield name
        elif graph_frames is not None and graph_frames.of_outputs.get(node) not in outside:
            yield name


def _tensor_names(graph: Graph, name: str) -> Iterator[str]:
    """The names in a run of a tensor: one, or one per call of its function."""
    base = node_name(name)
    function, _, inner = base.partition("/")
    if function not in graph.functions or base in graph:
        yield name
        return
    found = [
        item.name
        for item in inner_nodes(graph, graph)
        if item.function == function and item.body.name == inner
    ]
    if not found:
        message = f"no node {inner!r} in a call of the function {function!r}"
        raise UsageError(message, hint=f"`show --filter function:{function}` lists its nodes")
    yield from (f"{item}{name.removeprefix(base)}" for item in found)


def _replace(graph: Graph, tensors: list[Output]) -> Output:
    """Read a new placeholder in place of tensors of one node in several calls."""
    dtype, first = _fed_type(graph, tensors[0]), tensors[0].node
    places = _places(graph, tensors)
    name = graph.unique_name(f"{first.name}/fed")
    attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
    placeholder = graph.create(name, "Placeholder", attrs=attrs).output()
    for tensor, place in zip(tensors, places, strict=True):
        value = placeholder
        for loop, decisions in place:
            if loop.parent is not None:
                value = _entered(graph, value, loop, dtype)
            value = _guarded(graph, value, decisions, dtype)
        graph.replace_uses(tensor, value)
    return placeholder


# the frames from the root to that of a tensor, each with what is decided in it
_Place = list[tuple[Frame, list[BranchDecision]]]


def _places(graph: Graph, tensors: Iterable[Output]) -> list[_Place]:
    """The frames that a value goes through to each tensor, and where it is live in them."""
    graph_frames = frames(graph)
    conditions = PathConditions(graph_frames)
    places = list[_Place]()
    for tensor in tensors:
        frame = graph_frames.of_outputs[tensor.node]
        _require_replaceable(tensor, frame)
        condition = conditions.of_node(tensor.node)
        if role_of(tensor.node) is Role.SWITCH:
            condition = condition.also(conditions.decision(tensor))
        decided: dict[Frame, list[BranchDecision]] = {graph_frames.root: []}
        decided |= {loop: [] for loop in frame.loops}
        for decision in condition.decisions():
            source = decision.test.source.node
            # a value waits neither for a message nor for what a loop decided before it ended
            inner = graph_frames.of_outputs[source]
            if inner in decided and role_of(source) is not Role.RECV:
                decided[inner].append(decision)
        places.append([*decided.items()])
    return places


def _fed_type(graph: Graph, tensor: Output) -> DType:
    dtype = OutputPorts(graph.functions).dtype(tensor)
    if dtype is not None and dtype.kind not in ("resource", "variant") and not dtype.is_ref:
        return dtype
    message = f"{tensor.name} is a {dtype or 'tensor of unknown type'} and cannot be fed"
    origin = strip_identities(tensor).node
    while role_of(origin) in (Role.ENTER, Role.SWITCH):
        origin = strip_identities(origin.inputs[0]).node
    hint = "feed a tensor that is computed from it"
    if origin is not tensor.node:
        hint = f"feed {origin.name}, where it comes from"
    raise UsageError(message, node=tensor.node, hint=hint)


def _message(tensor: Output, frame: Frame) -> str:
    op = tensor.node.op
    return f"{tensor.name} is inside the loop {frame.path} and cannot be fed: {op} is part of it"


def _require_replaceable(tensor: Output, frame: Frame) -> None:
    """Raise UsageError for a tensor that makes a loop one."""
    node = tensor.node
    if role_of(node) in _STRUCTURE:
        message = _message(tensor, frame)
        raise UsageError(message, node=node, hint=f"feed its input, {node.inputs[0].name}")
    variable = loop_variable(node)
    if variable is not None:
        message = _message(tensor, frame)
        hint = f"feed its first value, {variable.initial.name}"
        switch = next((use.node for use in node.uses if role_of(use.node) is Role.SWITCH), None)
        if switch is not None:
            hint += f", or what the body reads, {switch.name}:1"
        raise UsageError(message, node=node, hint=hint)


def _entered(graph: Graph, value: Output, loop: Frame, dtype: DType) -> Output:
    """The value as an invariant of a loop."""
    attrs = dict(loop.enters[0].attrs)
    attrs.pop(COLOCATION_ATTR, None)
    attrs |= {"T": dtype, "is_constant": True}
    name = graph.unique_name(f"{value.node.name}/enter")
    return graph.create(name, "Enter", (value,), attrs=attrs).output()


def _guarded(
    graph: Graph, value: Output, decisions: Sequence[BranchDecision], dtype: DType
) -> Output:
    """The value, live where all decisions are made."""
    if not decisions:
        return value
    controls = [_pivot(graph, decision, value.node.name) for decision in decisions]
    name = graph.unique_name(f"{value.node.name}/live")
    made = graph.create(name, "Identity", (value,), controls=controls, attrs={"T": dtype})
    return made.output()


def _pivot(graph: Graph, decision: BranchDecision, scope: str) -> Node:
    """A node that is live where a decision is made; what a Switch forwards need not run."""
    source, switch = decision.test.source, decision.output.node
    output, attrs = source, {"T": OutputPorts(graph.functions).dtype(source)}
    if decision.test.branches:
        name = graph.unique_name(f"{scope}/branch")
        counts = {"num_outs": switch.attrs["num_outs"]} if "num_outs" in switch.attrs else {}
        op = switch.op.removeprefix("Ref")
        branch = graph.create(name, op, (source, source), attrs=attrs | counts)
        output = branch.output(decision.branch)
    return graph.create(graph.unique_name(f"{scope}/taken"), "Identity", (output,), attrs=attrs)
