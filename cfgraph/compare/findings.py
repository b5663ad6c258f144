"""What a comparison found, as findings with codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cfgraph.analysis.findings import Finding
from cfgraph.compare.differences import Change, GraphDiff, NodesDiff

if TYPE_CHECKING:  # a comparison of nodes shall not load what runs graphs
    from cfgraph.compare.divergence import Divergence
    from cfgraph.compare.runs import RunDiff

Told = Callable[[Any], str]


def diff_findings(found: GraphDiff, told: Told) -> list[Finding]:
    """A finding for each node and function that differs; `told` prints one side of a change."""
    return [*_of_nodes(found.nodes, told), *_of_functions(found, told)]


def run_findings(found: RunDiff, told: Told) -> list[Finding]:
    """A finding for each output that is lost, and for each fetch and variable that differs, with
    the first wrong node.
    """
    first = found.first
    place: dict[str, Any] = {}
    if first is not None:
        place = {"node": first.node, "hint": f"the first wrong node is {_where(first)}"}
        place["frame"] = None if first.frame == "/" else first.frame
    items = [
        Finding("CFG806", "error", f"the second graph has no {name}", name.rpartition(":")[0])
        for name in found.missing
    ]
    items += [
        Finding("CFG804", "error", f"{gap.what}: {gap.message}{_sides(gap, told)}", **place)
        for gap in found.gaps
    ]
    if found.failure is not None:
        message = f"the second graph fails: {found.failure.message}"
        items.append(Finding("CFG805", "error", message, **place))
    return items


def _where(first: Divergence) -> str:
    return f"{first.node} ({first.op}): {first.message}"


def _sides(gap: Any, told: Told) -> str:
    return f" ({told(gap.before)} before, {told(gap.after)} after)"


def _of_nodes(found: NodesDiff, told: Told, inside: str = "") -> Iterator[Finding]:
    for items, what in ((found.removed, "removed"), (found.added, "added")):
        for node in items:
            message = f"{node.op} node {inside}{node.name} is {what}"
            yield Finding("CFG801", "error", message, f"{inside}{node.name}")
    for item in found.changed:
        parts = "; ".join(_change(change, told) for change in item.changes)
        name = f"{inside}{item.before.name}"
        yield Finding("CFG802", "error", f"{item.before.op} node {name}: {parts}", name)
    if found.reordered:
        where = f" of function {inside[:-1]}" if inside else ""
        yield Finding("CFG803", "error", f"the nodes{where} stand in another order")


def _of_functions(found: GraphDiff, told: Told) -> Iterator[Finding]:
    for name in found.functions_removed:
        yield Finding("CFG803", "error", f"function {name} is removed")
    for name in found.functions_added:
        yield Finding("CFG803", "error", f"function {name} is added")
    for item in found.functions_changed:
        for change in item.changes:
            yield Finding("CFG803", "error", f"function {item.name}: {_change(change, told)}")
        yield from _of_nodes(item.nodes, told, f"{item.name}/")
        if not item.changes and not item.nodes:
            yield Finding("CFG803", "error", f"function {item.name} differs")
    for change in found.changes:
        yield Finding("CFG803", "error", _change(change, told))


def _change(change: Change, told: Told) -> str:
    if change.before is None:
        return f"{change.part} + {told(change.after)}"
    if change.after is None:
        return f"{change.part} - {told(change.before)}"
    return f"{change.part} was {told(change.before)}, is {told(change.after)}"
