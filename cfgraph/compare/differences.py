"""Results of comparisons: of graphs by structure, and of values within tolerances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cfgraph.analysis.findings import Finding
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.rich_display import DisplayedReport

if TYPE_CHECKING:
    from cfgraph.compare.divergence import Divergence
    from cfgraph.compare.equivalence import RunDiff


# (relative, absolute) by the size in bytes of a real number; other types are exact
_TOLERANCES: Final = {8: (1e-9, 0.0), 4: (2e-5, 1e-6), 2: (1e-2, 1e-3), 1: (0.25, 1e-2)}


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """Difference between a value and the expected one.

    `count` of `total` elements are not within `rtol` and `atol`; `index` is the first of them. If
    the types or shapes differ, only `message` is set.
    """

    message: str
    count: int = 0
    total: int = 0
    max_abs: float | None = None
    max_rel: float | None = None
    index: tuple[int, ...] | None = None
    actual: Any = None
    expected: Any = None
    rtol: float = 0.0
    atol: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the difference as a member of a command's JSON document."""
        return {
            "message": self.message,
            "count": self.count,
            "total": self.total,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "index": None if self.index is None else list(self.index),
            "actual": self.actual,
            "expected": self.expected,
            "rtol": self.rtol,
            "atol": self.atol,
        }


def default_tolerances(dtype: DType) -> tuple[float, float]:
    """Return the relative and absolute tolerance of a type, both 0 except for floating types."""
    if dtype.is_complex:
        return _TOLERANCES[dtype.numpy.itemsize // 2]
    return _TOLERANCES[dtype.numpy.itemsize] if dtype.is_floating else (0.0, 0.0)


def value_difference(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None
) -> ValueDifference | None:
    """Return the difference, or None if |a - e| <= atol + rtol * |e| for all elements.

    NaN equals NaN, and an infinity equals itself. The default tolerances depend on the type;
    integers, booleans, and strings are always compared exactly.
    """
    a, e = np.asarray(actual), np.asarray(expected)
    if a.dtype != e.dtype:
        return ValueDifference(f"the type is {_dtype_name(a)}, expected {_dtype_name(e)}")
    if a.shape != e.shape:
        return ValueDifference(f"the shape is {Shape(a.shape)}, expected {Shape(e.shape)}")
    dtype = DType.from_numpy(a.dtype)
    default = default_tolerances(dtype)
    inexact = dtype.is_floating or dtype.is_complex
    rtol = default[0] if rtol is None or not inexact else rtol
    atol = default[1] if atol is None or not inexact else atol
    with np.errstate(all="ignore"):
        wide, gaps = _absolute_gaps(a, e, dtype)
        bad = _mismatches(a, e, gaps <= atol + rtol * np.abs(wide)) if inexact else a != e
        return _describe(a, e, bad, wide, gaps, rtol, atol) if np.any(bad) else None


def _mismatches(a: Any, e: Any, close: Any) -> Any:
    """Mark floating values that differ: finite ones beyond the tolerances, others if unequal."""
    equal = (a == e) | (np.isnan(a) & np.isnan(e))
    return ~np.where(np.isfinite(a) & np.isfinite(e), close, equal)


def _dtype_name(array: Any) -> str:
    try:
        return DType.from_numpy(array.dtype).name
    except TypeError:
        return str(array.dtype)


def _absolute_gaps(a: Any, e: Any, dtype: DType) -> tuple[Any, Any]:
    """Return the expected values in a type that can represent all gaps, and the gaps."""
    if dtype.is_object or dtype.kind == "bool":
        return e, np.zeros(e.shape)
    if dtype.is_integer:
        wide = np.uint64 if dtype.kind == "uint" else np.int64
        a, e = a.astype(wide), e.astype(wide)
        # modulo 2**64, which the true gap is below
        return e, np.maximum(a, e).astype(np.uint64) - np.minimum(a, e).astype(np.uint64)
    exact = np.complex128 if dtype.is_complex else np.float64
    return e.astype(exact), np.abs(a.astype(exact) - e.astype(exact))


def _describe(
    a: Any, e: Any, bad: Any, wide: Any, gaps: Any, rtol: float, atol: float
) -> ValueDifference:
    count, total = int(np.sum(bad)), int(a.size)
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    max_abs, max_rel = (None, None) if e.dtype.kind in "Ob" else _largest_gaps(bad, wide, gaps)
    first = f"the first at {list(index)}" if index else "the value"
    message = f"{count} of {total} elements differ, {first}" if index else "the value differs"
    return ValueDifference(
        message, count, total, max_abs, max_rel, index, a[index], e[index], rtol, atol
    )


def _largest_gaps(bad: Any, wide: Any, gaps: Any) -> tuple[float, float]:
    """Return the largest absolute and relative gap of the elements that differ."""
    absolute = np.asarray(gaps)[bad].astype(np.float64)
    relative = absolute / np.abs(np.asarray(wide)[bad]).astype(np.float64)
    return float(absolute.max()), float(relative.max())


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


ValueFormatter = Callable[[Any], str]


def diff_findings(delta: GraphDiff, format_value: ValueFormatter) -> list[Finding]:
    """Return a finding per node and function that differs; `format_value` prints a value."""
    return [*_node_findings(delta.nodes, format_value), *_function_findings(delta, format_value)]


def run_findings(delta: RunDiff, format_value: ValueFormatter) -> list[Finding]:
    """Return a finding per missing output, and per fetch and variable that differs.

    Each of the latter names the first wrong node. Races follow, whose fetches are not compared.
    """
    first = delta.first
    location: dict[str, Any] = {}
    if first is not None:
        location = {
            "node": first.node,
            "hint": f"the first wrong node is {_describe_divergence(first)}",
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
    return [*items, *dict.fromkeys(delta.races.values())]


def _describe_divergence(first: Divergence) -> str:
    return f"{first.node} ({first.op}): {first.message}"


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
