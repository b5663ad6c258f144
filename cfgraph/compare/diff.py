"""What differs between two graphs: nodes added, removed and changed, functions too."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cfgraph.analysis.verify.body_graph import body_graph
from cfgraph.analysis.verify.context import Signatures
from cfgraph.compare.bodies import Side, in_names_of, match_bodies
from cfgraph.compare.differences import (
    Change,
    ChangedFunction,
    ChangedNode,
    GraphDiff,
    NodesDiff,
)
from cfgraph.compare.match import Pairs, match_by_name, match_by_structure
from cfgraph.compare.same import same
from cfgraph.compare.signatures import entries, outside_bodies
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import registry
from cfgraph.ir.functions import Definition, Function
from cfgraph.ir.graph import Graph, Node, require_graph
from cfgraph.ir.names import did_you_mean

BY: Final = ("name", "structure")
IGNORED: Final = ("notes", "order", "devices")


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
    if by not in BY:
        raise UsageError(f"cannot compare by {by!r}", hint=f"one of {', '.join(BY)}")
    for word in ignore:
        if word not in IGNORED:
            hint = did_you_mean(word, IGNORED) or f"one of {', '.join(IGNORED)}"
            raise UsageError(f"cannot ignore {word!r}", hint=hint)
    return _Differ(by, *(word not in ignore for word in IGNORED)).graphs(a, b)


@dataclass(frozen=True, slots=True)
class _Differ:
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
        gradients = entries("gradient", a.gradient_functions, b.gradient_functions)
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

    def paired(self, a: Graph, b: Graph, pairs: Pairs) -> NodesDiff:
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
            self.order and self.by == "name" and _reordered(pairs, b),
        )

    def parts(self, a: Node, b: Node, pairs: Pairs) -> Iterator[Change]:
        """The parts of a node that differ."""
        if a.op != b.op:
            yield Change("op", a.op, b.op)
        if self.devices and a.device != b.device:
            yield Change("device", a.device, b.device)
        yield from _inputs(a, b, pairs)
        yield from self.controls(a, b, pairs)
        if not same(a.attrs, b.attrs):
            yield from _attrs(a, b, self.attrs(a), self.attrs(b))

    def controls(self, a: Node, b: Node, pairs: Pairs) -> Iterator[Change]:
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
            yield Change("order of controls", _list(a.controls), _list(b.controls))

    def attrs(self, node: Node) -> Mapping[str, Any]:
        """The attributes that count."""
        if self.notes or not any(key.startswith("_") for key in node.attrs):
            return node.attrs
        return {key: value for key, value in node.attrs.items() if not key.startswith("_")}

    def functions(
        self, a: Function, b: Function, mine: Signatures, theirs: Signatures
    ) -> ChangedFunction | None:
        """What differs between two functions of one name; None if nothing does."""
        if a is b or same(a.definition, b.definition):
            return None
        one = Side(self.signature(a.definition), body_graph(a, mine))
        other = Side(self.signature(b.definition), body_graph(b, theirs))
        graphs = one.body.subject.graph, other.body.subject.graph
        if self.by == "structure":
            pairs = match_bodies(one, other, self.attrs, self.devices)
            old = in_names_of(other, one, pairs)
        else:
            pairs, old = match_by_name(*graphs), one.definition
        nodes = self.paired(*graphs, pairs)
        changes = tuple(outside_bodies(old, other.definition))
        sound = not one.body.faults and not other.body.faults
        if not nodes and not changes and sound:
            return None
        return ChangedFunction(a.name, nodes, changes)

    def signature(self, definition: Definition) -> Definition:
        """A definition without what does not count."""
        return definition if self.notes else replace(definition, attrs={}, arg_attrs={})


def _list(nodes: Sequence[Node]) -> str:
    return ", ".join(f"^{node.name}" for node in nodes)


def _inputs(a: Node, b: Node, pairs: Pairs) -> Iterator[Change]:
    for slot in range(max(len(a.inputs), len(b.inputs))):
        old = a.inputs[slot] if slot < len(a.inputs) else None
        new = b.inputs[slot] if slot < len(b.inputs) else None
        alike = old and new and pairs.get(old.node) is new.node and old.port == new.port
        if not alike:
            yield Change(f"input {slot}", old and old.name, new and new.name)


def _attrs(a: Node, b: Node, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[Any]:
    for key in dict.fromkeys((*mine, *theirs)):
        old, new = mine.get(key), theirs.get(key)
        if key in mine and key in theirs and same(old, new):
            continue
        if (key not in mine and is_default(a, key, new)) or (
            key not in theirs and is_default(b, key, old)
        ):
            continue
        yield Change(f"attr {key}", old, new)


def is_default(node: Node, key: str, value: Any) -> bool:
    """True for the value that an attribute of a node has where it is absent."""
    try:
        return same(registry.default_attr(node, key), value)
    except InvalidInput:
        return False


def _reordered(pairs: Pairs, b: Graph) -> bool:
    """True if the nodes of both stand in another order."""
    places = {node: place for place, node in enumerate(b)}
    last = -1
    for twin in pairs.values():
        if places[twin] < last:
            return True
        last = places[twin]
    return False
