"""Results of a structural diff, and findings from differences between graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cfgraph.analysis.findings import Finding
from cfgraph.ir.graph import Node

if TYPE_CHECKING:
    from cfgraph.compare.divergence import Divergence
    from cfgraph.compare.equivalence import RunDiff


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a node that is another: `op`, `device`, `input I`, `control`, `attr KEY`.

    None stands for what one of the two does not have.
    """

    part: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """A node that both graphs have, and what is different about it."""

    before: Node
    after: Node
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class NodesDiff:
    """What differs between the nodes of two graphs, or of two functions' bodies.

    `renamed` are those that are alike in all but their names, if names do not count.
    """

    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changed: tuple[ChangedNode, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    reordered: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.reordered)


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """A function of both libraries: what differs in its body, and in the rest of it."""

    name: str
    nodes: NodesDiff
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """What differs between two graphs; true where anything does."""

    nodes: NodesDiff = field(default_factory=NodesDiff)
    functions_added: tuple[str, ...] = ()
    functions_removed: tuple[str, ...] = ()
    functions_changed: tuple[ChangedFunction, ...] = ()
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        functions = self.functions_added or self.functions_removed or self.functions_changed
        return bool(self.nodes or functions or self.changes)


ValueFormatter = Callable[[Any], str]


def diff_findings(found: GraphDiff, told: ValueFormatter) -> list[Finding]:
    """A finding for each node and function that differs; `told` prints one side of a change."""
    return [*_node_findings(found.nodes, told), *_function_findings(found, told)]


def run_findings(found: RunDiff, told: ValueFormatter) -> list[Finding]:
    """A finding for each output that is lost, and for each fetch and variable that differs, with
    the first wrong node.
    """
    first = found.first
    place: dict[str, Any] = {}
    if first is not None:
        place = {
            "node": first.node,
            "hint": f"the first wrong node is {_describe_divergence(first)}",
        }
        place["frame"] = None if first.frame == "/" else first.frame
    items = [
        Finding("CFG806", "error", f"the second graph has no {name}", name.rpartition(":")[0])
        for name in found.missing
    ]
    items += [
        Finding(
            "CFG804", "error", f"{gap.what}: {gap.message}{_describe_values(gap, told)}", **place
        )
        for gap in found.gaps
    ]
    if found.failure is not None:
        message = f"the second graph fails: {found.failure.message}"
        items.append(Finding("CFG805", "error", message, **place))
    return items


def _describe_divergence(first: Divergence) -> str:
    return f"{first.node} ({first.op}): {first.message}"


def _describe_values(gap: Any, told: ValueFormatter) -> str:
    return f" ({told(gap.before)} before, {told(gap.after)} after)"


def _node_findings(found: NodesDiff, told: ValueFormatter, inside: str = "") -> Iterator[Finding]:
    for items, what in ((found.removed, "removed"), (found.added, "added")):
        for node in items:
            message = f"{node.op} node {inside}{node.name} is {what}"
            yield Finding("CFG801", "error", message, f"{inside}{node.name}")
    for item in found.changed:
        parts = "; ".join(_describe_change(change, told) for change in item.changes)
        name = f"{inside}{item.before.name}"
        yield Finding("CFG802", "error", f"{item.before.op} node {name}: {parts}", name)
    if found.reordered:
        where = f" of function {inside[:-1]}" if inside else ""
        yield Finding("CFG803", "error", f"the nodes{where} stand in another order")


def _function_findings(found: GraphDiff, told: ValueFormatter) -> Iterator[Finding]:
    for name in found.functions_removed:
        yield Finding("CFG803", "error", f"function {name} is removed")
    for name in found.functions_added:
        yield Finding("CFG803", "error", f"function {name} is added")
    for item in found.functions_changed:
        for change in item.changes:
            yield Finding(
                "CFG803", "error", f"function {item.name}: {_describe_change(change, told)}"
            )
        yield from _node_findings(item.nodes, told, f"{item.name}/")
        if not item.changes and not item.nodes:
            yield Finding("CFG803", "error", f"function {item.name} differs")
    for change in found.changes:
        yield Finding("CFG803", "error", _describe_change(change, told))


def _describe_change(change: Change, told: ValueFormatter) -> str:
    if change.before is None:
        return f"{change.part} + {told(change.after)}"
    if change.after is None:
        return f"{change.part} - {told(change.before)}"
    return f"{change.part} was {told(change.before)}, is {told(change.after)}"
