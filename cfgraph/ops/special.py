"""Special functions: error functions, gamma functions, Bessel functions, integrals."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import FLOATS, one_of


def special(xp: ModuleType) -> ModuleType:
    """SciPy's special functions for an array namespace."""
    package = {"jax.numpy": "jax.scipy", "cupy": "cupyx.scipy"}.get(xp.__name__, "scipy")
    return importlib.import_module(f"{package}.special")


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


class Erfc(Special):
    """One less the error function."""

    function = "erfc"


class Erfinv(Special):
    """The inverse of the error function."""

    function = "erfinv"


class Ndtri(Special):
    """The inverse of the normal distribution function."""

    function = "ndtri"


class Lgamma(Special):
    """The logarithm of the absolute value of the gamma function."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = special(xp).gammaln
        # SciPy has -inf at -inf, the C library and TensorFlow inf
        return widened(
            lambda x: xp.where(x == -xp.inf, x.dtype.type(xp.inf), function(x)), node.attr("T")
        )


class Digamma(Special):
    """The derivative of Lgamma."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function = special(xp).digamma
        # the pole at 0 has no sign
        return widened(
            lambda x: xp.where(x == 0, x.dtype.type(xp.nan), function(x)), node.attr("T")
        )


class Spence(Special):
    """The dilogarithm of 1 - x."""

    function = "spence"


class BesselI0(Special):
    """The modified Bessel function of the first kind, order 0."""

    function = "i0"


class BesselI0e(Special):
    """BesselI0, scaled by exp(-|x|)."""

    function = "i0e"


class BesselI1(Special):
    """The modified Bessel function of the first kind, order 1."""

    function = "i1"


class BesselI1e(Special):
    """BesselI1, scaled by exp(-|x|)."""

    function = "i1e"


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


class Dawsn(Untraceable):
    """Dawson's integral."""

    function = "dawsn"


class BesselJ0(Untraceable):
    """The Bessel function of the first kind, order 0."""

    function = "j0"


class BesselJ1(Untraceable):
    """The Bessel function of the first kind, order 1."""

    function = "j1"


class BesselY0(Untraceable):
    """The Bessel function of the second kind, order 0."""

    function = "y0"


class BesselY1(Untraceable):
    """The Bessel function of the second kind, order 1."""

    function = "y1"


class BesselK0(Untraceable):
    """The modified Bessel function of the second kind, order 0."""

    function = "k0"


class BesselK0e(Untraceable):
    """BesselK0, scaled by exp(x)."""

    function = "k0e"


class BesselK1(Untraceable):
    """The modified Bessel function of the second kind, order 1."""

    function = "k1"


class BesselK1e(Untraceable):
    """BesselK1, scaled by exp(x)."""

    function = "k1e"


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


class FresnelCos(Fresnel):
    """Fresnel's cosine integral."""

    place = 1


class Zeta(Pointwise):
    """Hurwitz's zeta function."""

    signature = "x: T, q: T -> z: T"
    attrs = one_of("float32", "float64")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function: Kernel = special(xp).zeta
        return function


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
