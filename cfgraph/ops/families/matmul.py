"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from operator import matmul
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ops.kernels.array_namespace import computed_in_float32
from cfgraph.ops.kernels.matrix_products import multiply
from cfgraph.ops.opdef.batching import BatchBuilder, NotBatchable, broadcasting, elementwise
from cfgraph.ops.opdef.facts import AlgebraicFacts, CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, conjugate, sum_to_shape
from cfgraph.ops.opdef.op import COMPLEX, FLOATS, UNSIGNED, Dims, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, require_rank_at_least

# integers up to this number are exact in float64
_EXACT: Final = 1 << 53
# products of fewer numbers cost less than to convert them
_MANY: Final = 1 << 12


def transpose_matrices(x: Any) -> Any:
    """Transpose the matrices in the last two dimensions."""
    return x.swapaxes(-1, -2)


def conjugate_transpose(x: Any) -> Any:
    """Transpose and conjugate the matrices in the last two dimensions."""
    return x.swapaxes(-1, -2).conj()


def _is_integral(node: Node) -> bool:
    """True for a product of integers."""
    return "T" in node.attrs and node.attr("T").is_integer


def integer_product(left: Any, right: Any) -> Any:
    """The product of integers, which overflow; by BLAS if float64 has all of its sums."""
    inner = left.shape[-1]
    if left.__class__ is np.ndarray and inner * min(left.size, right.size) >= _MANY:
        largest = [max(int(x.max()), -int(x.min())) for x in (left, right)]
        if inner * largest[0] * largest[1] <= _EXACT:
            return (left.astype("f8") @ right.astype("f8")).astype("i8").astype(left.dtype)
    return left @ right


class MatMul(Op):
    """Product of two matrices, each optionally transposed."""

    signature = "a: T, b: T -> product: T"
    attrs = (
        "transpose_a: bool = false, transpose_b: bool = false, "
        f"{one_of(FLOATS, 'int32', 'int64', UNSIGNED, COMPLEX)}, "
        "grad_a: bool = false, grad_b: bool = false"
    )
    compilation = CompilerSupport(uncompiled_types=UNSIGNED)
    algebra = AlgebraicFacts(product_role="computes")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return computed_in_float32(cls.product(node), node.attr("T"))

    @classmethod
    def multiplication(cls, node: Node) -> Kernel:
        """Kernel of the product of two matrices."""
        return integer_product if _is_integral(node) else multiply

    @classmethod
    def product(cls, node: Node) -> Kernel:
        """Kernel of the product that transposes the operands according to the flags."""
        transpose_a, transpose_b = node.attr("transpose_a"), node.attr("transpose_b")
        combine = cls.multiplication(node)

        def product(a: Any, b: Any) -> Any:
            if a.ndim != 2 or b.ndim != 2:
                message = f"In[0] and In[1] must be matrices: {list(a.shape)} and {list(b.shape)}"
                raise OpError(message)
            left, right = a.T if transpose_a else a, b.T if transpose_b else b
            if left.shape[1] != right.shape[0]:
                require_inner_sizes(left, right)
            return combine(left, right)

        return product

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        a, b = (require_rank(shape, 2).dims or () for shape in context.inputs)
        if context.attr("transpose_a"):
            a = a[::-1]
        if context.attr("transpose_b"):
            b = b[::-1]
        _require_equal_inner(context, a[1], b[0])
        return [Shape((a[0], b[1]))]

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        return matmul_flops(inputs, outputs)

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        inner, columns = (
            g.sizes(node.inputs[0])[not node.attr("transpose_a")],
            g.sizes(node.output())[1],
        )
        if inner and columns and not (g.has_rows(0) and g.has_rows(1)):
            return _product_of_rows(g, node, inner, columns)
        return _batched_product(g, node)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        def product(x: Output, y: Output, transpose_x: bool, transpose_y: bool) -> Output:
            return g.MatMul(x, y, transpose_a=transpose_x, transpose_b=transpose_y)

        a, b = (conjugate(g, factor) for factor in node.inputs)
        return factor_gradients(
            product, dz, a, b, node.attr("transpose_a"), node.attr("transpose_b")
        )


def _require_equal_inner(context: InferenceContext, left: int | None, right: int | None) -> None:
    """Raise ShapeError if the inner sizes of a product are known and differ."""
    if left is not None and right is not None and left != right:
        first, second = context.inputs[:2]
        raise ShapeError(f"shapes {first} and {second} have the inner sizes {left} and {right}")


def factor_gradients(
    product: Callable[..., Output],
    dz: Output,
    x: Output,
    y: Output,
    transpose_x: bool,
    transpose_y: bool,
) -> tuple[Callable[[], Output], Callable[[], Output]]:
    """Gradients of both factors of a product; `product` multiplies, with a flag per transposition.

    The gradient of a transposed factor is the transposed product: its factors are exchanged.
    """
    return (
        lambda: (
            product(y, dz, transpose_y, True)
            if transpose_x
            else product(dz, y, False, not transpose_y)
        ),
        lambda: (
            product(dz, x, True, transpose_x)
            if transpose_y
            else product(x, dz, not transpose_x, False)
        ),
    )


def _cast_like(g: GradientBuilder, x: Output, like: Output) -> Output:
    return x if x.dtype == like.dtype else g.Cast(x, DstT=like.dtype)


def matmul_flops(inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
    """Floating-point operations of a batch of matrix products, for any transposition.

    Each of m, k, and n occurs in two of the three sizes m·k, k·n, and m·n, so the square root of
    their product is m·k·n.
    """
    batch = prod(outputs[0][:-2])
    return 2 * sqrt(prod(map(prod, [*inputs[:2], outputs[0]])) / max(batch, 1))


def require_inner_sizes(left: Any, right: Any) -> None:
    """Check that the inner dimensions of two matrices or batches agree."""
    if left.shape[-1] != right.shape[-2]:
        raise OpError(
            f"the columns of In[0] must be the rows of In[1], but the shapes to multiply are"
            f" {list(left.shape)} and {list(right.shape)}"
        )


class SparseMatMul(MatMul):
    """Product of two matrices with many zeros, each optionally transposed, in float32."""

    signature = "a: Ta, b: Tb -> product: float32"
    algebra = AlgebraicFacts()
    compilation = CompilerSupport(traceable=False)
    attrs = (
        "transpose_a: bool = false, transpose_b: bool = false, "
        "a_is_sparse: bool = false, b_is_sparse: bool = false, "
        "Ta: {float32, bfloat16} = float32, Tb: {float32, bfloat16} = float32"
    )

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        product = cls.product(node)
        return lambda a, b: product(a.astype(np.float32), b.astype(np.float32))

    @classmethod
    def multiplication(cls, node: Node) -> Kernel:
        if node.attr("a_is_sparse"):
            return _skip_zeros
        if node.attr("b_is_sparse"):
            return lambda a, b: _skip_zeros(b.T, a.T).T
        return multiply

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        def product(x: Output, y: Output, transpose_x: bool, transpose_y: bool) -> Output:
            x, y = _cast_like(g, x, dz), _cast_like(g, y, dz)
            return g.MatMul(x, y, transpose_a=transpose_x, transpose_b=transpose_y)

        a, b = node.inputs
        a_gradient, b_gradient = factor_gradients(
            product, dz, a, b, node.attr("transpose_a"), node.attr("transpose_b")
        )
        return lambda: _cast_like(g, a_gradient(), a), lambda: _cast_like(g, b_gradient(), b)


def _batched_product(g: BatchBuilder, node: Node) -> Output:
    """The product of the matrices of each row."""
    flags = {"adj_x": node.attr("transpose_a"), "adj_y": node.attr("transpose_b")}
    if node.attr("T").is_complex and any(flags.values()):
        raise NotBatchable  # an adjoint matrix is conjugate as well
    product: Output = g.BatchMatMulV2(g.value(0), g.value(1), **flags)
    return product


def _product_of_rows(g: BatchBuilder, node: Node, inner: int, columns: int) -> Output:
    """One product for all rows, where one factor has none: TensorFlow takes a tenth of the time.

    The matrices of the rows are one above the other, or next to each other.
    """
    flip_a, flip_b = node.attr("transpose_a"), node.attr("transpose_b")
    if g.has_rows(0):
        left = g.Transpose(g.value(0), g.const([0, 2, 1])) if flip_a else g.value(0)
        flat = g.Reshape(left, g.const([-1, inner]))
        product = g.MatMul(flat, g.value(1), transpose_b=flip_b)
        above: Output = g.Reshape(product, g.const([g.rows, -1, columns]))
        return above
    right = g.Transpose(g.value(1), g.const([2, 0, 1] if flip_b else [1, 0, 2]))
    flat = g.Reshape(right, g.const([inner, g.rows * columns]))
    product = g.MatMul(g.value(0), flat, transpose_a=flip_a)
    apart = g.Reshape(product, g.const([-1, g.rows, columns]))
    moved: Output = g.Transpose(apart, g.const([1, 0, 2]))
    return moved


def _skip_zeros(sparse: Any, dense: Any) -> Any:
    """Product of matrices in which a zero of the first one times infinity or NaN is zero."""
    if np.isfinite(dense).all():
        return multiply(sparse, dense)
    result = np.zeros((len(sparse), dense.shape[1]), np.float32)
    for column, row in zip(sparse.T[:, :, None], dense, strict=True):
        result += np.where(column == 0, np.float32(0), column * row)
    return result


class BatchMatMulV2(Op):
    """Batched matrix product, each operand optionally adjoint; batch dimensions broadcast."""

    signature = "x: T, y: T -> output: T"
    flags: ClassVar[str] = (
        "adj_x: bool = false, adj_y: bool = false, grad_x: bool = false, grad_y: bool = false"
    )
    attrs = f"{one_of(FLOATS, 'int16', 'int32', 'int64', UNSIGNED, COMPLEX)}, {flags}"
    broadcasts: ClassVar[bool] = True
    batching = staticmethod(broadcasting)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        transpose = conjugate_transpose if node.attr("T").is_complex else transpose_matrices
        return computed_in_float32(cls.product(node, transpose), node.attr("T"))

    @classmethod
    def product(cls, node: Node, transpose: Kernel) -> Kernel:
        """Kernel of the product that applies `transpose` to the operands according to the flags."""
        adj_x, adj_y, broadcasts = node.attr("adj_x"), node.attr("adj_y"), cls.broadcasts
        combine = integer_product if _is_integral(node) else matmul

        def product(x: Any, y: Any) -> Any:
            if x.ndim < 2 or y.ndim < 2:
                raise OpError(f"In[0] and In[1] ndims must be >= 2: {x.ndim} and {y.ndim}")
            if not broadcasts and x.shape[:-2] != y.shape[:-2]:
                raise OpError(
                    "In[0] and In[1] must have compatible batch dimensions: "
                    f"{list(x.shape)} vs. {list(y.shape)}"
                )
            left, right = transpose(x) if adj_x else x, transpose(y) if adj_y else y
            require_inner_sizes(left, right)
            return combine(left, right)

        return product

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x, y = (require_rank_at_least(shape, 2) for shape in context.inputs)
        join = Shape.broadcast if cls.broadcasts else Shape.merge
        batch = join(x[:-2], y[:-2])
        x_sizes = (x[-2:].dims or (None, None))[:: -1 if context.attr("adj_x") else 1]
        y_sizes = (y[-2:].dims or (None, None))[:: -1 if context.attr("adj_y") else 1]
        _require_equal_inner(context, x_sizes[1], y_sizes[0])
        return [batch + Shape((x_sizes[0], y_sizes[1]))]

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        return matmul_flops(inputs, outputs)

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = node.inputs
        types = {"Tout": dz.dtype} if "Tout" in node.attrs else {}

        def product(x: Output, y: Output, adj_x: bool, adj_y: bool) -> Output:
            result: Output = getattr(g, cls.name)(x, y, adj_x=adj_x, adj_y=adj_y, **types)
            return result

        def back(dx: Output, factor: Output, opposite: Output) -> Output:
            dx = sum_to_shape(g, dx, factor, opposite, fixed=2) if cls.broadcasts else dx
            return _cast_like(g, dx, factor)

        x_gradient, y_gradient = factor_gradients(
            product, dz, x, y, node.attr("adj_x"), node.attr("adj_y")
        )
        return lambda: back(x_gradient(), x, y), lambda: back(y_gradient(), y, x)


class BatchMatMul(BatchMatMulV2):
    """Batched matrix product, each operand optionally adjoint; batch dimensions are equal."""

    attrs = f"{one_of(FLOATS, 'int32', 'int64', COMPLEX)}, {BatchMatMulV2.flags}"
    broadcasts = False
    batching = staticmethod(elementwise)


class BatchMatMulV3(BatchMatMulV2):
    """Batched matrix product with mixed input dtypes; batch dimensions broadcast."""

    signature = "x: Ta, y: Tb -> output: Tout"
    _some = f"{FLOATS}, uint8, int8, int16, int32, int64, {COMPLEX}"
    attrs = (
        f"{one_of(_some, attr='Ta')}, {one_of(_some, attr='Tb')}, "
        f"{one_of(FLOATS, 'int16, int32, int64', COMPLEX, attr='Tout')}, {BatchMatMulV2.flags}"
    )

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        out = node.attr("Tout")
        transpose = conjugate_transpose if node.attr("Ta").is_complex else transpose_matrices
        product = computed_in_float32(cls.product(node, transpose), out)
        dtype = out.numpy
        return lambda x, y: product(x.astype(dtype), y.astype(dtype))
