"""Base classes of elementwise ops, and the gradients of unary and broadcasting binary ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.dtypes import bfloat16, float16, float32
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradient,
    InputGradients,
    conjugate,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Kernel, Op
from cfgraph.ops.opdef.shape_functions import InferenceContext


class SameShape(Op, abstract=True):
    """An op whose outputs all have the shape of input 0."""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]] * context.output_count


class Elementwise(Op, abstract=True):
    """A broadcasting op. `function` is an operator or a name in the array namespace."""

    function: ClassVar[str | Callable[..., Any] | None] = None

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if cls.function is None:
            return super().bind(node, xp)
        return getattr(xp, cls.function) if isinstance(cls.function, str) else cls.function

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        result = context.inputs[0]
        for shape in context.inputs[1:]:
            result = result.broadcast(shape)
        return [result]


GradientFormula = Callable[[GradientBuilder, Output, Output], Output]
GradientFunction = Callable[[GradientBuilder, Node, Output], InputGradients]


def gradient_from_input(formula: GradientFormula) -> GradientFunction:
    """Gradient of a unary function from a formula of (g, dy, the conjugate of x)."""
    return staticmethod(lambda g, node, dy: [formula(g, dy, conjugate(g, node.inputs[0]))])


def gradient_from_output(formula: GradientFormula) -> GradientFunction:
    """Gradient of a unary function from a formula of (g, dy, the conjugate of y)."""
    return staticmethod(lambda g, node, dy: [formula(g, dy, conjugate(g, node.output()))])


def gradient_from_op(op: str) -> GradientFunction:
    """Gradient of a unary function by an op of y and dy, which conjugates y itself."""
    return staticmethod(lambda g, node, dy: [getattr(g, op)(node.output(), dy)])


def binary_gradients(
    g: GradientBuilder, node: Node, dx: Callable[[], Output], dy: Callable[[], Output]
) -> tuple[InputGradient, InputGradient]:
    """Sum the gradients of a broadcasting op to the shapes of its two inputs."""
    x, y = node.inputs
    return lambda: sum_to_shape(g, dx(), x, y), lambda: sum_to_shape(g, dy(), y, x)


def select_gradient(
    g: GradientBuilder, dz: Output, condition: Output, *, negated: bool = False
) -> Output:
    """The gradient where a broadcast condition holds, and zeros elsewhere."""
    zero = constant_like(g, 0, dz)
    return g.SelectV2(condition, zero, dz) if negated else g.SelectV2(condition, dz, zero)


def constant_like(g: GradientBuilder, value: float, x: Output) -> Output:
    """A constant of the type of `x`."""
    assert x.dtype is not None
    return g.const(value, x.dtype.base)


def add_in_float32(g: GradientBuilder, op: str, *inputs: Output) -> Output:
    """Add an op that does not accept half-precision floats, with casts where needed."""
    dtype, make = inputs[0].dtype, getattr(g, op)
    if dtype not in (float16, bfloat16):
        made: Output = make(*inputs)
        return made
    return g.Cast(make(*(g.Cast(x, DstT=float32) for x in inputs)), DstT=dtype)
