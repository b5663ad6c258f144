"""Structural diff of two graphs: nodes and functions added, removed, and changed.

Arguments and results of functions are matched by name, because callers see them; the node of a
result is matched with the node of the same result.
"""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cfgraph.analysis.verify.context import Signatures
from cfgraph.analysis.verify.function_rules import BodyGraph, body_graph
from cfgraph.comparison.differences import (
    Change,
    ChangedFunction,
    ChangedNode,
    GraphDiff,
    NodesDiff,
)
from cfgraph.comparison.match import (
    AttrsOfNode,
    NodePairs,
    attrs_equal,
    match_by_name,
    match_by_structure,
)
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import registry
from cfgraph.ir.functions import Function, FunctionDefinition
from cfgraph.ir.graph import Graph, Node, Output, require_graph
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.serde.graph_def import extra_of_graph, extra_of_node
from cfgraph.ir.signature import ArgDef
from cfgraph.ir.text.printer import AttrPrinter, format_arg, format_attr_def, format_name


class DiffSide(NamedTuple):
    """One of two compared functions: the relevant part of its definition, and its body."""

    definition: FunctionDefinition
    body: BodyGraph


def match_bodies(a: DiffSide, b: DiffSide, attrs: AttrsOfNode, devices: bool) -> NodePairs:
    """Pair nodes by structure; arguments and results are paired by name."""
    labels = _interface_labels(a) | _interface_labels(b)

    def marked(node: Node) -> Mapping[str, Any]:
        return {**attrs(node), "": labels[node]} if node in labels else attrs(node)

    return match_by_structure(a.body.subject.graph, b.body.subject.graph, marked, devices)


def _interface_labels(side: DiffSide) -> dict[Node, tuple[str, ...]]:
    """Return the arguments and results that nodes are."""
    labels: dict[Node, list[str]] = defaultdict(list)
    for node in side.body.subject.arguments:
        labels[node].append(f"argument {node.name}")
    for name, tensor in side.body.returns.items():
        labels[tensor.node].append(f"result {name}:{tensor.port}")
    for name, text in side.definition.control_returns.items():
        if text in side.body.subject.graph:
            labels[side.body.subject.graph[text]].append(f"control {name}")
    return {node: tuple(sorted(texts)) for node, texts in labels.items()}


def with_result_names(b: DiffSide, a: DiffSide, pairs: NodePairs) -> FunctionDefinition:
    """Return the definition of `a` with the names of `b` for results that are paired."""
    returns, controls = dict(a.definition.returns), dict(a.definition.control_returns)
    for name, text in b.definition.returns.items():
        if _is_same_output(a.body.returns.get(name), b.body.returns.get(name), pairs):
            returns[name] = text
    nodes = a.body.subject.graph.nodes
    for name, text in controls.items():
        twin = pairs.get(nodes[text]) if text in nodes else None
        controls[name] = text if twin is None else twin.name
    return replace(a.definition, returns=returns, control_returns=controls)


def _is_same_output(a: Output | None, b: Output | None, pairs: NodePairs) -> bool:
    """Return true for the same output of paired nodes."""
    if a is None or b is None:
        return False
    return pairs.get(a.node) is b.node and a.port == b.port


def definition_changes(old: FunctionDefinition, new: FunctionDefinition) -> Iterator[Change]:
    """Yield the differences between two functions except in their bodies."""
    changes = list(_interface_changes(old, new))
    if not changes and not attrs_equal(replace(old, nodes=()), replace(new, nodes=())):
        changes.append(Change("signature", "one", "another"))
    yield from changes


def _interface_changes(old: FunctionDefinition, new: FunctionDefinition) -> Iterator[Change]:
    for part, read in _SIGNATURE_PARTS.items():
        before, after = read(old), read(new)
        if before != after:
            yield Change(part, before, after)
    yield from mapping_changes("attr declared", _declared_attrs(old), _declared_attrs(new))
    yield from mapping_changes("return", old.returns, new.returns)
    yield from mapping_changes("control return", old.control_returns, new.control_returns)
    yield from mapping_changes("attr", old.attrs, new.attrs)
    for index in sorted({*old.arg_attrs, *new.arg_attrs}):
        arguments = new.inputs if index < len(new.inputs) else old.inputs
        name = arguments[index].name if 0 <= index < len(arguments) else str(index)
        sides = (definition.arg_attrs.get(index, {}) for definition in (old, new))
        yield from mapping_changes(f"input {name} attr", *sides)


_SIGNATURE_PARTS: Final[Mapping[str, Callable[[FunctionDefinition], Any]]] = {
    "inputs": lambda definition: _format_args(definition.inputs),
    "outputs": lambda definition: _format_args(definition.outputs),
    "control outputs": lambda definition: ", ".join(definition.control_outputs),
    "stateful": lambda definition: definition.stateful,
}


def _format_args(args: Sequence[ArgDef]) -> str:
    return ", ".join(map(format_arg, args))


def _declared_attrs(definition: FunctionDefinition) -> dict[str, str]:
    """Return the attributes that a function declares, as text."""
    printer = AttrPrinter()
    return {
        name: format_attr_def(attr, printer).removeprefix(f"attr {format_name(name)}: ")
        for name, attr in definition.attr_defs.items()
    }


def mapping_changes(part: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the differences between two mappings by key."""
    for key in dict.fromkeys((*old, *new)):
        if not attrs_equal(old.get(key), new.get(key)):
            yield Change(f"{part} {key}", old.get(key), new.get(key))


MATCH_MODES: Final = ("name", "structure")
IGNORABLE_PARTS: Final = ("notes", "order", "devices")


def diff(a: Graph, b: Graph, *, by: str = "name", ignore: Collection[str] = ()) -> GraphDiff:
    """Compare graph a with graph b, node by node, in time linear in their size.

    Nodes are paired by `name`, or by `structure` (producers and consumers), also in the bodies of
    functions; functions, their arguments, and their results always by name. `ignore` excludes
    `notes` (attributes that start with `_`, versions, and fields that have no other form, shown in
    base64), `order` (of nodes and of control inputs), and `devices`. An absent attribute equals its
    default. Raises UsageError for an unknown value of `by` or `ignore`.
    """
    require_graph(a)
    require_graph(b)
    if by not in MATCH_MODES:
        raise UsageError(f"cannot compare by {by!r}", hint=f"use one of {', '.join(MATCH_MODES)}")
    for word in ignore:
        if word not in IGNORABLE_PARTS:
            hint = did_you_mean(word, IGNORABLE_PARTS) or f"use one of {', '.join(IGNORABLE_PARTS)}"
            raise UsageError(f"cannot ignore {word!r}", hint=hint)
    return _GraphDiffer(by, *(word not in ignore for word in IGNORABLE_PARTS)).graphs(a, b)


@dataclass(frozen=True, slots=True)
class _GraphDiffer:
    """Comparison with options; a false field is ignored."""

    by: str
    notes: bool
    order: bool
    devices: bool

    def graphs(self, a: Graph, b: Graph) -> GraphDiff:
        """Return the differences between two graphs."""
        old, new = a.functions, b.functions
        both = Signatures(old), Signatures(new)
        changed = (self.functions(old[name], new[name], *both) for name in old if name in new)
        gradients = mapping_changes("gradient", a.gradient_functions, b.gradient_functions)
        return GraphDiff(
            self.nodes(a, b),
            tuple(name for name in new if name not in old),
            tuple(name for name in old if name not in new),
            tuple(function for function in changed if function is not None),
            (*(self.notes_of_graphs(a, b) if self.notes else ()), *gradients),
        )

    def notes_of_graphs(self, a: Graph, b: Graph) -> Iterator[Change]:
        """Yield the differences between the versions and other fields in the files."""
        for part, old, new in zip(a.versions._fields, a.versions, b.versions, strict=True):
            if old != new:
                yield Change(part, old, new)
        yield from _extra_changes(extra_of_graph(a), extra_of_graph(b))

    def nodes(self, a: Graph, b: Graph) -> NodesDiff:
        """Return the differences between the nodes of two graphs."""
        if self.by == "structure":
            return self.paired(a, b, match_by_structure(a, b, self.comparable_attrs, self.devices))
        return self.paired(a, b, match_by_name(a, b))

    def paired(self, a: Graph, b: Graph, pairs: NodePairs) -> NodesDiff:
        """Return the differences between paired nodes, and the nodes that are not paired."""
        paired = set(pairs.values())
        compared = (ChangedNode(*pair, tuple(self.parts(*pair, pairs))) for pair in pairs.items())
        changed = [node for node in compared if node.changes]
        differing = {node.before for node in changed}
        return NodesDiff(
            tuple(node for node in b if node not in paired),
            tuple(node for node in a if node not in pairs),
            tuple(changed),
            {
                old.name: new.name
                for old, new in pairs.items()
                if old.name != new.name and old not in differing
            },
            self.order and self.by == "name" and _is_reordered(pairs, b),
        )

    def parts(self, a: Node, b: Node, pairs: NodePairs) -> Iterator[Change]:
        """Yield the differences between two nodes."""
        if a.op != b.op:
            yield Change("op", a.op, b.op)
        if self.devices and a.device != b.device:
            yield Change("device", a.device, b.device)
        yield from _input_changes(a, b, pairs)
        yield from self.controls(a, b, pairs)
        if not attrs_equal(a.attrs, b.attrs):
            yield from _attr_changes(a, b, self.comparable_attrs(a), self.comparable_attrs(b))
        if self.notes:
            yield from _extra_changes(extra_of_node(a)[1], extra_of_node(b)[1])

    def controls(self, a: Node, b: Node, pairs: NodePairs) -> Iterator[Change]:
        """Yield the differences between control inputs."""
        if not a.controls and not b.controls:
            return
        twins, controls = [pairs.get(source) for source in a.controls], set(b.controls)
        known = set(twins)
        removed = [
            node for node, twin in zip(a.controls, twins, strict=True) if twin not in controls
        ]
        for node in removed:
            yield Change("control", f"^{node.name}", None)
        added = [node for node in b.controls if node not in known]
        for node in added:
            yield Change("control", None, f"^{node.name}")
        if self.order and not removed and not added and tuple(twins) != b.controls:
            yield Change("order of controls", _format_names(a.controls), _format_names(b.controls))

    def comparable_attrs(self, node: Node) -> Mapping[str, Any]:
        """Return the attributes to compare: without `_` annotations if notes are ignored."""
        if self.notes or not any(key.startswith("_") for key in node.attrs):
            return node.attrs
        return {key: value for key, value in node.attrs.items() if not key.startswith("_")}

    def functions(
        self, a: Function, b: Function, signatures_a: Signatures, signatures_b: Signatures
    ) -> ChangedFunction | None:
        """Return the differences between two functions of one name, or None if there are none."""
        if a is b or attrs_equal(a.definition, b.definition):
            return None
        side_a = DiffSide(self.signature(a.definition), body_graph(a, signatures_a))
        side_b = DiffSide(self.signature(b.definition), body_graph(b, signatures_b))
        graphs = side_a.body.subject.graph, side_b.body.subject.graph
        if self.by == "structure":
            pairs = match_bodies(side_a, side_b, self.comparable_attrs, self.devices)
            old = with_result_names(side_b, side_a, pairs)
        else:
            pairs, old = match_by_name(*graphs), side_a.definition
        nodes = self.paired(*graphs, pairs)
        changes = tuple(definition_changes(old, side_b.definition))
        sound = not side_a.body.faults and not side_b.body.faults
        if not nodes and not changes and sound:
            return None
        return ChangedFunction(a.name, nodes, changes)

    def signature(self, definition: FunctionDefinition) -> FunctionDefinition:
        """Return a definition without ignored parts."""
        return definition if self.notes else replace(definition, attrs={}, arg_attrs={})


def _format_names(nodes: Sequence[Node]) -> str:
    return ", ".join(f"^{node.name}" for node in nodes)


def _input_changes(a: Node, b: Node, pairs: NodePairs) -> Iterator[Change]:
    for slot in range(max(len(a.inputs), len(b.inputs))):
        old = a.inputs[slot] if slot < len(a.inputs) else None
        new = b.inputs[slot] if slot < len(b.inputs) else None
        is_same = old and new and pairs.get(old.node) is new.node and old.port == new.port
        if not is_same:
            yield Change(f"input {slot}", old and old.name, new and new.name)


def _attr_changes(
    a: Node, b: Node, attrs_a: Mapping[str, Any], attrs_b: Mapping[str, Any]
) -> Iterator[Any]:
    for key in dict.fromkeys((*attrs_a, *attrs_b)):
        old, new = attrs_a.get(key), attrs_b.get(key)
        if key in attrs_a and key in attrs_b and attrs_equal(old, new):
            continue
        if (key not in attrs_a and is_default_attr(a, key, new)) or (
            key not in attrs_b and is_default_attr(b, key, old)
        ):
            continue
        yield Change(f"attr {key}", old, new)


def _extra_changes(a: bytes, b: bytes) -> Iterator[Change]:
    if a != b:
        yield Change("other fields", *(b64encode(data).decode() or None for data in (a, b)))


def is_default_attr(node: Node, key: str, value: Any) -> bool:
    """Return true for the default value of an attribute."""
    try:
        return attrs_equal(registry.default_attr(node.name, node.op, key), value)
    except InvalidInput:
        return False


def _is_reordered(pairs: NodePairs, b: Graph) -> bool:
    """Return true if paired nodes are in a different order."""
    position = {node: number for number, node in enumerate(b)}
    last = -1
    for twin in pairs.values():
        if position[twin] < last:
            return True
        last = position[twin]
    return False
