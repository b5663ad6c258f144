"""Results of comparisons: of graphs by structure, and of their runs; findings for reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cfgraph.analysis.findings import Finding
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph, Node
from cfgraph.rich_display import DisplayedReport


@dataclass(frozen=True, slots=True)
class Change:
    """One changed part of a node: `op`, `device`, `input I`, `control`, or `attr KEY`.

    None means that one of the two nodes lacks the part.
    """

    part: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """A node of both graphs with its changes."""

    before: Node
    after: Node
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class NodesDiff:
    """Differences between the nodes of two graphs, or of two function bodies.

    `renamed` maps nodes that differ only in their names, if nodes are matched by structure.
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
    """A function of both libraries: differences in its body, and in its signature."""

    name: str
    nodes: NodesDiff
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphDiff(DisplayedReport):
    """Differences between two graphs; true if there are any."""

    nodes: NodesDiff = field(default_factory=NodesDiff)
    functions_added: tuple[str, ...] = ()
    functions_removed: tuple[str, ...] = ()
    functions_changed: tuple[ChangedFunction, ...] = ()
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        functions = self.functions_added or self.functions_removed or self.functions_changed
        return bool(self.nodes or functions or self.changes)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first wrong token: its node, frame, and iteration, and the difference.

    `before` and `after` are the two values of output `port` if values differ.
    """

    node: str
    op: str
    frame: str
    iteration: int
    message: str
    port: int | None = None
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class ValueMismatch:
    """Two different values of a tensor or variable, which `what` names."""

    what: str
    message: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class RunDiff(DisplayedReport):
    """Result of comparing runs; true if they differ, which ends the cases.

    `inputs` are those of the case that differs, `variables` values of variables that had none, and
    `seed` is that of its random ops. `failure` is the error of the second graph, and `first` is its
    first wrong node. `missing` are outputs that the second graph lacks, which is also a difference.
    `lowered` is true if functions of the first graph had to be lowered, so that errors of lowering
    that affect both graphs are not visible. `races` are accesses in no defined order by the name of
    the fetch or target that depends on them, and is not compared.
    `targets` are nodes that ran, too, in modes of TensorFlow. `no_value` are the fetches that have
    no value in either graph, in no case; `paired` the tensors of the second graph for inputs and
    outputs of the first that have other names there; `notices` warnings and notes that change no
    verdict. `distance` is the largest between two numbers that agree, of a mode. `graphs` are the
    two that `compare` compared, for the text of the report.
    """

    fetches: tuple[str, ...]
    missing: tuple[str, ...] = ()
    cases: int = 0
    gaps: tuple[ValueMismatch, ...] = ()
    failure: CfgraphError | None = None
    first: Divergence | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    seed: int = 0
    lowered: bool = False
    races: Mapping[str, Finding] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    no_value: tuple[str, ...] = ()
    paired: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[Finding, ...] = ()
    distance: float | None = None
    graphs: tuple[Graph, ...] = field(default=(), repr=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.gaps or self.failure or self.missing)


class ValuesDiffer(CfgraphError):
    """An edited graph computes other values; `runs` is the comparison."""

    def __init__(self, message: str, runs: RunDiff, **details: Any) -> None:
        super().__init__(message, **details)
        self.runs = runs


ValueFormatter = Callable[[Any], str]


def diff_findings(delta: GraphDiff, format_value: ValueFormatter) -> list[Finding]:
    """Return a finding per node and function that differs; `format_value` prints a value."""
    return [*_node_findings(delta.nodes, format_value), *_function_findings(delta, format_value)]


def run_findings(delta: RunDiff, format_value: ValueFormatter) -> list[Finding]:
    """Return a finding per missing output, and per fetch and variable that differs.

    Each of the latter names the first wrong node. Races follow, whose fetches are not compared, and
    notices.
    """
    first = delta.first
    location: dict[str, Any] = {}
    if first is not None:
        location = {
            "node": first.node,
            "hint": f"the first wrong node is {first.node} ({first.op}): {first.message}",
        }
        location["frame"] = None if first.frame == "/" else first.frame
    items = [
        Finding("CFG806", "error", f"the second graph has no {name}", name.rpartition(":")[0])
        for name in delta.missing
    ]
    items += [
        Finding(
            "CFG804",
            "error",
            f"{gap.what}: {gap.message}{_describe_values(gap, format_value)}",
            **location,
        )
        for gap in delta.gaps
    ]
    if delta.failure is not None:
        message = f"the second graph fails: {delta.failure.message}"
        items.append(Finding("CFG805", "error", message, **location))
    return [*items, *dict.fromkeys(delta.races.values()), *delta.notices]


def _describe_values(gap: Any, format_value: ValueFormatter) -> str:
    return f" ({format_value(gap.before)} before, {format_value(gap.after)} after)"


def _node_findings(
    delta: NodesDiff, format_value: ValueFormatter, inside: str = ""
) -> Iterator[Finding]:
    for nodes, verb in ((delta.removed, "removed"), (delta.added, "added")):
        for node in nodes:
            message = f"{node.op} node {inside}{node.name} was {verb}"
            yield Finding("CFG801", "error", message, f"{inside}{node.name}")
    for item in delta.changed:
        parts = "; ".join(_describe_change(change, format_value) for change in item.changes)
        name = f"{inside}{item.before.name}"
        yield Finding("CFG802", "error", f"{item.before.op} node {name}: {parts}", name)
    if delta.reordered:
        where = f" of function {inside[:-1]}" if inside else ""
        yield Finding("CFG803", "error", f"the nodes{where} are in a different order")


def _function_findings(delta: GraphDiff, format_value: ValueFormatter) -> Iterator[Finding]:
    for name in delta.functions_removed:
        yield Finding("CFG803", "error", f"function {name} was removed")
    for name in delta.functions_added:
        yield Finding("CFG803", "error", f"function {name} was added")
    for item in delta.functions_changed:
        for change in item.changes:
            yield Finding(
                "CFG803", "error", f"function {item.name}: {_describe_change(change, format_value)}"
            )
        yield from _node_findings(item.nodes, format_value, f"{item.name}/")
        if not item.changes and not item.nodes:
            yield Finding("CFG803", "error", f"function {item.name} differs")
    for change in delta.changes:
        yield Finding("CFG803", "error", _describe_change(change, format_value))


def _describe_change(change: Change, format_value: ValueFormatter) -> str:
    if change.before is None:
        return f"{change.part} + {format_value(change.after)}"
    if change.after is None:
        return f"{change.part} - {format_value(change.before)}"
    return f"{change.part} was {format_value(change.before)}, is {format_value(change.after)}"
