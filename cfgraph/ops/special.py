"""Special functions: error functions, gamma functions, integrals."""

from __future__ import annotations

import importlib
from math import pi, sqrt
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, reduced, unknown
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.pointwise_gradients import by_input, by_output, in_full_width, like
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import FLOATS, one_of


def special(xp: ModuleType) -> ModuleType:
    """SciPy's special functions for an array namespace, which may have its own."""
    own: ModuleType | None = getattr(xp, "special", None)
    if own is not None:
        return own
    package = {"jax.numpy": "jax.scipy", "cupy": "cupyx.scipy"}.get(xp.__name__, "scipy")
    return importlib.import_module(f"{package}.special")


def _bell(g: Adjoint, x: Output) -> Output:
    return g.Exp(g.Neg(g.Square(x)))


def _quarter_turns(g: Adjoint, x: Output) -> Output:
    return g.Mul(g.Square(x), pi / 2)


def except_at(g: Adjoint, x: Output, place: float, limit: float, slope: Output) -> Output:
    """A slope, but at one place its limit, which the formula does not give."""
    return g.SelectV2(g.Equal(x, place), like(g, limit, x), slope)


class Special(Pointwise, abstract=True):
    """A special function of one number; `function` is its name in SciPy."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS)
    function: ClassVar[str]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(getattr(special(xp), cls.function), node.attr("T"))


class Erf(Special):
    """The error function."""

    function = "erf"
    gradient = by_input(lambda g, dy, x: g.Mul(_bell(g, x), g.Mul(dy, 2 / sqrt(pi))))


class Erfc(Special):
    """One less the error function."""

    function = "erfc"
    gradient = by_input(lambda g, dy, x: g.Mul(_bell(g, x), g.Mul(dy, -2 / sqrt(pi))))


class Erfinv(Special):
    """The inverse of the error function."""

    function = "erfinv"
    gradient = by_output(lambda g, dy, y: g.Mul(g.Mul(dy, sqrt(pi) / 2), g.Exp(g.Square(y))))


class Ndtri(Special):
    """The inverse of the normal distribution function."""

    function = "ndtri"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        power = g.Mul(g.Square(node.output()), 0.5)
        return [g.Mul(g.Mul(dy, sqrt(2 * pi)), g.Exp(power))]


class Lgamma(Special):
    """The logarithm of the absolute value of the gamma function."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = special(xp).gammaln
        # SciPy has -inf at -inf, the C library and TensorFlow inf
        return widened(
            lambda x: xp.where(x == -xp.inf, x.dtype.type(xp.inf), function(x)), node.attr("T")
        )

    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Digamma(x)))


class Digamma(Special):
    """The derivative of Lgamma."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = special(xp).digamma
        # the pole at 0 has no sign
        return widened(
            lambda x: xp.where(x == 0, x.dtype.type(xp.nan), function(x)), node.attr("T")
        )

    gradient = by_input(lambda g, dy, x: g.Mul(dy, in_full_width(g, "Polygamma", like(g, 1, x), x)))


class Spence(Special):
    """The dilogarithm of 1 - x."""

    compiled = False

    function = "spence"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        x = node.inputs[0]
        slope = g.RealDiv(g.Log(x), g.Sub(1, x))
        return [g.Mul(dy, except_at(g, x, 1, -1, slope))]


class Untraceable(Special, abstract=True):
    """A special function that jax does not have, or not at its poles."""

    traceable = False


class Expint(Untraceable):
    """The exponential integral."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = special(xp).expi
        # jax has NaN at the pole
        return widened(
            lambda x: xp.where(x == 0, x.dtype.type(-xp.inf), function(x)), node.attr("T")
        )

    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.RealDiv(g.Exp(x), x)))


class Dawsn(Untraceable):
    """Dawson's integral."""

    function = "dawsn"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        slope = g.Sub(1, g.Mul(g.Mul(node.inputs[0], 2), node.output()))
        return [g.Mul(dy, slope)]


class Fresnel(Untraceable, abstract=True):
    """One of Fresnel's two integrals."""

    function = "fresnel"
    place: ClassVar[int]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        both, place = special(xp).fresnel, cls.place
        return widened(lambda x: both(x)[place], node.attr("T"))


class FresnelSin(Fresnel):
    """Fresnel's sine integral."""

    place = 0
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Sin(_quarter_turns(g, x))))


class FresnelCos(Fresnel):
    """Fresnel's cosine integral."""

    place = 1
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Cos(_quarter_turns(g, x))))


class Zeta(Pointwise):
    """Hurwitz's zeta function."""

    signature = "x: T, q: T -> z: T"
    attrs = one_of("float32", "float64")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function: Kernel = special(xp).zeta
        return function

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, q = node.inputs
        slope = g.Mul(g.Neg(x), g.Zeta(g.AddV2(x, 1), q))
        return unknown(node, 0), lambda: reduced(g, g.Mul(dz, slope), q, x)


class Polygamma(Pointwise):
    """Derivative number a of Digamma."""

    signature = "a: T, x: T -> z: T"
    attrs = one_of("float32", "float64")

    @staticmethod
    def kernel(xp: ModuleType, a: Any, x: Any) -> Any:
        functions = special(xp)
        sign = xp.where(a % 2 == 0, -1.0, 1.0)
        higher = sign * xp.exp(functions.gammaln(a + 1)) * functions.zeta(a + 1, x)
        value = xp.where(a == 0, functions.digamma(x), higher)
        return xp.where((a < 0) | (a != xp.floor(a)), xp.nan, value).astype(x.dtype)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        a, x = node.inputs
        return unknown(node, 0), lambda: reduced(g, g.Mul(dz, g.Polygamma(g.AddV2(a, 1), x)), x, a)


class Betainc(Pointwise):
    """The regularized incomplete beta function."""

    signature = "a: T, b: T, x: T -> z: T"
    attrs = one_of("float32", "float64")

    @staticmethod
    def kernel(xp: ModuleType, a: Any, b: Any, x: Any) -> Any:
        if len({v.shape for v in (a, b, x) if v.ndim}) > 1:
            message = f"a, b and x must be of one shape: {list(a.shape)}, {list(b.shape)}"
            raise OpError(f"{message}, {list(x.shape)}")
        value = special(xp).betainc(a, b, x)
        return xp.where((a <= 0) | (b <= 0), x.dtype.type(xp.nan), value)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        a, b, x = node.inputs

        def of_x() -> Output:
            log_beta = g.Sub(g.AddV2(g.Lgamma(a), g.Lgamma(b)), g.Lgamma(g.AddV2(a, b)))
            log_power = g.AddV2(g.Xlog1py(g.Sub(b, 1), g.Neg(x)), g.Xlogy(g.Sub(a, 1), x))
            slope = g.Exp(g.Sub(log_power, log_beta))
            return reduced(g, g.Mul(dz, slope), x, node.output())

        return unknown(node, 0), unknown(node, 1), of_x
