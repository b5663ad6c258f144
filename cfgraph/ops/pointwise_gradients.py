"""What the gradients of elementwise ops share: one tensor, or two that broadcast."""

from __future__ import annotations

from collections.abc import Callable

from cfgraph.ir.dtypes import bfloat16, float16, float32
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partial, Partials, conj, reduced

Formula = Callable[[Adjoint, Output, Output], Output]
Gradient = Callable[[Adjoint, Node, Output], Partials]


def by_input(formula: Formula) -> Gradient:
    """The gradient of a function of one tensor: a formula of (g, dy, the conjugate of x)."""
    return staticmethod(lambda g, node, dy: [formula(g, dy, conj(g, node.inputs[0]))])


def by_output(formula: Formula) -> Gradient:
    """The gradient of a function of one tensor: a formula of (g, dy, the conjugate of y)."""
    return staticmethod(lambda g, node, dy: [formula(g, dy, conj(g, node.output()))])


def by_result(op: str) -> Gradient:
    """The gradient of a function of one tensor: an op of y and dy, which itself conjugates y."""
    return staticmethod(lambda g, node, dy: [getattr(g, op)(node.output(), dy)])


def of_pair(
    g: Adjoint, node: Node, dx: Callable[[], Output], dy: Callable[[], Output]
) -> tuple[Partial, Partial]:
    """Gradients of the shape that two tensors broadcast to, summed to the shape of each."""
    x, y = node.inputs
    return lambda: reduced(g, dx(), x, y), lambda: reduced(g, dy(), y, x)


def over(g: Adjoint, dz: Output, condition: Output, *, negated: bool = False) -> Output:
    """The gradient where a condition holds, which broadcasts to it, and zeros elsewhere."""
    zero = like(g, 0, dz)
    return g.SelectV2(condition, zero, dz) if negated else g.SelectV2(condition, dz, zero)


def like(g: Adjoint, value: float, x: Output) -> Output:
    """A constant of the type of a tensor, where the first tensor beside it has another one."""
    assert x.dtype is not None
    return g.const(value, x.dtype.base)


def in_full_width(g: Adjoint, op: str, *inputs: Output) -> Output:
    """An op that has no half-width floats, of tensors that may be."""
    dtype, make = inputs[0].dtype, getattr(g, op)
    if dtype not in (float16, bfloat16):
        made: Output = make(*inputs)
        return made
    return g.Cast(make(*(g.Cast(x, DstT=float32) for x in inputs)), DstT=dtype)
