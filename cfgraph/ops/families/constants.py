"""Constants, placeholders, and Identity."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.facts import Aliasing, SideEffects
from cfgraph.ops.opdef.gradient_api import identity_gradient
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext


class Const(Op):
    """Constant tensor with the value of the `value` attribute."""

    signature = "-> output: dtype"
    attrs = "value: tensor, dtype: type"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        value = node.attr("value").array
        if value.ndim == 0 and value.dtype != object:
            value = value[()]
        return lambda: value

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape: Shape = context.attr("value").shape
        return [shape]


class Placeholder(Op):
    """Graph input; an error at run time unless it is fed."""

    signature = "-> output: dtype"
    attrs = "dtype: type, shape: shape = ?"
    effects = SideEffects(is_input=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def unfed() -> Any:
            message = f"You must feed a value for placeholder tensor '{node.name}'"
            raise OpError(message)

        return unfed

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.attr("shape")]


class PlaceholderV2(Placeholder):
    """Placeholder with a mandatory shape."""

    signature = "-> output: dtype"
    attrs = "dtype: type, shape: shape"


class PlaceholderWithDefault(SameShape):
    """Graph input that defaults to its input tensor unless it is fed."""

    signature = "input: dtype -> output: dtype"
    attrs = "shape: shape"
    effects = SideEffects(is_input=True)
    gradient = staticmethod(identity_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return identity

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.attr("shape")]


class Identity(SameShape):
    """Identity function: forwards its input."""

    signature = "input: T -> output: T"
    aliasing = Aliasing(preserves_elements=True, is_identity=True)
    gradient = staticmethod(identity_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return identity


def identity(value: Any) -> Any:
    """Return the argument."""
    return value
