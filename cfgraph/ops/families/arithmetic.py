"""Elementwise and n-ary arithmetic, and bitwise ops of integers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import float32, float64
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.kernels import complex_numbers
from cfgraph.ops.kernels.array_namespace import computed_in_float32, defer_check, is_gpu_namespace
from cfgraph.ops.kernels.variant_math import add_values
from cfgraph.ops.opdef.batching import elementwise
from cfgraph.ops.opdef.facts import AlgebraicFacts, CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    binary_gradients,
    conjugate,
    constant_like,
    gradient_from_inputs,
    select_gradient,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import (
    ALL_NUMBERS,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL,
    SIGNED,
    Elementwise,
    Kernel,
    Op,
    OpError,
    one_of,
)
from cfgraph.ops.opdef.shape_functions import InferenceContext


class BinaryOp(Elementwise, abstract=True):
    """A binary function with broadcasting."""

    signature = "x: T, y: T -> z: T"
    attrs = one_of(NUMBERS)

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        """The operand that the op leaves as it is since the other one is neutral and a constant."""
        dtype = context.node.output().dtype
        if dtype is None or dtype.is_complex or dtype.is_object:
            return None
        for slot, neutral in enumerate((cls.algebra.neutral_second, cls.algebra.neutral_first)):
            other = None if neutral is None else context.value(1 - slot)
            if other is None or not other.size:
                continue
            shape = context.inputs[slot]
            # 0 plus -0.0 is 0: neutral floats are compared with their signs
            exact = np.full(other.shape, np.array(neutral).astype(dtype.numpy))
            fits = not other.ndim or (shape.is_full and _covers(shape, other.shape))
            if fits and exact.tobytes() == other.tobytes():
                return slot
        return None


def _covers(shape: Shape, other: tuple[int, ...]) -> bool:
    """True if an operand of another shape is broadcast to a static shape."""
    try:
        return shape.broadcast(Shape(other)).dims == shape.dims
    except ValueError:
        return False


class Add(BinaryOp):
    """Sum of two tensors with broadcasting; strings are concatenated."""

    attrs = one_of(FLOATS, SIGNED, "uint8", COMPLEX, "string")
    algebra = AlgebraicFacts(neutral_second=-0.0, neutral_first=-0.0, product_role="adds")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return concatenate_strings if node.attr("T").kind == "string" else operator.add

    gradient = staticmethod(lambda g, node, dz: binary_gradients(g, node, lambda: dz, lambda: dz))


def concatenate_strings(x: Any, y: Any) -> Any:
    """Concatenate two string tensors elementwise."""
    return np.asarray(x + y, object)


class AddV2(BinaryOp):
    """Sum of two numeric tensors with broadcasting."""

    algebra = AlgebraicFacts(
        commutes=True, neutral_second=-0.0, neutral_first=-0.0, product_role="adds"
    )
    function = operator.add
    gradient = staticmethod(Add.gradient)


class Sub(BinaryOp):
    """Difference of two tensors with broadcasting."""

    algebra = AlgebraicFacts(neutral_second=0.0)
    function = operator.sub

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = node.inputs
        return lambda: sum_to_shape(g, dz, x, y), lambda: g.Neg(sum_to_shape(g, dz, y, x))


class Mul(BinaryOp):
    """Product of two tensors with broadcasting."""

    algebra = AlgebraicFacts(commutes=True, neutral_second=1, neutral_first=1)
    function = operator.mul

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = node.inputs
        return binary_gradients(
            g, node, lambda: g.Mul(dz, conjugate(g, y)), lambda: g.Mul(conjugate(g, x), dz)
        )


class SquaredDifference(BinaryOp):
    """Squared difference (x - y)^2; for complex numbers, the squared modulus |x - y|^2."""

    attrs = one_of(FLOATS, "int32, int64", COMPLEX)
    algebra = AlgebraicFacts(commutes=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_complex:
            return _squared_distance
        return _squared_difference if xp is np else lambda x, y: xp.square(x - y)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = node.inputs
        # the result is real, so the imaginary part of dz does not contribute
        if node.attr("T").is_complex:
            real = g.Real(dz, Tout=node.attr("T").real)
            dz = g.Complex(real, 0, Tout=node.attr("T"))
        along = g.Mul(g.Mul(dz, 2), g.Sub(x, y))
        return lambda: sum_to_shape(g, along, x, y), lambda: g.Neg(sum_to_shape(g, along, y, x))


def _squared_difference(x: Any, y: Any) -> Any:
    difference = x - y
    if isinstance(difference, np.ndarray):
        return np.square(difference, difference)
    return difference * difference


def _squared_distance(x: Any, y: Any) -> Any:
    distance = x - y
    return distance * distance.conj()


class Pow(BinaryOp):
    """Power x^y with broadcasting; integers wrap and reject negative exponents."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    algebra = AlgebraicFacts(neutral_second=1)
    complex_kernel = staticmethod(complex_numbers.power)

    @classmethod
    def can_fail(cls, node: Node) -> bool:
        return bool(node.attr("T").is_integer)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if dtype.is_complex:
            return super().bind(node, xp)
        if xp is np and dtype in (float32, float64):
            return _power_or_cube
        if not dtype.is_integer:
            return computed_in_float32(xp.power, dtype)
        return partial(_integer_power, xp)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = (conjugate(g, operand) for operand in node.inputs)
        return binary_gradients(
            g,
            node,
            lambda: g.Mul(g.Mul(dz, y), _power_minus_one(g, x, y)),
            lambda: g.Mul(g.Mul(dz, conjugate(g, node.output())), _safe_log(g, x)),
        )


def _power_minus_one(g: GradientBuilder, x: Output, y: Output) -> Output:
    """Compute x^(y - 1), simplified if y is statically known."""
    known = g.known_value(y)
    if known is None or y.dtype is None:
        return g.Pow(x, g.Sub(y, 1))
    return x if np.all(known == 2) and not known.ndim else g.Pow(x, g.const(known - 1, y.dtype))


def _safe_log(g: GradientBuilder, x: Output) -> Output:
    """Logarithm of x, or 0 where x is not positive (complex: where x is zero)."""
    is_complex = x.dtype is not None and x.dtype.is_complex
    is_valid = g.NotEqual(x, 0) if is_complex else g.Greater(x, 0)
    return select_gradient(g, g.Log(g.SelectV2(is_valid, x, constant_like(g, 1, x))), is_valid)


def _power_or_cube(x: Any, y: Any) -> Any:
    """The power of NumPy values, a cube as a product, as XLA computes it.

    NumPy takes ten times as long for powers of negative numbers. The two differ in at most 2 units
    in the last place.
    """
    return x * x * x if x.ndim and not y.ndim and y == 3 else np.power(x, y)


def _integer_power(xp: ModuleType, x: Any, y: Any) -> Any:
    if xp is not np:
        defer_check(lambda: y >= 0)
    elif np.any(y < 0):
        raise OpError("Integers to negative integer powers are not allowed")
    return xp.power(x, y)


class BinaryExtreme(BinaryOp, abstract=True):
    """Elementwise maximum or minimum of two tensors; NaN if either input is NaN."""

    attrs = one_of(REAL)
    function: ClassVar[str]
    prefers_x: ClassVar[Callable[[Any, Any], Any]]
    # the comparison op that is true where the gradient flows to x; ties go to x
    comparison: ClassVar[str]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if xp is not np:
            return super().bind(node, xp)
        ufunc, prefers_x = getattr(np, cls.function), cls.prefers_x

        def extreme(x: Any, y: Any) -> Any:
            if x.ndim or y.ndim:
                return ufunc(x, y)
            # three times as fast as the ufunc for scalars; only NaN differs from itself
            return x if prefers_x(x, y) or x != x else y  # noqa: PLR0124

        return extreme

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        mask = getattr(g, cls.comparison)(*node.inputs)
        return binary_gradients(
            g,
            node,
            lambda: select_gradient(g, dz, mask),
            lambda: select_gradient(g, dz, mask, negated=True),
        )


class Maximum(BinaryExtreme):
    """Elementwise maximum of two tensors; NaN if either input is NaN."""

    function = "maximum"
    prefers_x = operator.ge
    comparison = "GreaterEqual"


class Minimum(BinaryExtreme):
    """Elementwise minimum of two tensors; NaN if either input is NaN."""

    function = "minimum"
    prefers_x = operator.le
    comparison = "LessEqual"


class Atan2(BinaryOp):
    """Angle of the point (x, y) in radians, from -pi to pi."""

    signature = "y: T, x: T -> z: T"
    attrs = one_of(FLOATS)
    function = "arctan2"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        y, x = node.inputs
        along = g.RealDiv(dz, g.AddV2(g.Square(y), g.Square(x)))
        return binary_gradients(g, node, lambda: g.Mul(x, along), lambda: g.Mul(g.Neg(y), along))


def _next_after_by_bits(xp: ModuleType) -> Kernel:
    """Adjacent float computed on bit patterns: CUDA's own function flushes subnormals to 0."""

    def next_after(x: Any, y: Any) -> Any:
        kind = np.dtype(f"i{x.dtype.itemsize}")
        lowest = np.iinfo(kind).min
        # signed integers ordered like the floats; -0.0 and 0.0 both map to 0
        patterns = [operand.view(kind) for operand in (x, y)]
        start, goal = (xp.where(bits < 0, lowest - bits, bits) for bits in patterns)
        target = start + (start < goal).astype(kind) - (start > goal).astype(kind)
        down = (target < 0) | ((target == 0) & (start < 0))
        result = xp.where(down, lowest - target, target).view(x.dtype)
        result = xp.where(start == goal, y, result)
        return xp.where(xp.isnan(x) | xp.isnan(y), x + y, result)

    return next_after


class NextAfter(BinaryOp):
    """The representable float next to x1 in the direction of x2."""

    signature = "x1: T, x2: T -> output: T"
    attrs = "T: {float64, float32} = float32"
    function = "nextafter"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return _next_after_by_bits(xp) if is_gpu_namespace(xp) else super().bind(node, xp)

    gradient = gradient_from_inputs(lambda g, dz, x, y: (lambda: sum_to_shape(g, dz, x, y), None))


class AddN(Op):
    """Sum of N tensors of equal shape, or of N variants."""

    signature = "inputs: N*T -> sum: T"
    compilation = CompilerSupport(row_operation="sum")
    attrs = one_of(ALL_NUMBERS, "variant")
    algebra = AlgebraicFacts(commutes=True, product_role="adds")
    batching = staticmethod(elementwise)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_object:
            return lambda *values: reduce(add_values, values)
        return _add_pair if len(node.inputs) == 2 else _sum_inputs

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [reduce(Shape.merge, context.inputs)]

    gradient = staticmethod(lambda g, node, dz: [dz] * len(node.inputs))


def _add_pair(x: Any, y: Any) -> Any:
    return x + y if x.shape == y.shape else _shape_mismatch((x, y))


def _sum_inputs(*values: Any) -> Any:
    shape = values[0].shape
    for value in values:
        if value.shape != shape:
            _shape_mismatch(values)
    total = values[0] + values[1] if len(values) > 1 else values[0]
    for value in values[2:]:
        total += value
    return total


def _shape_mismatch(values: Sequence[Any]) -> None:
    shapes = ", ".join(str(list(value.shape)) for value in values)
    raise OpError(f"Inputs to operation must have the same size and shape: {shapes}")


class AccumulateNV2(AddN):
    """Sum of N tensors of equal shape, which the `shape` attribute declares."""

    attrs = f"{one_of(ALL_NUMBERS)}, shape: shape"
    compilation = CompilerSupport(compiled=False)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [reduce(Shape.merge, context.inputs, context.attr("shape"))]


class BitwiseAnd(BinaryOp):
    """Bitwise AND of two integer tensors."""

    attrs = one_of(INTEGERS)
    algebra = AlgebraicFacts(commutes=True, neutral_second=-1, neutral_first=-1)
    function = operator.and_


class BitwiseOr(BinaryOp):
    """Bitwise OR of two integer tensors."""

    attrs = one_of(INTEGERS)
    algebra = AlgebraicFacts(commutes=True, neutral_second=0, neutral_first=0)
    function = operator.or_


class BitwiseXor(BinaryOp):
    """Bitwise exclusive OR of two integer tensors."""

    attrs = one_of(INTEGERS)
    algebra = AlgebraicFacts(commutes=True, neutral_second=0, neutral_first=0)
    function = operator.xor


class BitShift(BinaryOp, abstract=True):
    """A shift of bits by y, clipped to 0 through the bit width minus 1."""

    attrs = one_of(INTEGERS)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T").numpy
        zero, most = dtype.type(0), dtype.type(8 * dtype.itemsize - 1)
        move: Any = cls.function
        return lambda x, y: move(x, xp.clip(y, zero, most))


class LeftShift(BitShift):
    """Shift to the left, filled with zeros."""

    function = operator.lshift


class RightShift(BitShift):
    """Shift to the right: arithmetic for signed types, logical for unsigned types."""

    function = operator.rshift


class Invert(Elementwise):
    """Bitwise complement."""

    signature = "x: T -> y: T"
    attrs = one_of(INTEGERS)
    algebra = AlgebraicFacts(involutive=True)
    function = operator.invert


class PopulationCount(Elementwise):
    """Number of set bits of each element."""

    signature = "x: T -> y: uint8"
    attrs = one_of(INTEGERS)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        bits = np.dtype(f"u{dtype.numpy.itemsize}")
        return lambda x: xp.bitwise_count(x.view(bits)).astype(np.uint8)
