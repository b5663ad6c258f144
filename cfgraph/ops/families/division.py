"""Quotients and remainders, and NoNan ops, whose result is 0 if one operand is 0."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.arithmetic import BinaryOp
from cfgraph.ops.kernels import complex_numbers
from cfgraph.ops.kernels.array_namespace import (
    defer_check,
    is_gpu_namespace,
    rounds_each_step,
)
from cfgraph.ops.opdef.facts import AlgebraicFacts
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    binary_gradients,
    conjugate,
    zero_gradient,
)
from cfgraph.ops.opdef.op import COMPLEX, FLOATS, REAL, Kernel, OpError, one_of


class Division(BinaryOp, abstract=True):
    """A quotient or remainder; `integer_function` computes it for integers."""

    integer_function: ClassVar[str | Kernel]

    @classmethod
    def can_fail(cls, node: Node) -> bool:
        return bool(node.attr("T").is_integer)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if not dtype.is_integer:
            return rounds_each_step(super().bind(node, xp), node, xp)
        declared = cls.integer_function
        function: Any = getattr(xp, declared) if isinstance(declared, str) else declared
        if xp is not np:
            return lambda x, y: _checked_quotient(function, x, y)

        def divide(x: Any, y: Any) -> Any:
            if not (y.all() if y.ndim else y) and x.size:
                raise OpError("Integer division by zero")
            return function(x, y)

        return divide


def _checked_quotient(function: Kernel, x: Any, y: Any) -> Any:
    if x.size:
        defer_check(lambda: y != 0)
    return function(x, y)


def truncated_quotient(x: Any, y: Any) -> Any:
    """Quotient of integers, rounded toward zero."""
    quotient = x // y
    behind = (x < 0) ^ (y < 0)
    return quotient + (behind & (quotient * y != x)).astype(quotient.dtype)


def _quotient_gradient(
    g: GradientBuilder, node: Node, dz: Output, divide: Callable[..., Output]
) -> InputGradients:
    y, z = conjugate(g, node.inputs[1]), conjugate(g, node.output())
    return binary_gradients(g, node, lambda: divide(dz, y), lambda: g.Mul(dz, divide(g.Neg(z), y)))


class RealDiv(Division):
    """Quotient of two tensors; integer quotients are rounded toward zero."""

    algebra = AlgebraicFacts(neutral_second=1)
    function = operator.truediv
    complex_kernel = staticmethod(complex_numbers.quotient)
    integer_function = staticmethod(truncated_quotient)
    gradient = staticmethod(lambda g, node, dz: _quotient_gradient(g, node, dz, g.RealDiv))


class Div(RealDiv):
    """Quotient of two tensors (older name of RealDiv)."""


class TruncateDiv(Division):
    """Quotient rounded toward zero."""

    gradient = staticmethod(zero_gradient)
    kernel = staticmethod(lambda xp, x, y: xp.trunc(x / y))
    integer_function = staticmethod(truncated_quotient)


class FloorDiv(Division):
    """Quotient rounded down."""

    gradient = staticmethod(zero_gradient)
    kernel = staticmethod(lambda xp, x, y: xp.floor(x / y))
    integer_function = operator.floordiv


def _remainder_gradient(
    g: GradientBuilder, node: Node, dz: Output, divide: Callable[..., Output]
) -> InputGradients:
    x, y = node.inputs
    return binary_gradients(g, node, lambda: dz, lambda: g.Mul(dz, g.Neg(divide(x, y))))


def _exact_remainder(xp: ModuleType, x: Any, y: Any) -> Any:
    """Exact remainder with the sign of y; CUDA's own, x - floor(x / y) * y, has rounding errors."""
    remainder = xp.fmod(x, y)
    remainder = xp.where((remainder != 0) & ((remainder < 0) ^ (y < 0)), remainder + y, remainder)
    return xp.where(remainder == 0, xp.copysign(remainder, y), remainder)


class FloorMod(Division):
    """Remainder of the quotient rounded down, with the sign of y."""

    attrs = one_of(REAL)
    function = operator.mod
    integer_function = operator.mod

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if is_gpu_namespace(xp) and not node.attr("T").is_integer:
            return lambda x, y: _exact_remainder(xp, x, y)
        return super().bind(node, xp)

    gradient = staticmethod(lambda g, node, dz: _remainder_gradient(g, node, dz, g.FloorDiv))


class TruncateMod(Division):
    """Remainder of the quotient rounded toward zero, with the sign of x."""

    attrs = one_of("int32, int64", FLOATS)
    function = "fmod"
    integer_function = "fmod"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        # the GPU's own fmod computes in float64
        if is_gpu_namespace(xp) and node.attr("T").is_integer:
            return lambda x, y: x - truncated_quotient(x, y) * y
        return super().bind(node, xp)

    gradient = staticmethod(lambda g, node, dz: _remainder_gradient(g, node, dz, g.TruncateDiv))


class Mod(TruncateMod):
    """Remainder of the quotient rounded toward zero (older name of TruncateMod)."""


class DivNoNan(Division):
    """Quotient, 0 where y is 0."""

    attrs = one_of(FLOATS, COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        if xp is np and not x.ndim and not y.ndim:
            return x / y if y else y.dtype.type(0)
        return xp.where(y == 0, xp.zeros((), y.dtype), x / y)

    @staticmethod
    def complex_kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(y == 0, xp.zeros((), y.dtype), complex_numbers.quotient(xp, x, y))

    gradient = staticmethod(lambda g, node, dz: _quotient_gradient(g, node, dz, g.DivNoNan))


class MulNoNan(BinaryOp):
    """Product, 0 where y is 0 even if x is infinite or NaN."""

    attrs = one_of(FLOATS, COMPLEX)
    kernel = staticmethod(lambda xp, x, y: xp.where(y == 0, xp.zeros((), y.dtype), x * y))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = (conjugate(g, operand) for operand in node.inputs)
        return binary_gradients(g, node, lambda: g.MulNoNan(dz, y), lambda: g.MulNoNan(x, dz))


class NoNanProduct(BinaryOp, abstract=True):
    """Product of x and a function of y, 0 where x is 0."""

    attrs = one_of(FLOATS, COMPLEX)
    adapter = rounds_each_step

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = (conjugate(g, operand) for operand in node.inputs)
        same = getattr(g, cls.name)
        return binary_gradients(
            g,
            node,
            lambda: g.Mul(dz, same(g.Cast(g.NotEqual(x, 0), DstT=node.attr("T")), y)),
            lambda: g.Mul(dz, cls.y_derivative(g, x, y)),
        )

    @staticmethod
    def y_derivative(g: GradientBuilder, x: Output, y: Output) -> Output:
        """Derivative with respect to y."""
        raise NotImplementedError


class Xlogy(NoNanProduct):
    """Product x log(y), 0 where x is 0."""

    kernel = staticmethod(lambda xp, x, y: xp.where(x == 0, xp.zeros((), x.dtype), x * xp.log(y)))

    @staticmethod
    def y_derivative(g: GradientBuilder, x: Output, y: Output) -> Output:
        return g.Xdivy(x, y)


class Xlog1py(NoNanProduct):
    """Product x log(1 + y), 0 where x is 0."""

    kernel = staticmethod(lambda xp, x, y: xp.where(x == 0, xp.zeros((), x.dtype), x * xp.log1p(y)))

    @staticmethod
    def complex_kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        product = x * complex_numbers.log1p(xp, y)
        return xp.where(x == 0, xp.zeros((), x.dtype), product)

    @staticmethod
    def y_derivative(g: GradientBuilder, x: Output, y: Output) -> Output:
        return g.Xdivy(x, g.AddV2(y, 1))


class Xdivy(NoNanProduct):
    """Quotient x / y, 0 where x is 0."""

    kernel = staticmethod(lambda xp, x, y: xp.where(x == 0, xp.zeros((), x.dtype), x / y))

    @staticmethod
    def complex_kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(x == 0, xp.zeros((), x.dtype), complex_numbers.quotient(xp, x, y))

    @staticmethod
    def y_derivative(g: GradientBuilder, x: Output, y: Output) -> Output:
        return g.Xdivy(g.Neg(x), g.Square(y))
