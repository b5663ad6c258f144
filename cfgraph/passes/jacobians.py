"""Jacobians, Hessians, and products with vectors.

    jacobian    J[y][x] = dy/dx, of shape y.shape + x.shape
    hessian     H[x][z] = d(sum of dy/dx)/dz, of shape x.shape + z.shape
    jvp         t[y] = sum over x of J[y][x] * tangent of x
    hvp         h[z] = sum over x of vector of x * H[x][z]

In reverse mode, a Jacobian is a loop over the elements of y that runs the backward pass for each.
In forward mode, it is a loop over the elements of x that runs the product with a vector for each.
An iteration takes several elements where the ops permit.
This product is a gradient of a gradient, which is linear in its upstream gradient u:

    jvp(v) = d(vjp(u) * v)/du
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cfgraph.analysis.gradient_paths import carries_gradient
from cfgraph.analysis.liveness_rules import liveness_rule
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.analysis.verify.verify import require_valid_result
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output, require_graph
from cfgraph.ir.names import name_list, unused_name
from cfgraph.ir.shapes import Shape
from cfgraph.ir.traversal import upstream
from cfgraph.ops.families.resource_variables import declared_shape
from cfgraph.ops.families.tensor_array_ops import TensorArrayOp
from cfgraph.ops.opdef.op import contains_op
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.derivatives import (
    UNCONNECTED,
    DerivativeRequest,
    add_gradients,
    lower_for_gradients,
)
from cfgraph.passes.functionalize.lists.tensor_lists import functionalize_lists
from cfgraph.passes.gradients.row_loop import SeedOfRow, stacked_rows
from cfgraph.passes.outcome import unchanged_on_error

MODES: Final = ("auto", "forward", "reverse")
# as many iterations of a loop run at once by default
ROWS_IN_FLIGHT: Final = 10
Names = Sequence[str | None]


def jacobian(
    graph: Graph,
    ys: str | Sequence[str],
    xs: str | Sequence[str],
    *,
    mode: str = "auto",
    per_example: bool = False,
    rows_in_flight: int = ROWS_IN_FLIGHT,
    stop_gradients: str | Iterable[str] = (),
    unconnected: str = "none",
    ignore_custom: bool = False,
) -> list[list[str | None]]:
    """Add the Jacobian of each of `ys` with respect to each of `xs`, in place.

    Args:
        mode: "reverse" runs the backward pass once per element of a y, "forward" a forward pass
            once per element of an x. "auto" takes "forward" if the xs have fewer elements in all,
            which their static shapes must show.
        per_example: assume that example i of a y, along its first axis, depends on example i of an
            x only. A Jacobian has the shape y.shape + x.shape[1:] then, and a pass serves all
            examples.
        rows_in_flight: bound on the passes that run at the same time, and so on their memory.
        stop_gradients: tensors that no derivative passes.
        unconnected: Jacobian of a y that does not depend on an x: "none" or "zero".
        ignore_custom: use the gradient of the op if a node names a custom one.

    Returns for each y a list with the name of a tensor of shape y.shape + x.shape for each x.

    Raises as `gradients`; also Unsupported if a pass has effects or draws random numbers. The graph
    is unchanged then.
    """
    ys, xs = name_list(ys), name_list(xs)
    _require_valid_loop(mode, rows_in_flight)
    options = _Options(name_list(stop_gradients), unconnected, ignore_custom)
    with _writer(graph, options, "jacobian") as writer:
        writer.replace_arrays((*ys, *xs))
        rows = _Rows(writer, mode, per_example, rows_in_flight)
        return rows.jacobian(ys, xs, ys)


def hessian(
    graph: Graph,
    ys: str | Sequence[str],
    xs: str | Sequence[str],
    *,
    mode: str = "auto",
    rows_in_flight: int = ROWS_IN_FLIGHT,
    stop_gradients: str | Iterable[str] = (),
    unconnected: str = "none",
    ignore_custom: bool = False,
) -> list[list[str | None]]:
    """Add the Jacobian of the gradients of the sum of `ys` with respect to `xs`, in place.

    Returns for each x a list with the name of a tensor of shape x.shape + z.shape for each z of
    `xs`. Arguments and errors are those of `jacobian`.
    """
    ys, xs = name_list(ys), name_list(xs)
    _require_valid_loop(mode, rows_in_flight)
    options = _Options(name_list(stop_gradients), unconnected, ignore_custom)
    with _writer(graph, options, "hessian") as writer:
        writer.replace_arrays((*ys, *xs))
        gradients = writer.gradients(ys, xs)
        return _Rows(writer, mode, False, rows_in_flight).jacobian(gradients, xs, xs)


def jvp(
    graph: Graph,
    ys: str | Sequence[str],
    xs: str | Sequence[str],
    tangents: Sequence[Any],
    *,
    stop_gradients: str | Iterable[str] = (),
    unconnected: str = "none",
    ignore_custom: bool = False,
) -> list[str | None]:
    """Add the products of the Jacobians of `ys` with a tangent for each x, in place.

    A tangent is the name of a tensor, an array, or None for ones. Returns a name for each y, of its
    shape and type. Other arguments and errors are those of `jacobian`.
    """
    ys, xs = name_list(ys), name_list(xs)
    _require_per_x(graph, tangents, xs, "tangent")
    options = _Options(name_list(stop_gradients), unconnected, ignore_custom)
    with _writer(graph, options, "jvp") as writer:
        return writer.results(writer.jvp(ys, xs, tangents), ys)


def hvp(
    graph: Graph,
    ys: str | Sequence[str],
    xs: str | Sequence[str],
    vectors: Sequence[Any],
    *,
    stop_gradients: str | Iterable[str] = (),
    unconnected: str = "none",
    ignore_custom: bool = False,
) -> list[str | None]:
    """Add the product of the Hessian of the sum of `ys` with a vector for each x, in place.

    A vector is the name of a tensor, an array, or None for ones. Returns a name for each x, of its
    shape and type. Other arguments and errors are those of `jacobian`.
    """
    xs = name_list(xs)
    _require_per_x(graph, vectors, xs, "vector")
    options = _Options(name_list(stop_gradients), unconnected, ignore_custom)
    with _writer(graph, options, "hvp") as writer:
        gradients = writer.gradients(name_list(ys), xs)
        return writer.results(writer.gradients(gradients, xs, vectors), xs)


def _require_valid_loop(mode: str, rows_in_flight: int) -> None:
    if mode not in MODES:
        message = f"mode is {mode!r}, expected one of {', '.join(MODES)}"
        raise UsageError(message, hint="use auto for the one with fewer passes")
    if rows_in_flight < 1:
        message = f"rows_in_flight is {rows_in_flight}, expected at least 1"
        raise UsageError(message, hint="use 1 to run one pass after the other")


def _require_per_x(graph: Graph, values: Sequence[Any], xs: Sequence[str], what: str) -> None:
    """Raise UsageError unless there is a value for each x, of its shape if that is known."""
    require_graph(graph)
    if len(values) != len(xs):
        message = f"{len(values)} {what}s for {len(xs)} xs, expected one per x"
        raise UsageError(message, hint="use None for ones")
    shapes = infer_shapes(graph)
    for x, value in zip(map(graph.tensor, xs), values, strict=True):
        if value is None:
            continue
        is_name = isinstance(value, str)
        shape = shapes[graph.tensor(value)] if is_name else Shape(np.shape(value))
        expected = _shape_of_value(x, shapes)
        try:
            expected.merge(shape)
        except ValueError:
            message = f"the {what} of {x.name} has shape {shape}, expected {expected}"
            raise UsageError(message, node=x.node) from None


def _shape_of_value(x: Output, shapes: StaticShapes) -> Shape:
    """The static shape of a tensor, or of the variable of a handle."""
    return declared_shape(x) if x.dtype and x.dtype.kind == "resource" else shapes[x]


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of all derivatives."""

    stop_gradients: Sequence[str]
    unconnected: str
    ignore_custom: bool


@contextmanager
def _writer(graph: Graph, options: _Options, name: str) -> Iterator[_Writer]:
    """A writer to a graph, which is unchanged if the body raises, and else has what is needed."""
    require_graph(graph)
    if options.unconnected not in UNCONNECTED:
        message = f"unconnected is {options.unconnected!r}, expected one of "
        raise UsageError(message + ", ".join(UNCONNECTED))
    with unchanged_on_error(graph):
        writer = _Writer(graph, options, unused_name(name, _first_components(graph)))
        yield writer
        writer.remove_unneeded()
        require_valid_result(graph, name)


def _require_outside_loops(graph: Graph, names: Iterable[str]) -> None:
    graph_frames = frames(graph)
    for x in map(graph.tensor, names):
        frame = graph_frames.of_outputs[x.node]
        if frame is not graph_frames.root:
            message = f"{x.name} is inside the loop {frame.path}, and a Jacobian is not"
            hint = "use gradients or a jvp, which are added to the body"
            raise Unsupported(message, node=x.node, frame=frame.path, hint=hint, code="CFG506")


def _first_components(graph: Graph) -> set[str]:
    return {name.split("/", 1)[0] for name in graph.nodes}


@dataclass(slots=True)
class _Writer:
    """Adds gradients and their products to a graph, named after `name`.

    `added` are nodes of which some are not needed in the end.
    """

    graph: Graph
    options: _Options
    name: str
    added: list[Node] = field(default_factory=list)

    def replace_arrays(self, names: Collection[str]) -> None:
        """Replace TensorArrays by lists where possible: all rows would share a gradient array.

        Raises Unsupported for a tensor in a loop.
        """
        graph = self.graph
        lower_for_gradients(graph, ignore_custom=self.options.ignore_custom)
        _require_outside_loops(graph, names)
        if contains_op(graph, TensorArrayOp):
            nodes = [graph.tensor(name).node for name in names]
            functionalize_lists(graph, liveness_rule(graph, "exact"), {}, nodes)

    def gradients(
        self, ys: Names, xs: Sequence[str], weights: Sequence[Any] | None = None
    ) -> list[str | None]:
        """Add the gradients of the ys that are not None; return their names."""
        return self._gradients(ys, xs, weights, self.options.stop_gradients)

    def _gradients(
        self, ys: Names, xs: Sequence[str], weights: Sequence[Any] | None, stops: Sequence[str]
    ) -> list[str | None]:
        known = [(y, w) for y, w in zip(ys, weights or [None] * len(ys), strict=True) if y]
        if not known:
            return [None] * len(xs)
        request = DerivativeRequest(
            [y for y, _ in known],
            xs,
            grad_ys=[weight for _, weight in known],
            stop_gradients=stops,
            ignore_custom=self.options.ignore_custom,
        )
        names, added = add_gradients(self.graph, request)
        self.added += [self.graph[name] for name in added]
        return names

    def jvp(
        self, ys: Sequence[str], xs: Sequence[str], tangents: Sequence[Any]
    ) -> list[str | None]:
        """Add the product of the Jacobian of each y with the tangents; return names."""
        active = [y for y in ys if carries_gradient(self.graph.tensor(y))]
        seeds = [self.seed(y).name for y in active]
        gradients = self.gradients(active, xs, seeds)
        # a stop has no derivative that the gradients could have passed
        products = self._gradients(gradients, seeds, tangents, ()) if active else []
        by_y = dict(zip(active, products, strict=True))
        return [by_y.get(y) for y in ys]

    def seed(self, x: str) -> Output:
        """A tensor of the type and shape of another, in the place of an upstream gradient."""
        node = self.graph.add("ZerosLike", self.graph.tensor(x), name=f"{self.name}/seed")
        self.added.append(node)
        return node.output()

    def results(self, products: Names, labels: Sequence[str]) -> list[str | None]:
        """The products, or zeros, under the names of the tensors that they belong to."""
        names: list[str | None] = []
        for product, label in zip(products, labels, strict=True):
            x = self.graph.tensor(label)
            if product is not None:
                value = self.graph.tensor(product)
                names.append(self.add("Identity", value, name=x.node.name).name)
            elif self.options.unconnected == "zero":
                names.append(self.zeros(self.shape(x), x, x.node.name).name)
            else:
                names.append(None)
        return names

    def remove_unneeded(self) -> None:
        """Remove the added nodes that no other node depends on."""
        added = {node for node in self.added if self.graph.nodes.get(node.name) is node}
        needed = upstream(node for node in self.graph if node not in added)
        self.graph.remove(*(node for node in added if node not in needed))

    # -- shapes ----------------------------------------------------------------------------------

    def add(self, op: str, *inputs: Output, name: str = "", **attrs: Any) -> Output:
        """Add a node."""
        name = f"{self.name}/{name or op}"
        return self.graph.add(op, *inputs, name=name, attrs=attrs).output()

    def constant(self, value: Any, dtype: DType = dtypes.int32) -> Output:
        """Add a constant."""
        tensor = TensorValue(np.array(value, dtype.numpy))
        return self.add("Const", dtype=dtype, value=tensor)

    def shape(self, x: Output) -> Output:
        """The shape of a tensor, or of the variable of a handle."""
        is_handle = x.dtype is not None and x.dtype.kind == "resource"
        return self.add("VariableShape" if is_handle else "Shape", x, out_type=dtypes.int32)

    def concat(self, *shapes: Output) -> Output:
        """Two shapes, one after the other."""
        return self.add("ConcatV2", *shapes, self.constant(0))

    def tail(self, shape: Output) -> Output:
        """A shape without its first axis."""
        bounds = self.constant([1]), self.constant([0]), self.constant([1])
        return self.add("StridedSlice", shape, *bounds, end_mask=1)

    def size(self, shape: Output) -> Output:
        """The number of elements of a shape."""
        return self.add("Prod", shape, self.constant([0]))

    def zeros(self, shape: Output, like: Output, name: str) -> Output:
        """Zeros of the type of a tensor, or of the variable of a handle."""
        dtype = like.dtype
        if dtype is not None and dtype.kind == "resource":
            dtype, _ = variable_of_handle(self.graph, like)
        assert dtype is not None
        return self.add("Fill", shape, self.constant(0, dtype.base), name=name)


@dataclass(slots=True)
class _Rows:
    """Jacobians by loops over rows, or over columns in forward mode."""

    writer: _Writer
    mode: str
    per_example: bool
    rows_in_flight: int

    def jacobian(
        self, ys: Names, xs: Sequence[str], labels: Sequence[str]
    ) -> list[list[str | None]]:
        """Add the Jacobian of each y that is not None, under its label; return names."""
        known = [y for y in ys if y is not None]
        if self._is_forward(known, xs):
            columns = [self._columns(known, x) for x in xs]
            rows = [list(row) for row in zip(*columns, strict=True)]
        else:
            rows = [self._rows(y, xs) for y in known]
        by_y = dict(zip(known, rows, strict=True))
        empty: list[Output | None] = [None] * len(xs)
        return [
            [
                self._named(tensor, label, x)
                for tensor, x in zip(empty if y is None else by_y[y], xs, strict=True)
            ]
            for y, label in zip(ys, labels, strict=True)
        ]

    def _is_forward(self, ys: Sequence[str], xs: Sequence[str]) -> bool:
        if self.mode != "auto":
            return self.mode == "forward"
        rows, columns = self._count(ys), self._count(xs)
        return rows is not None and columns is not None and columns < rows

    def _count(self, names: Sequence[str]) -> int | None:
        """The number of passes for some tensors, if it is static."""
        graph = self.writer.graph
        shapes, count = infer_shapes(graph), 0
        for name in names:
            x = graph.tensor(name)
            shape = _shape_of_value(x, shapes)
            sizes = [size for size in shape if size is not None] if shape.is_full else None
            if sizes is None:
                return None
            count += math.prod(sizes[int(self.per_example) :])
        return count

    # -- passes ----------------------------------------------------------------------------------

    def _rows(self, y: str, xs: Sequence[str]) -> list[Output | None]:
        """The Jacobians of a y, one backward pass per row."""
        writer, graph = self.writer, self.writer.graph
        if not carries_gradient(graph.tensor(y)):
            return [None] * len(xs)
        seed = writer.seed(y)
        names = writer.gradients([y], xs, [seed.name])
        shapes = [writer.shape(graph.tensor(x)) for x in xs]
        y_shape = writer.shape(graph.tensor(y))
        stacked = self._stacked(seed.name, names, shapes, y_shape)
        return [
            rows and self._reshaped_rows(rows, y_shape, x_shape)
            for rows, x_shape in zip(stacked, shapes, strict=True)
        ]

    def _columns(self, ys: Sequence[str], x: str) -> list[Output | None]:
        """The Jacobians with respect to an x, one forward pass per column."""
        writer, graph = self.writer, self.writer.graph
        x_shape = writer.shape(graph.tensor(x))
        seed = writer.zeros(x_shape, graph.tensor(x), "seed")
        writer.added.append(seed.node)
        names = writer.jvp(ys, [x], [seed.name])
        shapes = [writer.shape(graph.tensor(y)) for y in ys]
        stacked = self._stacked(seed.name, names, shapes, x_shape)
        return [
            columns and self._reshaped_columns(columns, y_shape, x_shape)
            for columns, y_shape in zip(stacked, shapes, strict=True)
        ]

    def _stacked(
        self, seed: str, names: Names, shapes: Sequence[Output], seed_shape: Output
    ) -> list[Output | None]:
        """The results of all passes, with a first axis for their seeds."""
        writer, graph = self.writer, self.writer.graph
        known = [
            (graph.tensor(name), shape) for name, shape in zip(names, shapes, strict=True) if name
        ]
        if not known:
            return [None] * len(names)
        source = graph.tensor(seed)
        passes = writer.size(writer.tail(seed_shape) if self.per_example else seed_shape)
        stacked = stacked_rows(
            graph,
            source,
            [x for x, _ in known],
            [shape for _, shape in known],
            passes,
            self._one_hot(source, seed_shape, passes),
            rows_in_flight=self.rows_in_flight,
            name=f"{writer.name}/rows",
            added=writer.added,
        )
        found = iter(stacked)
        return [None if name is None else next(found) for name in names]

    def _one_hot(self, source: Output, shape: Output, passes: Output) -> SeedOfRow:
        """Seeds with a one in the element of the row: of each example, or of the tensor."""
        writer = self.writer
        assert source.dtype is not None
        dtype = source.dtype.base
        values = writer.constant(1, dtype), writer.constant(0, dtype)
        row_shape = shape
        if self.per_example:
            row_shape = writer.concat(writer.constant([1]), writer.tail(shape))

        def seed(row: Output, rows: int | None, enter: Callable[[Output], Output]) -> Output:
            def with_rows(sizes: Output) -> Output:
                return sizes if rows is None else writer.concat(writer.constant([rows]), sizes)

            one_hot = writer.add("OneHot", row, *map(enter, (passes, *values)))
            one = writer.add("Reshape", one_hot, enter(with_rows(row_shape)))
            if not self.per_example:
                return one
            return writer.add("BroadcastTo", one, enter(with_rows(shape)))

        return seed

    def _reshaped_rows(self, rows: Output, y_shape: Output, x_shape: Output) -> Output:
        writer = self.writer
        if not self.per_example:
            return writer.add("Reshape", rows, writer.concat(y_shape, x_shape))
        # one axis for the elements of an example of y, one for the examples, one for those of x
        shape, rest = writer.shape(rows), writer.tail(x_shape)
        first = writer.add("Slice", shape, writer.constant([0]), writer.constant([2]))
        sizes = writer.concat(first, writer.add("Reshape", writer.size(rest), writer.constant([1])))
        grouped = writer.add("Reshape", rows, sizes)
        moved = writer.add("Transpose", grouped, writer.constant([1, 0, 2]))
        return writer.add("Reshape", moved, writer.concat(y_shape, rest))

    def _reshaped_columns(self, columns: Output, y_shape: Output, x_shape: Output) -> Output:
        writer = self.writer
        rest = writer.tail(x_shape) if self.per_example else x_shape
        sizes = [writer.size(rest), writer.size(y_shape)]
        matrix = writer.add("Reshape", columns, writer.add("Pack", *sizes))
        moved = writer.add("Transpose", matrix, writer.constant([1, 0]))
        return writer.add("Reshape", moved, writer.concat(y_shape, rest))

    def _named(self, tensor: Output | None, y: str, x: str) -> str | None:
        """A Jacobian, or zeros, under the names of its tensors."""
        writer, graph = self.writer, self.writer.graph
        first, second = graph.tensor(y), graph.tensor(x)
        name = f"{first.node.name}/{second.node.name}"
        if tensor is not None:
            return writer.add("Identity", tensor, name=name).name
        if writer.options.unconnected != "zero":
            return None
        rest = writer.shape(second)
        shape = writer.concat(writer.shape(first), writer.tail(rest) if self.per_example else rest)
        return writer.zeros(shape, second if first.dtype is None else first, name).name
