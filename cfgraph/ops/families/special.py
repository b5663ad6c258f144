"""Special functions: error, gamma, beta, and Bessel functions, and integrals."""

from __future__ import annotations

from math import pi, sqrt
from types import ModuleType
from typing import Any, ClassVar, Final

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.kernels.array_namespace import computed_in_float32, is_gpu_namespace, scipy_special
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    GradientFunction,
    InputGradients,
    add_in_float32,
    constant_like,
    gradient_from_input,
    gradient_from_output,
    not_differentiable,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import FLOATS, Elementwise, Kernel, OpError, one_of


def _half_pi_square(g: GradientBuilder, x: Output) -> Output:
    return g.Mul(g.Square(x), pi / 2)


def with_limit_at(
    g: GradientBuilder, x: Output, point: float, limit: float, slope: Output
) -> Output:
    """The slope, replaced by its limit at a removable singularity."""
    return g.SelectV2(g.Equal(x, point), constant_like(g, limit, x), slope)


# CuPy's have other limits at infinity than Eigen's, or overflow before it
_WRONG_ON_GPU: Final = frozenset(("i0", "i0e", "i1", "i1e", "j0", "j1", "k0e", "k1e"))


class SpecialFunction(Elementwise, abstract=True):
    """Elementwise special function; `function` is its name in scipy.special."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS)
    function: ClassVar[str]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if cls.function in _WRONG_ON_GPU and is_gpu_namespace(xp):
            raise NotImplementedError(f"{cls.function} of CuPy is wrong for large arguments")
        return computed_in_float32(getattr(scipy_special(xp), cls.function), node.attr("T"))


class Erfinv(SpecialFunction):
    """Inverse of the error function."""

    function = "erfinv"
    gradient = gradient_from_output(
        lambda g, dy, y: g.Mul(g.Mul(dy, sqrt(pi) / 2), g.Exp(g.Square(y)))
    )


class Ndtri(SpecialFunction):
    """Quantile function of the standard normal distribution."""

    function = "ndtri"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        power = g.Mul(g.Square(node.output()), 0.5)
        return [g.Mul(g.Mul(dy, sqrt(2 * pi)), g.Exp(power))]


class Lgamma(SpecialFunction):
    """Logarithm of the absolute value of the gamma function."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = scipy_special(xp).gammaln
        # at -inf SciPy has -inf, the C library and TensorFlow have inf
        return computed_in_float32(
            lambda x: xp.where(x == -xp.inf, x.dtype.type(xp.inf), function(x)), node.attr("T")
        )

    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Digamma(x)))


class Digamma(SpecialFunction):
    """Digamma function: the derivative of Lgamma."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = scipy_special(xp).digamma
        # the sign of the pole at 0 is undefined
        return computed_in_float32(
            lambda x: xp.where(x == 0, x.dtype.type(xp.nan), function(x)), node.attr("T")
        )

    gradient = gradient_from_input(
        lambda g, dy, x: g.Mul(dy, add_in_float32(g, "Polygamma", constant_like(g, 1, x), x))
    )


class Spence(SpecialFunction):
    """Spence's function: the dilogarithm of 1 - x."""

    compilation = CompilerSupport(compiled=False)

    function = "spence"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x = node.inputs[0]
        slope = g.RealDiv(g.Log(x), g.Sub(1, x))
        return [g.Mul(dy, with_limit_at(g, x, 1, -1, slope))]


class UntraceableFunction(SpecialFunction, abstract=True):
    """Special function that jax lacks or evaluates differently at poles."""

    compilation = CompilerSupport(traceable=False)


class Expint(UntraceableFunction):
    """Exponential integral Ei."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = scipy_special(xp).expi

        def kernel(x: Any) -> Any:
            # jax returns NaN at the pole, and TensorFlow where Ei is not an integral of exp(t) / t
            at_pole, nan = x.dtype.type(-xp.inf), x.dtype.type(xp.nan)
            inside = xp.where((x < 0) | (x == xp.inf), nan, function(x))
            return xp.where(x == 0, at_pole, inside)

        return computed_in_float32(kernel, node.attr("T"))

    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.RealDiv(g.Exp(x), x)))


class Dawsn(UntraceableFunction):
    """Dawson's integral."""

    function = "dawsn"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        slope = g.Sub(1, g.Mul(g.Mul(node.inputs[0], 2), node.output()))
        return [g.Mul(dy, slope)]


class FresnelIntegral(UntraceableFunction, abstract=True):
    """Fresnel integral."""

    function = "fresnel"
    output_index: ClassVar[int]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        integrals, output_index = scipy_special(xp).fresnel, cls.output_index
        return computed_in_float32(lambda x: integrals(x)[output_index], node.attr("T"))


class FresnelSin(FresnelIntegral):
    """Fresnel sine integral."""

    output_index = 0
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Sin(_half_pi_square(g, x))))


class FresnelCos(FresnelIntegral):
    """Fresnel cosine integral."""

    output_index = 1
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Cos(_half_pi_square(g, x))))


class Zeta(Elementwise):
    """Hurwitz zeta function."""

    signature = "x: T, q: T -> z: T"
    attrs = one_of("float32", "float64")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = scipy_special(xp).zeta

        def kernel(x: Any, q: Any) -> Any:
            # TensorFlow has no value at the poles but for even numbers x, as 1 / (q + n)^x has one
            at_pole = (q <= 0) & (q == xp.floor(q)) & (x > 1)
            is_even = (x == xp.inf) | (x % 2 == 0)
            values = xp.where(at_pole & ~is_even, xp.nan, function(x, q))
            values = xp.where(xp.isnan(x), xp.nan, values)
            return xp.where((x == xp.inf) & (q > 1), 0, values).astype(x.dtype)

        return kernel

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, q = node.inputs
        slope = g.Mul(g.Neg(x), g.Zeta(g.AddV2(x, 1), q))
        return not_differentiable(node, 0), lambda: sum_to_shape(g, g.Mul(dz, slope), q, x)


class Polygamma(Elementwise):
    """Polygamma function: the derivative of Digamma of order `a`."""

    signature = "a: T, x: T -> z: T"
    attrs = one_of("float32", "float64")

    @staticmethod
    def kernel(xp: ModuleType, a: Any, x: Any) -> Any:
        functions = scipy_special(xp)
        sign = xp.where(a % 2 == 0, -1.0, 1.0)
        higher = sign * xp.exp(functions.gammaln(a + 1)) * functions.zeta(a + 1, x)
        value = xp.where(a == 0, functions.digamma(x), higher)
        return xp.where((a < 0) | (a != xp.floor(a)), xp.nan, value).astype(x.dtype)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        a, x = node.inputs
        return not_differentiable(node, 0), lambda: sum_to_shape(
            g, g.Mul(dz, g.Polygamma(g.AddV2(a, 1), x)), x, a
        )


class Betainc(Elementwise):
    """Regularized incomplete beta function."""

    signature = "a: T, b: T, x: T -> z: T"
    attrs = one_of("float32", "float64")

    @staticmethod
    def kernel(xp: ModuleType, a: Any, b: Any, x: Any) -> Any:
        if len({v.shape for v in (a, b, x) if v.ndim}) > 1:
            message = f"a, b, and x must have the same shape, got {list(a.shape)}, {list(b.shape)}"
            raise OpError(f"{message}, {list(x.shape)}")
        value = scipy_special(xp).betainc(a, b, x)
        unknown = (a <= 0) | (b <= 0) | xp.isinf(a) | xp.isinf(b)
        value = xp.where(unknown, x.dtype.type(xp.nan), value)
        # the bounds are exact for positive and unknown parameters alike
        return xp.where(((x == 0) | (x == 1)) & ~((a <= 0) | (b <= 0)), x, value)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        a, b, x = node.inputs

        def x_gradient() -> Output:
            log_beta = g.Sub(g.AddV2(g.Lgamma(a), g.Lgamma(b)), g.Lgamma(g.AddV2(a, b)))
            log_power = g.AddV2(g.Xlog1py(g.Sub(b, 1), g.Neg(x)), g.Xlogy(g.Sub(a, 1), x))
            slope = g.Exp(g.Sub(log_power, log_beta))
            return sum_to_shape(g, g.Mul(dz, slope), x, node.output())

        return not_differentiable(node, 0), not_differentiable(node, 1), x_gradient


def order_one_gradient(
    op: str, at_zero: float | None = None, *, negated: bool = False
) -> GradientFunction:
    """Gradient of a Bessel function of order 1: ±`op` of order 0, minus y / x."""

    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, y = node.inputs[0], node.output()
        lower: Output = getattr(g, op)(x)
        slope = g.Sub(g.Neg(lower) if negated else lower, g.RealDiv(y, x))
        return [g.Mul(dy, slope if at_zero is None else with_limit_at(g, x, 0, at_zero, slope))]

    return gradient


class BesselI0(SpecialFunction):
    """Modified Bessel function of the first kind, order 0."""

    compilation = CompilerSupport(compiled=False)

    function = "i0"
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.BesselI1(x)))


class BesselI0e(SpecialFunction):
    """BesselI0 scaled by exp(-|x|)."""

    function = "i0e"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, y = node.inputs[0], node.output()
        return [g.Mul(dy, g.Sub(g.BesselI1e(x), g.Mul(g.Sign(x), y)))]


class BesselI1(SpecialFunction):
    """Modified Bessel function of the first kind, order 1."""

    compilation = CompilerSupport(compiled=False)

    function = "i1"
    gradient = order_one_gradient("BesselI0", at_zero=0.5)


class BesselI1e(SpecialFunction):
    """BesselI1 scaled by exp(-|x|)."""

    function = "i1e"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, y = node.inputs[0], node.output()
        fall = g.Mul(y, g.AddV2(g.Sign(x), g.Reciprocal(x)))
        return [g.Mul(dy, with_limit_at(g, x, 0, 0.5, g.Sub(g.BesselI0e(x), fall)))]


class BesselJ0(UntraceableFunction):
    """Bessel function of the first kind, order 0."""

    function = "j0"
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.BesselJ1(x))))


class BesselJ1(UntraceableFunction):
    """Bessel function of the first kind, order 1."""

    function = "j1"
    gradient = order_one_gradient("BesselJ0", at_zero=0.5)


class SecondKindFunction(UntraceableFunction, abstract=True):
    """Bessel function with a pole at zero, where TensorFlow has its limit for negative numbers."""

    below_zero: ClassVar[float]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kernel, limit = super().bind(node, xp), cls.below_zero
        return lambda x: xp.where(x < 0, x.dtype.type(limit), kernel(x))


class BesselY0(SecondKindFunction):
    """Bessel function of the second kind, order 0."""

    function = "y0"
    below_zero = float("-inf")
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.BesselY1(x))))


class BesselY1(SecondKindFunction):
    """Bessel function of the second kind, order 1."""

    function = "y1"
    below_zero = float("-inf")
    gradient = order_one_gradient("BesselY0")


class BesselK0(SecondKindFunction):
    """Modified Bessel function of the second kind, order 0."""

    function = "k0"
    below_zero = float("inf")
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.BesselK1(x))))


class BesselK0e(SecondKindFunction):
    """BesselK0 scaled by exp(x)."""

    function = "k0e"
    below_zero = float("inf")
    gradient = staticmethod(
        lambda g, node, dy: [g.Mul(dy, g.Sub(node.output(), g.BesselK1e(node.inputs[0])))]
    )


class BesselK1(SecondKindFunction):
    """Modified Bessel function of the second kind, order 1."""

    function = "k1"
    below_zero = float("inf")
    gradient = order_one_gradient("BesselK0", negated=True)


class BesselK1e(SecondKindFunction):
    """BesselK1 scaled by exp(x)."""

    function = "k1e"
    below_zero = float("inf")

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, y = node.inputs[0], node.output()
        slope = g.Sub(g.Mul(y, g.Sub(1, g.Reciprocal(x))), g.BesselK0e(x))
        return [g.Mul(dy, slope)]
