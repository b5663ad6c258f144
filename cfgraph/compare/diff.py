"""Structural diff of two graphs: nodes and functions added, removed, and changed.

Arguments and results of functions are matched by name, because callers see them; the node of a
result is matched with the node of the same result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cfgraph.analysis.verify.body_graph import BodyGraph, body_graph
from cfgraph.analysis.verify.context import Signatures
from cfgraph.compare.differences import Change, ChangedFunction, ChangedNode, GraphDiff, NodesDiff
from cfgraph.compare.match import (
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
from cfgraph.ir.signature import ArgDef
from cfgraph.ir.text.lexer import format_name
from cfgraph.ir.text.printer import AttrPrinter, format_arg, format_attr_def


class DiffSide(NamedTuple):
    """One of two functions that are compared: what of its definition counts, and its body."""

    definition: FunctionDefinition
    body: BodyGraph


def match_bodies(a: DiffSide, b: DiffSide, attrs: AttrsOfNode, devices: bool) -> NodePairs:
    """Pairs of nodes that play the same part; `attrs` gives those that matter of a node."""
    parts = _interface_labels(a) | _interface_labels(b)

    def marked(node: Node) -> Mapping[str, Any]:
        return {**attrs(node), "": parts[node]} if node in parts else attrs(node)

    return match_by_structure(a.body.subject.graph, b.body.subject.graph, marked, devices)


def _interface_labels(side: DiffSide) -> dict[Node, tuple[str, ...]]:
    """Which arguments and results nodes are, of those that are any."""
    found: dict[Node, list[str]] = defaultdict(list)
    for node in side.body.subject.arguments:
        found[node].append(f"argument {node.name}")
    for name, item in side.body.returns.items():
        found[item.node].append(f"result {name}:{item.port}")
    for name, text in side.definition.control_returns.items():
        if text in side.body.subject.graph:
            found[side.body.subject.graph[text]].append(f"control {name}")
    return {node: tuple(sorted(parts)) for node, parts in found.items()}


def with_result_names(b: DiffSide, a: DiffSide, pairs: NodePairs) -> FunctionDefinition:
    """The definition of `a`; what it returns has the names of `b` where it is the same."""
    returns, controls = dict(a.definition.returns), dict(a.definition.control_returns)
    for name, text in b.definition.returns.items():
        if _is_same_output(a.body.returns.get(name), b.body.returns.get(name), pairs):
            returns[name] = text
    nodes = a.body.subject.graph.nodes
    for name, text in controls.items():
        twin = pairs.get(nodes[text]) if text in nodes else None
        controls[name] = text if twin is None else twin.name
    return replace(a.definition, returns=returns, control_returns=controls)


def _is_same_output(one: Output | None, other: Output | None, pairs: NodePairs) -> bool:
    """True for the same output of nodes that are paired."""
    if one is None or other is None:
        return False
    return pairs.get(one.node) is other.node and one.port == other.port


def definition_changes(old: FunctionDefinition, new: FunctionDefinition) -> Iterator[Change]:
    """What differs between two functions but for their bodies, part by part."""
    found = list(_interface_changes(old, new))
    if not found and not attrs_equal(replace(old, nodes=()), replace(new, nodes=())):
        found.append(Change("signature", "one", "another"))
    yield from found


def _interface_changes(old: FunctionDefinition, new: FunctionDefinition) -> Iterator[Change]:
    for part, read in _SIGNATURE_PARTS.items():
        before, after = read(old), read(new)
        if before != after:
            yield Change(part, before, after)
    yield from mapping_changes("attr declared", _declared_attrs(old), _declared_attrs(new))
    yield from mapping_changes("return", old.returns, new.returns)
    yield from mapping_changes("control return", old.control_returns, new.control_returns)
    yield from mapping_changes("attr", old.attrs, new.attrs)
    for place in sorted({*old.arg_attrs, *new.arg_attrs}):
        arguments = new.inputs if place < len(new.inputs) else old.inputs
        name = arguments[place].name if 0 <= place < len(arguments) else str(place)
        sides = (item.arg_attrs.get(place, {}) for item in (old, new))
        yield from mapping_changes(f"input {name} attr", *sides)


_SIGNATURE_PARTS: Final[Mapping[str, Callable[[FunctionDefinition], Any]]] = {
    "inputs": lambda definition: _format_args(definition.inputs),
    "outputs": lambda definition: _format_args(definition.outputs),
    "control outputs": lambda definition: ", ".join(definition.control_outputs),
    "stateful": lambda definition: definition.stateful,
}


def _format_args(items: Sequence[ArgDef]) -> str:
    return ", ".join(map(format_arg, items))


def _declared_attrs(definition: FunctionDefinition) -> dict[str, str]:
    """The attributes that a function declares, as one writes them."""
    printer = AttrPrinter()
    return {
        name: format_attr_def(attr, printer).removeprefix(f"attr {format_name(name)}: ")
        for name, attr in definition.attr_defs.items()
    }


def mapping_changes(
    part: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[Change]:
    """What two mappings have under each key, where it is not the same."""
    for key in dict.fromkeys((*mine, *theirs)):
        if not attrs_equal(mine.get(key), theirs.get(key)):
            yield Change(f"{part} {key}", mine.get(key), theirs.get(key))


MATCH_MODES: Final = ("name", "structure")
IGNORABLE_PARTS: Final = ("notes", "order", "devices")


def diff(a: Graph, b: Graph, *, by: str = "name", ignore: Collection[str] = ()) -> GraphDiff:
    """Compare two graphs, a with b, node by node, in time linear in their size.

    Nodes are paired by `name`, or by `structure`: what they read and what reads them, in bodies of
    functions too; functions, their arguments and results always by name. `ignore` leaves out
    `notes` (attributes that begin with `_`, versions), `order` (of nodes and of control inputs) and
    `devices`. An attribute that is absent counts as its default. Raises UsageError for another
    word.
    """
    require_graph(a)
    require_graph(b)
    if by not in MATCH_MODES:
        raise UsageError(f"cannot compare by {by!r}", hint=f"one of {', '.join(MATCH_MODES)}")
    for word in ignore:
        if word not in IGNORABLE_PARTS:
            hint = did_you_mean(word, IGNORABLE_PARTS) or f"one of {', '.join(IGNORABLE_PARTS)}"
            raise UsageError(f"cannot ignore {word!r}", hint=hint)
    return _GraphDiffer(by, *(word not in ignore for word in IGNORABLE_PARTS)).graphs(a, b)


@dataclass(frozen=True, slots=True)
class _GraphDiffer:
    """Compares, some things left out."""

    by: str
    notes: bool
    order: bool
    devices: bool

    def graphs(self, a: Graph, b: Graph) -> GraphDiff:
        """All that differs between two graphs."""
        mine, theirs = a.functions, b.functions
        both = Signatures(mine), Signatures(theirs)
        found = (self.functions(mine[name], theirs[name], *both) for name in mine if name in theirs)
        gradients = mapping_changes("gradient", a.gradient_functions, b.gradient_functions)
        return GraphDiff(
            self.nodes(a, b),
            tuple(name for name in theirs if name not in mine),
            tuple(name for name in mine if name not in theirs),
            tuple(item for item in found if item is not None),
            (*(self.versions(a, b) if self.notes else ()), *gradients),
        )

    def versions(self, a: Graph, b: Graph) -> Iterator[Change]:
        """The versions that the files give."""
        for part, old, new in zip(a.versions._fields, a.versions, b.versions, strict=True):
            if old != new:
                yield Change(part, old, new)

    def nodes(self, a: Graph, b: Graph) -> NodesDiff:
        """What differs between the nodes of two graphs."""
        if self.by == "structure":
            return self.paired(a, b, match_by_structure(a, b, self.attrs, self.devices))
        return self.paired(a, b, match_by_name(a, b))

    def paired(self, a: Graph, b: Graph, pairs: NodePairs) -> NodesDiff:
        """What differs between nodes that belong together, and which do not."""
        taken = set(pairs.values())
        compared = (ChangedNode(*item, tuple(self.parts(*item, pairs))) for item in pairs.items())
        changed = [item for item in compared if item.changes]
        unlike = {item.before for item in changed}
        return NodesDiff(
            tuple(node for node in b if node not in taken),
            tuple(node for node in a if node not in pairs),
            tuple(changed),
            {
                one.name: other.name
                for one, other in pairs.items()
                if one.name != other.name and one not in unlike
            },
            self.order and self.by == "name" and _is_reordered(pairs, b),
        )

    def parts(self, a: Node, b: Node, pairs: NodePairs) -> Iterator[Change]:
        """The parts of a node that differ."""
        if a.op != b.op:
            yield Change("op", a.op, b.op)
        if self.devices and a.device != b.device:
            yield Change("device", a.device, b.device)
        yield from _input_changes(a, b, pairs)
        yield from self.controls(a, b, pairs)
        if not attrs_equal(a.attrs, b.attrs):
            yield from _attr_changes(a, b, self.attrs(a), self.attrs(b))

    def controls(self, a: Node, b: Node, pairs: NodePairs) -> Iterator[Change]:
        """Nodes that one waits for and the other does not."""
        if not a.controls and not b.controls:
            return
        awaited, there = [pairs.get(item) for item in a.controls], set(b.controls)
        known = set(awaited)
        gone = [item for item, twin in zip(a.controls, awaited, strict=True) if twin not in there]
        for item in gone:
            yield Change("control", f"^{item.name}", None)
        new = [item for item in b.controls if item not in known]
        for item in new:
            yield Change("control", None, f"^{item.name}")
        if self.order and not gone and not new and tuple(awaited) != b.controls:
            yield Change("order of controls", _format_names(a.controls), _format_names(b.controls))

    def attrs(self, node: Node) -> Mapping[str, Any]:
        """The attributes that count."""
        if self.notes or not any(key.startswith("_") for key in node.attrs):
            return node.attrs
        return {key: value for key, value in node.attrs.items() if not key.startswith("_")}

    def functions(
        self, a: Function, b: Function, mine: Signatures, theirs: Signatures
    ) -> ChangedFunction | None:
        """What differs between two functions of one name; None if nothing does."""
        if a is b or attrs_equal(a.definition, b.definition):
            return None
        one = DiffSide(self.signature(a.definition), body_graph(a, mine))
        other = DiffSide(self.signature(b.definition), body_graph(b, theirs))
        graphs = one.body.subject.graph, other.body.subject.graph
        if self.by == "structure":
            pairs = match_bodies(one, other, self.attrs, self.devices)
            old = with_result_names(other, one, pairs)
        else:
            pairs, old = match_by_name(*graphs), one.definition
        nodes = self.paired(*graphs, pairs)
        changes = tuple(definition_changes(old, other.definition))
        sound = not one.body.faults and not other.body.faults
        if not nodes and not changes and sound:
            return None
        return ChangedFunction(a.name, nodes, changes)

    def signature(self, definition: FunctionDefinition) -> FunctionDefinition:
        """A definition without what does not count."""
        return definition if self.notes else replace(definition, attrs={}, arg_attrs={})


def _format_names(nodes: Sequence[Node]) -> str:
    return ", ".join(f"^{node.name}" for node in nodes)


def _input_changes(a: Node, b: Node, pairs: NodePairs) -> Iterator[Change]:
    for slot in range(max(len(a.inputs), len(b.inputs))):
        old = a.inputs[slot] if slot < len(a.inputs) else None
        new = b.inputs[slot] if slot < len(b.inputs) else None
        alike = old and new and pairs.get(old.node) is new.node and old.port == new.port
        if not alike:
            yield Change(f"input {slot}", old and old.name, new and new.name)


def _attr_changes(
    a: Node, b: Node, mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[Any]:
    for key in dict.fromkeys((*mine, *theirs)):
        old, new = mine.get(key), theirs.get(key)
        if key in mine and key in theirs and attrs_equal(old, new):
            continue
        if (key not in mine and is_default_attr(a, key, new)) or (
            key not in theirs and is_default_attr(b, key, old)
        ):
            continue
        yield Change(f"attr {key}", old, new)


def is_default_attr(node: Node, key: str, value: Any) -> bool:
    """True for the value that an attribute of a node has where it is absent."""
    try:
        return attrs_equal(registry.default_attr(node, key), value)
    except InvalidInput:
        return False


def _is_reordered(pairs: NodePairs, b: Graph) -> bool:
    """True if the nodes of both stand in another order."""
    places = {node: place for place, node in enumerate(b)}
    last = -1
    for twin in pairs.values():
        if places[twin] < last:
            return True
        last = places[twin]
    return False
