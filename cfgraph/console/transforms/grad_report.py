"""Report of added gradients: names, types, sizes, and the ops at which gradients end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from cfgraph.analysis.feeds_and_fetches import format_type
from cfgraph.analysis.gradient_paths import GradientCut, find_gradient_cut
from cfgraph.cli.output import OutputTable, Page, Styled, report_table
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import Output, node_name
from cfgraph.ir.role import Role
from cfgraph.ir.serde.saved_model import SavedSignature, SignatureTensor
from cfgraph.ir.serde.saved_model_writer import extended_signature
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.units import format_count
from cfgraph.ops.families.stacks import StackPushV2
from cfgraph.ops.opdef.op import is_a, role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.derivatives import Derivative
from cfgraph.reports import Column, Count, Record


@dataclass(frozen=True, slots=True)
class GradientRow:
    """Gradient with respect to one x: its tensor and type, or where the path to it is cut."""

    order: int
    x: str
    gradient: str | None
    dtype: DType | None
    shape: Shape
    cut: GradientCut | None
    y: str = ""

    @property
    def tensor(self) -> Annotated[str, Column(title="gradient")]:
        """The name of the gradient."""
        return self.gradient or Styled("none", "dim")

    @property
    def type(self) -> Annotated[str | None, Column(optional=True)]:
        """Type and shape of the gradient."""
        return None if self.gradient is None else format_type(self.dtype, self.shape)

    def labels(self, names: Mapping[str, str]) -> list[str]:
        """The names of the y, for a Jacobian or product, and of the x."""
        return [names.get(name) or node_name(name) for name in (self.y, self.x) if name]

    @property
    def is_unconnected(self) -> bool:
        """True if no path at all leads from the x to a y."""
        return self.cut is not None and self.cut.kind == "none"


class CutReport(Record):
    """The nodes at which all paths from an x to a y end, and the reason."""

    kind: str
    nodes: Sequence[str]
    reason: str


class GradientReport(Record):
    """Gradient with respect to one x."""

    order: Count
    y: str  #: The y of a Jacobian or product; empty for a gradient, which is of all ys.
    x: str
    gradient: str | None  #: A tensor; null where no y depends on x.
    type: str | None
    cut: CutReport | None  #: Where the path from y to x is cut.


def _cut_report(cut: GradientCut | None) -> CutReport | None:
    if cut is None:
        return None
    return CutReport.from_attributes(cut, nodes=[node.name for node in cut.nodes])


@dataclass(frozen=True, slots=True)
class AddedGradients:
    """Gradients, nodes, accumulators, and loops added to a graph."""

    ys: tuple[str, ...]
    rows: tuple[GradientRow, ...]
    nodes: int
    accumulators: int
    loops: int
    kind: str = "gradients"

    @property
    def has_gradients(self) -> bool:
        """True if an x has a gradient."""
        return any(row.gradient is not None for row in self.rows)

    def reports(self) -> list[GradientReport]:
        """Return the gradients for the document."""
        return [GradientReport.from_attributes(row, cut=_cut_report(row.cut)) for row in self.rows]

    def names(self) -> dict[str, list[str | None]]:
        """Return the names of the gradients by x, the first derivative first."""
        gradients: dict[str, list[str | None]] = {}
        for row in self.rows:
            gradients.setdefault(row.x or row.y, []).append(row.gradient)
        return gradients

    def extend(self, signature: SavedSignature) -> SavedSignature:
        """Add the gradients to the outputs of a signature: `gradients/x` for its input `x`."""
        tensors = (*signature.inputs, *signature.outputs)
        labels = {item.tensor: item.name for item in tensors}
        outputs = [
            SignatureTensor(
                "/".join((row.gradient.split("/", 1)[0], *row.labels(labels))),
                row.gradient,
                row.dtype,
                row.shape,
            )
            for row in self.rows
            if row.gradient is not None and row.dtype is not None
        ]
        return extended_signature(signature, outputs)

    @property
    def warnings(self) -> list[str]:
        """Describe each x without a gradient of order 1."""
        cuts = [row for row in self.rows if row.cut and row.order == 1]
        return [f"no gradient with respect to {row.x}: {row.cut.reason}" for row in cuts if row.cut]


def added_gradients(graph: Graph, derivatives: Sequence[Derivative]) -> AddedGradients:
    """Describe what was added to a graph."""
    added = [graph[name] for item in derivatives for name in item.added if name in graph]
    return AddedGradients(
        derivatives[0].ys,
        tuple(_gradient_rows(graph, derivatives)),
        len(added),
        sum(is_a(node, StackPushV2) for node in added),
        sum(role_of(node) is Role.LOOP_COND for node in added),
    )


def _gradient_rows(graph: Graph, derivatives: Sequence[Derivative]) -> list[GradientRow]:
    shapes = _GradientShapes(graph, derivatives)
    rows = []
    for item in derivatives:
        ys, stops = map(graph.tensor, item.ys), list(map(graph.tensor, item.stops))
        targets = list(ys)
        for x, name in zip(item.xs, item.names, strict=True):
            if name is None:
                cut = find_gradient_cut(targets, graph.tensor(x), stops)
                rows.append(GradientRow(item.order, x, None, None, UNKNOWN_SHAPE, cut))
                continue
            tensor, source = graph.tensor(name), graph.tensor(x)
            shape = shapes.gradient_shape(tensor, source)
            rows.append(GradientRow(item.order, x, name, tensor.dtype, shape, None))
    return rows


class _GradientShapes:
    """Shapes of gradients. Most are those of x, without a look at what computes the gradient."""

    def __init__(self, graph: Graph, derivatives: Sequence[Derivative]) -> None:
        self._graph = graph
        xs = {graph.tensor(x) for item in derivatives for x in item.xs}
        self._of_xs = infer_shapes(graph, sent=xs)

    @cached_property
    def _inferred(self) -> StaticShapes:
        return infer_shapes(self._graph)

    def gradient_shape(self, gradient: Output, x: Output) -> Shape:
        # a handle has another type than the gradient, which is that of the variable's value
        has_shape_of_x = x.dtype == gradient.dtype
        if has_shape_of_x and self._of_xs[x].is_full:
            return self._of_xs[x]
        shape = self._inferred[gradient]
        return self._of_xs[x] if has_shape_of_x and not shape.is_full else shape


def gradients_table(rows: Sequence[GradientRow]) -> OutputTable:
    """Return one row per order and x."""
    order = ["order"] * any(row.order > 1 for row in rows)
    labels = [name for name in ("y", "x") if any(getattr(row, name) for row in rows)]
    return report_table(GradientRow, rows, *order, *labels, "tensor", "type", "cut.reason")


def print_gradients(out: Page, added: AddedGradients, *, xs_are_defaults: bool = False) -> None:
    """Print the gradients as a table.

    Default xs that nothing leads from are only counted: a graph does not say which of its variables
    a y needs.
    """
    counts = (
        _count_text(added.nodes, "node"),
        _count_text(added.accumulators, "value saved per iteration", "values saved per iteration"),
        _count_text(added.loops, "loop"),
    )
    what = f"{added.kind} of {', '.join(added.ys)}"
    out.heading(what, f"added {', '.join(filter(None, counts))}")
    shown = [row for row in added.rows if not (xs_are_defaults and row.is_unconnected)]
    if shown:
        out.table(gradients_table(shown))
    every = {row.x for row in added.rows}
    if hidden := len(every) - len({row.x for row in shown}):
        what = f"{hidden} of {len(every)} variables and inputs {'is' if hidden == 1 else 'are'}"
        out.paragraph(f"  {what} not connected to {_ys_text(added.ys)}", "dim")


def _ys_text(ys: Sequence[str]) -> str:
    return ys[0] if len(ys) == 1 else "any y"


def _count_text(count: int, singular: str, plural: str = "") -> str:
    if not count and not singular.startswith("node"):
        return ""
    return f"{count} {plural}" if plural and count != 1 else format_count(count, singular)
