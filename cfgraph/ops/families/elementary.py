"""Elementary functions (powers, exponentials, trigonometry) and their gradient ops."""

from __future__ import annotations

import operator
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType, bfloat16, float16
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.kernels import complex_numbers
from cfgraph.ops.kernels.array_namespace import (
    computed_in_float32,
    in_float32,
    is_gpu_namespace,
    rounds_each_step,
    scipy_special,
)
from cfgraph.ops.opdef.batching import elementwise
from cfgraph.ops.opdef.facts import AlgebraicFacts, CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    conjugate,
    gradient_from_input,
    gradient_from_op,
    gradient_from_output,
)
from cfgraph.ops.opdef.op import (
    COMPLEX,
    FLOATS,
    SIGNED,
    UNSIGNED,
    Elementwise,
    Kernel,
    OpError,
    SameShape,
    one_of,
)


class ElementaryFunction(Elementwise, abstract=True):
    """An elementwise function of a real or complex number."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS, COMPLEX)


class Neg(ElementaryFunction):
    """Negation; the minimum of a signed integer type is its own negation."""

    algebra = AlgebraicFacts(involutive=True)
    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = operator.neg
    gradient = gradient_from_input(lambda g, dy, x: g.Neg(dy))


class Abs(ElementaryFunction):
    """Absolute value; the minimum of a signed integer type maps to itself."""

    algebra = AlgebraicFacts(idempotent=True)
    attrs = one_of(FLOATS, SIGNED)
    function = operator.abs
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Sign(x)))


class Sign(ElementaryFunction):
    """Sign -1, 0, or 1; for complex numbers, x / |x|."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "sign"
    complex_kernel = staticmethod(complex_numbers.sign)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        dtype, x, y = node.attr("T"), node.inputs[0], node.output()
        if not dtype.is_complex:
            return [None]
        # the radial component: the sign does not depend on the modulus
        outward = g.Real(g.Mul(dy, g.Conj(y)), Tout=dtype.real)
        tangential = g.Sub(dy, g.Mul(y, g.Complex(outward, 0, Tout=dtype)))
        return [g.DivNoNan(tangential, g.Complex(g.ComplexAbs(x, Tout=dtype.real), 0, Tout=dtype))]


class Square(ElementaryFunction):
    """Square x^2."""

    attrs = one_of(FLOATS, SIGNED, UNSIGNED, COMPLEX)
    function = "square"
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Mul(x, 2)))


class Sqrt(ElementaryFunction):
    """Square root."""

    function = "sqrt"
    gradient = gradient_from_op("SqrtGrad")


class Rsqrt(ElementaryFunction):
    """Reciprocal of the square root."""

    adapter = in_float32
    kernel = staticmethod(lambda xp, x: xp.reciprocal(xp.sqrt(x)))
    complex_kernel = staticmethod(complex_numbers.reciprocal_root)
    gradient = gradient_from_op("RsqrtGrad")


class Reciprocal(ElementaryFunction):
    """Reciprocal 1 / x."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "reciprocal"
    complex_kernel = staticmethod(complex_numbers.reciprocal)
    gradient = gradient_from_op("ReciprocalGrad")


class Inv(Reciprocal):
    """Reciprocal 1 / x (older name of Reciprocal)."""


class Exp(ElementaryFunction):
    """Exponential function."""

    function = "exp"
    gradient = gradient_from_output(lambda g, dy, y: g.Mul(dy, y))


class Expm1(ElementaryFunction):
    """Exponential minus one, exp(x) - 1, accurate near 0."""

    function = "expm1"
    complex_kernel = staticmethod(complex_numbers.expm1)
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Exp(x)))


class Log(ElementaryFunction):
    """Natural logarithm."""

    function = "log"
    gradient = gradient_from_input(lambda g, dy, x: g.RealDiv(dy, x))


class Log1p(ElementaryFunction):
    """Natural logarithm log(1 + x), accurate near 0."""

    function = "log1p"
    complex_kernel = staticmethod(complex_numbers.log1p)
    gradient = gradient_from_input(lambda g, dy, x: g.RealDiv(dy, g.AddV2(x, 1)))


class Sin(ElementaryFunction):
    """Sine of an angle in radians."""

    function = "sin"
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Cos(x)))


class Cos(ElementaryFunction):
    """Cosine of an angle in radians."""

    function = "cos"
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.Sin(x))))


class Tan(ElementaryFunction):
    """Tangent of an angle in radians."""

    function = "tan"
    gradient = gradient_from_output(lambda g, dy, y: g.Mul(dy, g.AddV2(g.Square(y), 1)))


class Asin(ElementaryFunction):
    """Inverse sine, in radians."""

    function = "arcsin"
    gradient = gradient_from_input(lambda g, dy, x: g.RealDiv(dy, _root_of_one_minus_square(g, x)))


class Acos(ElementaryFunction):
    """Inverse cosine, in radians."""

    function = "arccos"
    gradient = gradient_from_input(
        lambda g, dy, x: g.Neg(g.RealDiv(dy, _root_of_one_minus_square(g, x)))
    )


class Atan(ElementaryFunction):
    """Inverse tangent, in radians."""

    function = "arctan"
    gradient = gradient_from_input(lambda g, dy, x: g.RealDiv(dy, g.AddV2(g.Square(x), 1)))


class Sinh(ElementaryFunction):
    """Hyperbolic sine."""

    function = "sinh"
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Cosh(x)))


class Cosh(ElementaryFunction):
    """Hyperbolic cosine."""

    function = "cosh"
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Sinh(x)))


class Sigmoid(SameShape):
    """Logistic function 1 / (1 + exp(-x))."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS, COMPLEX)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if dtype.is_complex:
            return partial(complex_numbers.logistic, xp)
        if xp is np and dtype in (float16, bfloat16):
            return _half_logistic
        if is_gpu_namespace(xp):
            return computed_in_float32(scipy_special(xp).expit, dtype)
        kernel = _logistic_kernel(dtype) if xp is np else super().bind(node, xp)
        return computed_in_float32(kernel, dtype)

    kernel = staticmethod(lambda xp, x: xp.reciprocal(1 + xp.exp(-x)))
    gradient = gradient_from_output(lambda g, dy, y: g.SigmoidGrad(y, dy))


def _half_logistic(x: Any) -> Any:
    """The logistic function of half-precision floats, in the steps of Eigen: e / (1 + e)."""
    raised = np.exp(x)
    return np.where(np.isinf(raised), x.dtype.type(1), raised / (1 + raised))[()]


def _logistic_kernel(dtype: DType) -> Kernel:
    # NumPy reads an array of rank 0 faster than a scalar
    one = np.ones((), dtype.numpy)
    exp, add, divide = np.exp, np.add, np.divide  # reciprocal takes longer than 1 / x

    def logistic(x: Any) -> Any:
        result = -x
        if not isinstance(result, np.ndarray):
            return 1 / (1 + exp(result))
        exp(result, result)
        add(result, one, result)
        return divide(one, result, result)

    return logistic


class Tanh(ElementaryFunction):
    """Hyperbolic tangent."""

    function = "tanh"
    gradient = gradient_from_output(lambda g, dy, y: g.TanhGrad(y, dy))


class Asinh(ElementaryFunction):
    """Inverse hyperbolic sine."""

    function = "arcsinh"
    gradient = gradient_from_output(lambda g, dy, y: g.RealDiv(dy, g.Cosh(y)))


class Acosh(ElementaryFunction):
    """Inverse hyperbolic cosine."""

    function = "arccosh"
    gradient = gradient_from_output(lambda g, dy, y: g.RealDiv(dy, g.Sinh(y)))


class Atanh(ElementaryFunction):
    """Inverse hyperbolic tangent."""

    function = "arctanh"
    gradient = gradient_from_input(lambda g, dy, x: g.RealDiv(dy, _one_minus_square(g, x)))


def _one_minus_square(g: GradientBuilder, x: Output) -> Output:
    """Compute 1 - x²."""
    return g.Sub(1, g.Square(x))


def _root_of_one_minus_square(g: GradientBuilder, x: Output) -> Output:
    """Compute √(1 - x²)."""
    return g.Sqrt(_one_minus_square(g, x))


class GradientFromResult(Elementwise, abstract=True):
    """Gradient of y = f(x), computed from y and the gradient of y."""

    signature = "y: T, dy: T -> z: T"
    attrs = one_of(FLOATS, COMPLEX)
    # the kernel as an expression that a GPU computes in one kernel
    expression: ClassVar[Any] = None
    batching = staticmethod(elementwise)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        fuses = cls.expression is not None and is_gpu_namespace(xp)
        kernel = (
            xp.fuse(kernel_name=cls.__name__)(cls.expression) if fuses else super().bind(node, xp)
        )
        return rounds_each_step(_of_equal_size(kernel), node, xp)

    shape = staticmethod(lambda context: [context.inputs[0]])


def _of_equal_size(kernel: Kernel) -> Kernel:
    """A kernel of a result and its gradient, which has the shape of the result: none broadcasts."""

    def run(y: Any, dy: Any) -> Any:
        if y.shape == dy.shape:
            return kernel(y, dy)
        if y.size != dy.size:
            message = f"y and dy must have the same number of elements, got {y.size} and {dy.size}"
            raise OpError(message)
        return kernel(y, dy.reshape(y.shape))

    return run


class SigmoidGrad(GradientFromResult):
    """Gradient of Sigmoid, computed from its output: dy y (1 - y)."""

    expression = staticmethod(lambda y, dy: dy * ((1 - y) * y))

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        slope = 1 - y
        slope *= y
        slope *= dy
        return slope

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        y, dy = (conjugate(g, operand) for operand in node.inputs)

        def y_gradient() -> Output:
            along = g.Mul(dz, dy)
            return g.Sub(along, g.Mul(g.Mul(along, y), 2))

        return y_gradient, lambda: g.SigmoidGrad(y, dz)


class TanhGrad(GradientFromResult):
    """Gradient of Tanh, computed from its output: dy (1 - y²)."""

    expression = staticmethod(lambda y, dy: dy * (1 - y * y))

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        slope = 1 - y * y
        slope *= dy
        return slope

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        y, dy = (conjugate(g, operand) for operand in node.inputs)
        return lambda: g.Mul(g.Mul(g.Mul(dz, -2), dy), y), lambda: g.TanhGrad(y, dz)


class UnboundedGradient(GradientFromResult, abstract=True):
    """A gradient with an unbounded slope; it is zero if the upstream gradient is zero."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kernel: Any = cls.kernel
        is_complex = node.attr("T").is_complex

        def guarded(y: Any, dy: Any) -> Any:
            result = kernel(xp, xp.conj(y) if is_complex else y, dy)
            is_zero = dy == 0
            if xp is np and not np.count_nonzero(is_zero):
                return result
            return xp.where(is_zero, xp.zeros((), dy.dtype), result)

        return rounds_each_step(_of_equal_size(guarded), node, xp)


class SqrtGrad(UnboundedGradient):
    """Gradient of Sqrt, computed from its output: dy / (2 y)."""

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        half = dy.dtype.type(0.5)
        if dy.dtype.kind == "c":
            return dy * complex_numbers.quotient(xp, half, y)
        # the reciprocal is rounded, too, where TensorFlow computes in half precision
        return dy * (half / y) if dy.dtype.itemsize == 2 else dy * half / y

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        quotient = g.RealDiv(dz, node.inputs[0])
        return (
            lambda: g.Mul(g.Neg(conjugate(g, quotient)), node.output()),
            lambda: g.Mul(quotient, 0.5),
        )


class RsqrtGrad(UnboundedGradient):
    """Gradient of Rsqrt, computed from its output: -dy y³ / 2."""

    kernel = staticmethod(lambda xp, y, dy: dy * (dy.dtype.type(-0.5) * y) * (y * y))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        y, dy = conjugate(g, node.inputs[0]), node.inputs[1]
        return (
            lambda: g.Mul(g.Mul(g.Mul(conjugate(g, dz), -1.5), dy), g.Square(y)),
            lambda: g.RsqrtGrad(y, dz),
        )


class ReciprocalGrad(UnboundedGradient):
    """Gradient of Reciprocal, computed from its output: -dy y²."""

    kernel = staticmethod(lambda xp, y, dy: -dy * (y * y))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        y, dy = conjugate(g, node.inputs[0]), node.inputs[1]
        return (
            lambda: g.Mul(g.Mul(g.Mul(conjugate(g, dz), -2), dy), y),
            lambda: g.ReciprocalGrad(y, dz),
        )


class InvGrad(ReciprocalGrad):
    """Gradient of Inv (older name of ReciprocalGrad)."""

    compilation = CompilerSupport(compiled=False)
