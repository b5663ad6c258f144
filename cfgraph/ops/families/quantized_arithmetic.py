"""Arithmetic with quantized integers: sums, products, and activations, and their ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.families.division import truncated_quotient
from cfgraph.ops.kernels.array_namespace import on_host
from cfgraph.ops.kernels.quantized_numbers import (
    QuantizedInterval,
    interval,
    product_interval,
    requantized,
    wrapped_int32,
)
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.op import Dims, Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

QUANTIZED_TYPES: Final = "{qint8, quint8, qint32, qint16, quint16}"
_F32: Final = np.float32


class QuantizedOp(Op, abstract=True):
    """An op on quantized integers; bounds of the range follow its first output."""

    placement = HostPlacement(host_only=True)
    adapter = on_host
    # the types for which TensorFlow has kernels, by type attribute, or the attribute of that type
    kernel_types: ClassVar[Mapping[str, Sequence[str] | str]] = {}

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        for attr, names in cls.kernel_types.items():
            require_type(
                node, attr, *([node.attr(names).name] if isinstance(names, str) else names)
            )
        return super().bind(node, xp)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.first_shape(context), SCALAR_SHAPE, SCALAR_SHAPE]

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        """The static shape of output 0. Default: that of input 0."""
        return context.inputs[0]


def with_range(values: Any, result: QuantizedInterval) -> tuple[Any, Any, Any]:
    """Integers and the range that they represent."""
    return values, result.low, result.high


def require_type(node: Node, attr: str, *names: str) -> None:
    """Raise OpError unless a type attribute is one for which TensorFlow has a kernel."""
    dtype = node.attr(attr)
    if dtype.name not in names:
        raise OpError(f"{node.op} has no kernel for {attr}={dtype}, expected {' or '.join(names)}")


# -- broadcasting sums and products -----------------------------------------------------------


def _broadcast_groups(x: Dims, y: Dims) -> list[str]:
    """The runs of dimensions, last first, that broadcast alike: `same`, `x`, or `y` repeats."""
    groups: list[str] = []
    if x == y:
        return ["same"]
    rank = max(len(x), len(y))
    sizes = zip((1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y, strict=True)
    for m, n in reversed(list(sizes)):
        if m == n == 1:
            continue
        group = "same" if m == n else "x" if m == 1 else "y"
        if groups[-1:] != [group]:
            groups.append(group)
    return groups


def _flat_operands(x: Any, y: Any) -> tuple[Any, Any, Dims]:
    """Both operands, flat and equally long, and the shape of the result.

    As TensorFlow does, the smaller operand is repeated as a whole, also where its last dimension
    is the one that broadcasts. Raises OpError for other patterns.
    """
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise OpError(f"Incompatible shapes: {list(x.shape)} vs. {list(y.shape)}") from None
    groups = _broadcast_groups(x.shape, y.shape)
    size = max(x.size, y.size)
    if len(groups) > 2 or {"x", "y"} <= set(groups):
        message = f"Broadcast between {list(x.shape)} and {list(y.shape)} is not supported yet."
        raise OpError(message)
    if not min(x.size, y.size) and len(groups) == 2:
        raise OpError("Must have some elements to add")
    if not min(x.size, y.size):
        size = 0
    return np.resize(x, size), np.resize(y, size), shape


def _ranges(x: Any, y: Any, *bounds: Any) -> tuple[QuantizedInterval, QuantizedInterval]:
    """The ranges of two operands. Raises OpError for an empty one."""
    ranges = interval(x.dtype, *bounds[:2]), interval(y.dtype, *bounds[2:])
    for name, operand in zip("xy", ranges, strict=True):
        if not operand.high > operand.low:
            raise OpError(f"max_{name} must be larger than min_{name}.")
    return ranges


class _QuantizedBinary(QuantizedOp, abstract=True):
    """An op on two quantized tensors that broadcasts."""

    signature = (
        "x: T1, y: T2, min_x: float32, max_x: float32, min_y: float32, max_y: float32 "
        "-> z: Toutput, min_z: float32, max_z: float32"
    )
    attrs = f"T1: {QUANTIZED_TYPES}, T2: {QUANTIZED_TYPES}, Toutput: {QUANTIZED_TYPES} = qint32"
    kernel_types: ClassVar = {"T1": ["quint8"], "T2": ["quint8"], "Toutput": ["qint32"]}

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        return context.inputs[0].broadcast(context.inputs[1])


def _linear_requantized(x: Any, source: QuantizedInterval, target: QuantizedInterval) -> Any:
    """Integers of another range on the line through the new values of 0 and 1."""
    zero, one = target.unclamped(source.floats(np.array([0, 1])))
    step = wrapped_int32(one - zero).astype(np.int64)
    return np.clip(zero + x.astype(np.int64) * step, target.type.least, target.type.greatest)


class QuantizedAdd(_QuantizedBinary):
    """Sum of two quantized tensors, as int32 of a range with room for many sums."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any, *bounds: Any) -> Any:
        in_x, in_y = _ranges(x, y, *bounds)
        flat_x, flat_y, shape = _flat_operands(x, y)
        largest = max(abs(min(in_x.low, in_y.low)), abs(max(in_x.high, in_y.high)))
        bound = largest * _F32(1 << 14)
        total = interval(np.int32, -bound, bound)
        is_flat = len(_broadcast_groups(x.shape, y.shape)) <= 1
        terms = [_linear_requantized(flat_x, in_x, total)]
        terms.append(_linear_requantized(flat_y, in_y, total))
        if is_flat and x.size == 1:
            terms[0] = requantized(flat_x, in_x, total)
        elif is_flat and y.size == 1:
            terms[1] = requantized(flat_y, in_y, total)
        sums = wrapped_int32(terms[0].astype(np.int64) + terms[1])
        return with_range(sums.reshape(shape), total)


class QuantizedMul(_QuantizedBinary):
    """Product of two quantized tensors, as int32."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any, *bounds: Any) -> Any:
        in_x, in_y = _ranges(x, y, *bounds)
        flat_x, flat_y, shape = _flat_operands(x, y)
        factors = (flat_x.astype(np.int64) - in_x.offset, flat_y.astype(np.int64) - in_y.offset)
        products = wrapped_int32(factors[0] * factors[1])
        return with_range(products.reshape(shape), product_interval(in_x, in_y))


class QuantizedBiasAdd(QuantizedOp):
    """Sum of a quantized tensor and a vector along its last dimension, as int32."""

    signature = (
        "input: T1, bias: T2, min_input: float32, max_input: float32, min_bias: float32, "
        "max_bias: float32 -> output: out_type, min_out: float32, max_out: float32"
    )
    attrs = f"T1: {QUANTIZED_TYPES}, T2: {QUANTIZED_TYPES}, out_type: {QUANTIZED_TYPES}"
    kernel_types: ClassVar = {"T1": ["quint8", "qint8"], "T2": "T1", "out_type": ["qint32"]}

    @staticmethod
    def kernel(xp: ModuleType, x: Any, bias: Any, *bounds: Any) -> Any:
        if x.ndim < 2 or bias.ndim != 1 or len(bias) != x.shape[-1]:
            raise OpError(
                "Must provide as many biases as the last dimension of the input tensor: "
                f"{list(bias.shape)} vs. {list(x.shape)}"
            )
        source, shift = interval(x.dtype, *bounds[:2]), interval(bias.dtype, *bounds[2:])
        largest = max(source.high, -source.low, shift.high, -shift.low)
        bound = largest * _F32(1 << 17)
        total = interval(np.int32, -bound, bound)
        terms = total.tensor_quantized(source.tensor_floats(x)).astype(np.int64)
        biases = total.tensor_quantized(shift.tensor_floats(bias)).astype(np.int64)
        sums = terms + (biases + int(total.quantized(0)))
        return with_range(wrapped_int32(sums), total)

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        require_rank(context.inputs[1], 1)
        return context.inputs[0]


# -- activations ------------------------------------------------------------------------------


class _QuantizedActivation(QuantizedOp, abstract=True):
    """Quantized integers, clamped to the integers that represent bounds."""

    signature = (
        "features: Tinput, min_features: float32, max_features: float32 "
        "-> activations: out_type, min_activations: float32, max_activations: float32"
    )
    attrs = f"Tinput: {QUANTIZED_TYPES}, out_type: {QUANTIZED_TYPES} = quint8"
    kernel_types: ClassVar = {"Tinput": ["quint8", "qint32"], "out_type": "Tinput"}
    greatest: ClassVar[float | None] = None

    @classmethod
    def kernel(cls, xp: ModuleType, x: Any, low: Any, high: Any) -> Any:
        return _clamped(x, interval(x.dtype, low, high), cls.greatest)


def _clamped(x: Any, source: QuantizedInterval, greatest: Any) -> tuple[Any, Any, Any]:
    """Integers from the one that represents 0 to the one that represents `greatest`."""
    values = np.maximum(x, source.quantized(0))
    if greatest is not None:
        values = np.minimum(values, source.quantized(greatest))
    return with_range(values, source)


class QuantizedRelu(_QuantizedActivation):
    """Quantized integers of numbers that are at least 0."""


class QuantizedRelu6(_QuantizedActivation):
    """Quantized integers of numbers from 0 to 6."""

    greatest = 6.0


# -- matrices and batches ---------------------------------------------------------------------


def integer_product(x: Any, y: Any, x_offset: Any, y_offset: Any) -> Any:
    """Product of two matrices of integers, less their offsets, modulo 2^32.

    Products of bytes are exact in double precision, which BLAS multiplies.
    """
    if x.dtype.itemsize > 1:
        return wrapped_int32((x - np.int64(x_offset)) @ (y.astype(np.int64) - np.int64(y_offset)))
    products = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.int64)
    rows = x.sum(axis=1, dtype=np.int64, keepdims=True) * np.int64(y_offset)
    columns = y.sum(axis=0, dtype=np.int64, keepdims=True) * np.int64(x_offset)
    constant = int(x_offset) * int(y_offset) * x.shape[1] % (1 << 32)
    return wrapped_int32(products - rows - columns + constant)


class QuantizedMatMul(QuantizedOp):
    """Product of two quantized matrices, as int32."""

    signature = (
        "a: T1, b: T2, min_a: float32, max_a: float32, min_b: float32, max_b: float32 "
        "-> out: Toutput, min_out: float32, max_out: float32"
    )
    attrs = (
        f"T1: {QUANTIZED_TYPES}, T2: {QUANTIZED_TYPES}, Toutput: {QUANTIZED_TYPES} = qint32, "
        f"transpose_a: bool = false, transpose_b: bool = false, "
        f"Tactivation: {QUANTIZED_TYPES} = quint8"
    )
    kernel_types: ClassVar = _QuantizedBinary.kernel_types

    @staticmethod
    def kernel(
        xp: ModuleType, transpose_a: bool, transpose_b: bool, /, a: Any, b: Any, *bounds: Any
    ) -> Any:
        in_a, in_b = _ranges(a, b, *bounds)
        if a.ndim != 2 or b.ndim != 2:
            raise OpError(f"operands must be matrices: {list(a.shape)}, {list(b.shape)}")
        left, right = a.T if transpose_a else a, b.T if transpose_b else b
        if left.shape[1] != right.shape[0]:
            raise OpError(
                f"Matrix size-incompatible: In[0]: {list(a.shape)}, In[1]: {list(b.shape)}"
            )
        products = integer_product(left, right, in_a.offset, in_b.offset)
        return with_range(products, product_interval(in_a, in_b))

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        a, b = (tuple(require_rank(shape, 2)) for shape in context.inputs[:2])
        rows, inner = a[::-1] if context.attr("transpose_a") else a
        inner_b, columns = b[::-1] if context.attr("transpose_b") else b
        Shape((inner,)).merge(Shape((inner_b,)))
        return Shape((rows, columns))

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        inner = inputs[0][-1] if inputs and inputs[0] else 0
        return 2.0 * inner * np.prod(outputs[0], dtype=float) if outputs else 0.0


class QuantizedBatchNormWithGlobalNormalization(QuantizedOp):
    """Batch normalization with given moments in fixed-point arithmetic, as int32."""

    signature = ", ".join(
        f"{name}: Tinput, {name}_min: float32, {name}_max: float32"
        for name in ("t", "m", "v", "beta", "gamma")
    )
    signature += " -> result: out_type, result_min: float32, result_max: float32"
    attrs = (
        f"Tinput: {QUANTIZED_TYPES}, out_type: {QUANTIZED_TYPES}, variance_epsilon: float, "
        "scale_after_normalization: bool"
    )
    kernel_types: ClassVar = {"Tinput": ["quint8"], "out_type": ["qint32"]}

    @staticmethod
    def kernel(
        xp: ModuleType, variance_epsilon: float, scale_after_normalization: bool, /, *inputs: Any
    ) -> Any:
        x, low, high, *moments = inputs
        _check_moments(x, moments[::3])
        with np.errstate(all="ignore"):
            mean, variance, beta, gamma = (
                interval(x.dtype, *moments[i + 1 : i + 3]).floats(moments[i])
                for i in range(0, 12, 3)
            )
            scale = _F32(1) / np.sqrt(variance + _F32(variance_epsilon))
            scale = scale * gamma if scale_after_normalization else scale
            shift = -mean * scale + beta
        # 10 bits for the fraction, and room for numbers up to a million
        total = interval(np.int32, -(1 << 20), 1 << 20)
        numbers = requantized(x, interval(x.dtype, low, high), total)
        factors, shifts = total.quantized(scale), total.quantized(shift)
        products = wrapped_int32(numbers.astype(np.int64) * factors).astype(np.int64)
        one = int(total.quantized(1))
        quotients = truncated_quotient(products, one)
        return with_range(wrapped_int32(quotients + shifts), total)


def _check_moments(x: Any, moments: Sequence[Any]) -> None:
    """Raise OpError unless there is one moment per channel of a batch of images."""
    channels = x.shape[-1:]
    if x.ndim != 4 or any(moment.shape != channels for moment in moments):
        shapes = ", ".join(str(list(moment.shape)) for moment in moments)
        message = f"the moments of shapes {shapes} do not fit an image of shape {list(x.shape)}"
        raise OpError(message)
