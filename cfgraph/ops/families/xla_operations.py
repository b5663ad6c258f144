"""Operations of XLA as ops of a graph: products, windows, slices, and decompositions.

jax2tf wrote them before it wrote modules. TensorFlow runs them only in compiled functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.serde.dimension_numbers import dimension_numbers
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.families.decomposition import Svd, smaller_size
from cfgraph.ops.families.einsum import Einsum
from cfgraph.ops.families.functional import RegroupOp
from cfgraph.ops.families.matmul import conjugate_transpose
from cfgraph.ops.families.matrix_functions import MatrixOp, matrix_dims, square_dims
from cfgraph.ops.kernels.array_namespace import computed_in_float32
from cfgraph.ops.kernels.random_bits import philox_bits, three_fry_bits
from cfgraph.ops.kernels.xla_arrays import (
    dilated_size,
    is_traced,
    padded,
    padded_shape,
    product_over,
    window_count,
    windows,
)
from cfgraph.ops.kernels.xla_windows import WindowNumbers
from cfgraph.ops.opdef.facts import Aliasing, CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import ALL_NUMBERS, FLOATS, INDEX, Kernel, Op, OpError, SameShape, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, shape_of_rank, static_ints

INDICES = f"Tindices: {INDEX}"


class XlaDotV2(Op):
    """Sums of products over contracted dimensions, with batch dimensions first."""

    signature = "lhs: LhsT, rhs: RhsT -> output: preferred_element_type"
    attrs = (
        f"{one_of(ALL_NUMBERS, attr='LhsT')}, {one_of(ALL_NUMBERS, attr='RhsT')}, "
        "dimension_numbers: string, precision_config: string, "
        f"{one_of(ALL_NUMBERS, attr='preferred_element_type')}"
    )
    result_type = "preferred_element_type"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dimensions = _dot_dimensions(node.attr("dimension_numbers"))
        dtype = node.attr(cls.result_type)

        def kernel(x: Any, y: Any) -> Any:
            if is_traced(xp):
                from jax import lax

                return lax.dot_general(x, y, dimensions, preferred_element_type=dtype.numpy)
            product = computed_in_float32(partial(product_over, dimensions), dtype)
            return product(x.astype(dtype.numpy), y.astype(dtype.numpy))

        return kernel

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        (cx, cy), (bx, by) = _dot_dimensions(context.attr("dimension_numbers"))
        x, y = context.inputs
        if x.dims is None or y.dims is None:
            return [UNKNOWN_SHAPE]
        if max((-1, *cx, *bx)) >= len(x.dims) or max((-1, *cy, *by)) >= len(y.dims):
            raise ShapeError(f"the dimension numbers do not fit the shapes {x} and {y}")
        batch = Shape(x.dims[i] for i in bx).merge(Shape(y.dims[i] for i in by))
        Shape(x.dims[i] for i in cx).merge(Shape(y.dims[i] for i in cy))
        rest = [n for i, n in enumerate(x.dims) if i not in (*cx, *bx)]
        rest += [n for i, n in enumerate(y.dims) if i not in (*cy, *by)]
        return [batch + Shape(rest)]


class XlaDot(XlaDotV2):
    """Sums of products of operands of one type."""

    signature = "lhs: T, rhs: T -> output: T"
    attrs = f"{one_of(ALL_NUMBERS)}, dimension_numbers: string, precision_config: string"
    result_type = "T"


def _dot_dimensions(data: bytes) -> tuple[Any, Any]:
    """The contracted dimensions of both operands, and those of the batch."""
    numbers = dimension_numbers("dot", data)
    names = "lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch"
    cx, cy, bx, by = (numbers[f"{name}_dimensions"] for name in names)
    return (cx, cy), (bx, by)


class XlaConvV2(Op):
    """Convolution with dilations of both operands, in any order of dimensions and in groups."""

    signature = (
        "lhs: LhsT, rhs: RhsT, window_strides: const Tindices, padding: const Tindices, "
        "lhs_dilation: const Tindices, rhs_dilation: const Tindices, "
        "feature_group_count: const Tindices -> output: preferred_element_type"
    )
    attrs = (
        f"{one_of(ALL_NUMBERS, attr='LhsT')}, {one_of(ALL_NUMBERS, attr='RhsT')}, {INDICES}, "
        "dimension_numbers: string, precision_config: string, "
        f"{one_of(ALL_NUMBERS, attr='preferred_element_type')}, batch_group_count: int = 1"
    )
    result_type = "preferred_element_type"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        images, kernels, results = _conv_dimensions(node.attr("dimension_numbers"))
        dtype = node.attr(cls.result_type)
        batch_groups = cls.batch_groups(node)

        def convolve(x: Any, w: Any, strides: Any, padding: Any, *rest: Any) -> Any:
            base, window, groups = (value.tolist() for value in rest)
            if is_traced(xp):
                from jax import lax

                return lax.conv_general_dilated(
                    x.astype(dtype.numpy),
                    w.astype(dtype.numpy),
                    strides.tolist(),
                    [tuple(row) for row in padding.tolist()],
                    base,
                    window,
                    lax.ConvDimensionNumbers(images, kernels, results),
                    groups,
                    batch_groups,
                    preferred_element_type=dtype.numpy,
                )
            x = x.astype(dtype.numpy).transpose(images)
            w = w.astype(dtype.numpy).transpose(kernels)
            config = [(0, 0, 0)] * 2
            config += [(*row, step - 1) for row, step in zip(padding.tolist(), base, strict=True)]
            x = padded(xp, x, x.dtype.type(0), config)
            view = windows(x, w.shape[2:], strides.tolist(), window)
            product = computed_in_float32(partial(_grouped_products, groups, batch_groups), dtype)
            return product(view, w).transpose(np.argsort(results))

        return convolve

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        images, kernels, results = _conv_dimensions(context.attr("dimension_numbers"))
        x, w = context.inputs[:2]
        strides, base, window = (static_ints(context, slot) for slot in (2, 4, 5))
        padding = context.value(3)
        if x.dims is None or w.dims is None or padding is None:
            return [shape_of_rank(len(results))]
        if strides is None or base is None or window is None:
            return [shape_of_rank(len(results))]
        batch = x.dims[images[0]]
        dims = [None if batch is None else batch // cls.batch_groups(context), w.dims[kernels[0]]]
        for axis, (low, high) in enumerate(padding.tolist()):
            size, extent = x.dims[images[axis + 2]], w.dims[kernels[axis + 2]]
            if size is None or extent is None:
                dims.append(None)
                continue
            total = dilated_size(size, base[axis]) + low + high
            dims.append(window_count(total, extent, strides[axis], window[axis]))
        return [Shape(dims[results.index(axis)] for axis in range(len(results)))]

    @classmethod
    def batch_groups(cls, node: Node | InferenceContext) -> int:
        """The number of groups of the batch, each with filters of its own."""
        return int(node.attr("batch_group_count"))


class XlaConv(XlaConvV2):
    """Convolution of operands of one type."""

    signature = (
        XlaConvV2.signature.replace("LhsT", "T")
        .replace("RhsT", "T")
        .replace("preferred_element_type", "T")
    )
    attrs = f"{one_of(ALL_NUMBERS)}, {INDICES}, dimension_numbers: string, precision_config: string"
    result_type = "T"
    batch_groups = staticmethod(lambda node: 1)


def _conv_dimensions(data: bytes) -> tuple[tuple[int, ...], ...]:
    """Dimensions of images, kernels, and results: batch or outputs, features or inputs, places."""
    n = dimension_numbers("convolution", data)
    return (
        (n["input_batch_dimension"], n["input_feature_dimension"], *n["input_spatial_dimensions"]),
        (
            n["kernel_output_feature_dimension"],
            n["kernel_input_feature_dimension"],
            *n["kernel_spatial_dimensions"],
        ),
        (
            n["output_batch_dimension"],
            n["output_feature_dimension"],
            *n["output_spatial_dimensions"],
        ),
    )


def _grouped_products(groups: int, batch_groups: int, view: Any, w: Any) -> Any:
    """Products of windows (batch, features, positions, elements) with kernels, group by group."""
    rank = w.ndim - 2
    (count, features), places = view.shape[:2], view.shape[2 : 2 + rank]
    many = max(groups, batch_groups)
    filters, depth = w.shape[:2]
    if many < 1 or features != depth * groups or filters % many or count % batch_groups:
        raise OpError(f"{features} features and {filters} filters do not fit {many} groups")
    per_batch = count // batch_groups
    rows = view.reshape((batch_groups, per_batch, groups, depth, *view.shape[2:]))
    order = (0, 2, 1, *range(4, 4 + rank), 3, *range(4 + rank, 4 + 2 * rank))
    positions = int(np.prod(places, dtype=np.int64)) * per_batch
    inner = depth * int(np.prod(w.shape[2:], dtype=np.int64))
    left = rows.transpose(order).reshape((many, positions, inner))
    right = w.reshape((many, filters // many, inner)).transpose((0, 2, 1))
    made = (left @ right).reshape((many, per_batch, *places, filters // many))
    return made.transpose((1, 0, made.ndim - 1, *range(2, 2 + rank))).reshape(
        (per_batch, filters, *places)
    )


class XlaGather(Op):
    """Slices of constant sizes at start indices, clamped to the operand."""

    signature = "operand: T, start_indices: Tindices, slice_sizes: const Tindices -> output: T"
    attrs = (
        "dimension_numbers: string, indices_are_sorted: bool, "
        f"{one_of(ALL_NUMBERS, 'bool')}, {INDICES}"
    )
    aliasing = Aliasing(preserves_elements=True)

    @staticmethod
    def kernel(xp: ModuleType, dimension_numbers: bytes, /, x: Any, starts: Any, sizes: Any) -> Any:
        numbers, window = WindowNumbers.from_gather(dimension_numbers), sizes.tolist()
        if any(not 0 <= n <= dim for n, dim in zip(window, x.shape, strict=True)):
            raise OpError(f"slice sizes {window} do not fit the operand's shape {list(x.shape)}")
        firsts = numbers.starts(xp, x.shape, starts)
        spaces = [dim - size for size, dim in zip(window, x.shape, strict=True)]
        clamped = [xp.clip(first, 0, space) for first, space in zip(firsts, spaces, strict=True)]
        gathered = x.reshape(-1)[numbers.positions(xp, x.shape, clamped, window)]
        return numbers.place_windows(xp, gathered)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        numbers = WindowNumbers.from_gather(context.attr("dimension_numbers"))
        starts, sizes = context.inputs[1], context.shape_value(2)
        if starts.dims is None or sizes.dims is None:
            return [UNKNOWN_SHAPE]
        rest = (n for i, n in enumerate(starts.dims) if i != numbers.vector)
        window = (n for i, n in enumerate(sizes.dims) if i not in numbers.removed)
        rank = len(starts.dims) - (numbers.vector < len(starts.dims)) + len(numbers.offsets)
        return [Shape(next(window if i in numbers.offsets else rest, None) for i in range(rank))]


class XlaPad(Op):
    """Padding before, after, and between elements; negative padding removes elements."""

    signature = (
        "input: T, padding_value: T, padding_low: const Tindices, padding_high: const Tindices, "
        "padding_interior: const Tindices -> output: T"
    )
    attrs = INDICES
    aliasing = Aliasing(preserves_elements=True)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, fill: Any, low: Any, high: Any, interior: Any) -> Any:
        return padded(
            xp, x, fill, [*zip(low.tolist(), high.tolist(), interior.tolist(), strict=True)]
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        low, high, interior = (static_ints(context, slot) for slot in (2, 3, 4))
        if low is None or high is None or interior is None:
            return [shape_of_rank(context.inputs[0].rank)]
        return [padded_shape(context.inputs[0], [*zip(low, high, interior, strict=True)])]


class XlaBroadcastHelper(Op):
    """Operands of one rank: the dimensions of the smaller one are placed at `broadcast_dims`."""

    signature = "lhs: T, rhs: T, broadcast_dims: const Tindices -> lhs_output: T, rhs_output: T"
    attrs = f"{one_of(ALL_NUMBERS)}, {INDICES}"

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any, dims: Any) -> Any:
        if not dims.size and x.ndim != y.ndim and min(x.ndim, y.ndim):
            raise OpError(f"broadcast_dims must be set for operands of ranks {x.ndim} and {y.ndim}")
        try:
            shapes = _broadcast_shapes(x.shape, y.shape, dims.tolist())
        except ShapeError as error:
            raise OpError(str(error)) from None
        return x.reshape(shapes[0]), y.reshape(shapes[1])

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x, y, dims = context.inputs[0], context.inputs[1], static_ints(context, 2)
        if x.dims is None or y.dims is None or dims is None:
            return [UNKNOWN_SHAPE, UNKNOWN_SHAPE]
        return [*map(Shape, _broadcast_shapes(x.dims, y.dims, dims))]


def _broadcast_shapes(x: Sequence[Any], y: Sequence[Any], dims: Sequence[int]) -> list[Any]:
    """The shapes of both operands, the smaller one with sizes of 1 in between."""
    rank = max(len(x), len(y))
    return [_spread_shape(shape, rank, dims) for shape in (x, y)]


def _spread_shape(shape: Sequence[Any], rank: int, dims: Sequence[int]) -> list[Any]:
    """A shape with its sizes at `dims`, or as it is if it has the rank."""
    if len(shape) == rank:
        return list(shape)
    if len(dims) != len(shape) or any(not 0 <= axis < rank for axis in dims):
        raise ShapeError(f"broadcast_dims {list(dims)} do not fit the shape {list(shape)}")
    places = dict(zip(dims, shape, strict=True))
    return [places.get(axis, 1) for axis in range(rank)]


class XlaEinsum(Einsum):
    """Product of two tensors according to an Einstein equation."""

    signature = "a: T, b: T -> product: T"
    attrs = f"equation: string, {one_of('complex64', 'bfloat16', 'float32')}"
    compilation = CompilerSupport()


class XlaOptimizationBarrier(RegroupOp):
    """Inputs as they are; compilers move nothing across."""

    signature = "input: T -> output: T"
    attrs = "T: list(type) >= 0"


class XlaSharding(SameShape):
    """Input as it is, with a request to shard it."""

    signature = "input: T -> output: T"
    attrs = "sharding: string = '', unspecified_dims: list(int) = []"
    aliasing = Aliasing(is_identity=True)
    function = staticmethod(lambda x: x)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        sharding, dims = node.attr("sharding"), node.attr("unspecified_dims")
        return (g.XlaSharding(dz, sharding=sharding, unspecified_dims=dims),)


class XlaReducePrecision(SameShape):
    """Numbers rounded to fewer bits of exponent and mantissa."""

    signature = "operand: T -> output: T"
    attrs = f"{one_of(FLOATS)}, exponent_bits: int, mantissa_bits: int"

    @staticmethod
    def kernel(xp: ModuleType, exponent_bits: int, mantissa_bits: int, T: DType, /, x: Any) -> Any:
        if exponent_bits < 1 or mantissa_bits < 0:
            raise OpError(f"{exponent_bits} bits of exponent and {mantissa_bits} of mantissa")
        if is_traced(xp):
            from jax import lax

            return lax.reduce_precision(x, exponent_bits, mantissa_bits)
        return _rounded_precision(x, exponent_bits, mantissa_bits)


def _rounded_precision(x: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round to nearest, ties to even; too large numbers are infinite, too small ones zero."""
    wide = x.astype(np.float64)
    bias = (1 << (exponent_bits - 1)) - 1
    fraction, exponent = np.frexp(wide)
    scale = np.float64(2.0) ** (mantissa_bits + 1)
    rounded = np.ldexp(np.rint(fraction * scale) / scale, exponent)
    largest = np.ldexp(2.0 - 2.0**-mantissa_bits, bias)
    rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, wide), rounded)
    rounded = np.where(np.abs(rounded) < np.ldexp(1.0, 1 - bias), np.copysign(0, wide), rounded)
    return np.where(np.isfinite(wide), rounded, wide).astype(x.dtype)


class XlaSort(SameShape):
    """Rows of the last dimension in ascending order."""

    signature = "input: T -> output: T"
    kernel = staticmethod(lambda xp, /, x: xp.sort(x, axis=-1))
    aliasing = Aliasing(preserves_elements=True)


class XlaKeyValueSort(Op):
    """Rows of the last dimension in ascending order of keys, with their values."""

    signature = "keys: K, values: V -> sorted_keys: K, sorted_values: V"
    attrs = (
        "K: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
        "uint32, uint64}"
    )

    @staticmethod
    def kernel(xp: ModuleType, keys: Any, values: Any) -> Any:
        if keys.shape != values.shape:
            raise OpError(f"keys have shape {list(keys.shape)}, values {list(values.shape)}")
        order = keys.argsort(axis=-1, kind="stable") if xp is np else xp.argsort(keys, axis=-1)
        return xp.take_along_axis(keys, order, -1), xp.take_along_axis(values, order, -1)

    shape = staticmethod(lambda context: list(context.inputs))


def _require_inexact(matrix: Any) -> None:
    """Raise OpError for a matrix of integers, which XLA does not decompose."""
    if matrix.dtype.kind in "iu":
        kind = matrix.dtype.name
        raise OpError(f"Type of the input matrix must be floating point or complex: got {kind}")


class XlaSelfAdjointEig(MatrixOp):
    """Eigenvalues, ascending, and eigenvectors of self-adjoint matrices, by one triangle."""

    signature = "a: T -> w: T, v: T"
    attrs = f"lower: bool, max_iter: int, epsilon: float, {one_of(ALL_NUMBERS)}"

    @staticmethod
    def kernel(xp: ModuleType, lower: bool, /, a: Any) -> Any:
        _require_inexact(a)
        triangle = xp.tril(a, -1) if lower else xp.triu(a, 1)
        diagonal = a * xp.eye(a.shape[-1], dtype=a.dtype)
        w, v = xp.linalg.eigh(triangle + conjugate_transpose(triangle) + diagonal)
        return w.astype(a.dtype), v

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, size = square_dims(context.inputs[0])
        return [batch + Shape((size,)), batch + Shape((size, size))]


class XlaSvd(MatrixOp):
    """Singular values, descending, and vectors: a = u diag(s) v^H."""

    signature = "a: T -> s: T, u: T, v: T"
    attrs = f"max_iter: int, epsilon: float, precision_config: string, {one_of(ALL_NUMBERS)}"
    compilation = CompilerSupport(
        uncompiled_types="int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
        "complex64, complex128"
    )
    is_square = False

    @staticmethod
    def kernel(xp: ModuleType, a: Any) -> Any:
        _require_inexact(a)
        return Svd.kernel(xp, True, True, a)

    nonfinite = staticmethod(lambda xp, a: Svd.nonfinite(xp, True, True, a))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, rows, columns = matrix_dims(context.inputs[0])
        values = batch + Shape((smaller_size(rows, columns),))
        return [values, batch + Shape((rows, rows)), batch + Shape((columns, columns))]


class XlaRngBitGenerator(Op):
    """Random bits of Philox or ThreeFry from a key and a counter, and the counter after them."""

    signature = (
        "algorithm: const int32, initial_state: uint64, shape: const Tshape "
        "-> output_key: uint64, output: dtype"
    )
    attrs = (
        "dtype: {uint8, int8, int32, int64, uint32, uint64} = uint64, "
        "Tshape: {int32, int64} = int32"
    )
    compilation = CompilerSupport(uncompiled_types="int8, int32, int64")

    @staticmethod
    def kernel(
        xp: ModuleType, dtype: DType, /, algorithm: Any, state: Any, shape: Any
    ) -> tuple[Any, Any]:
        number, sizes = int(algorithm), tuple(shape.tolist())
        if number not in (_PHILOX, _THREE_FRY, _AUTOMATIC):
            raise OpError(f"Unsupported algorithm id: {number}")
        if state.shape != ((2,) if number == _THREE_FRY else (3,)):
            raise OpError(f"initial_state has shape {list(state.shape)} for algorithm {number}")
        draw = three_fry_bits if number == _THREE_FRY else philox_bits
        after, bits = draw(xp, state, sizes, wide=dtype.numpy.itemsize == 8)
        return after, bits.astype(dtype.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[1], context.shape_value(2)]


_PHILOX, _THREE_FRY, _AUTOMATIC = 1, 2, 3
