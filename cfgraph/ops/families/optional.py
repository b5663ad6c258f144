"""Optionals: variants that contain a tuple of values, or nothing."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.kernels.variant_math import add_values, zeros_like_element
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError


class OptionalVariant:
    """A variant element that contains a tuple of values or nothing (`values` is None)."""

    __slots__ = ("values",)
    shape = ()
    ndim = 0

    def __init__(self, values: tuple[Any, ...] | None) -> None:
        self.values = values

    def zeros_like(self) -> OptionalVariant:
        """An optional with zeros for its values; an empty optional stays empty."""
        return (
            self
            if self.values is None
            else OptionalVariant(tuple(map(zeros_like_element, self.values)))
        )

    def add(self, addend: Any) -> OptionalVariant:
        """The elementwise sum of two optionals. Raises OpError if only one of them has a value."""
        addend = optional_of(addend)
        if self.values is None and addend.values is None:
            return self
        if self.values is None or addend.values is None:
            raise OpError("Cannot add optionals because one has a value and the other doesn't.")
        if len(self.values) != len(addend.values):
            raise OpError("Cannot add optionals because they have different numbers of components.")
        return OptionalVariant(tuple(map(add_values, self.values, addend.values)))

    def __repr__(self) -> str:
        return "<Optional nothing>" if self.values is None else f"<Optional {self.values!r}>"


def optional_of(optional: Any) -> OptionalVariant:
    """The optional inside a variant tensor. Raises OpError for any other value."""
    if isinstance(optional, np.ndarray) and not optional.ndim:
        optional = optional[()]
    if not isinstance(optional, OptionalVariant):
        raise OpError(f"The given variant does not hold an optional but {optional!r}")
    return optional


class OptionalNone(Op):
    """An optional without a value."""

    signature = "-> optional: variant"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        empty = OptionalVariant(None)
        return lambda: empty

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class OptionalFromValue(Op):
    """A tuple of tensors packed into one variant scalar."""

    signature = "components: Toutput_types -> optional: variant"
    attrs = "Toutput_types: list(type) >= 1"
    kernel = staticmethod(lambda xp, *values: OptionalVariant(values))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        components = g.OptionalGetValue(
            dz,
            output_types=node.attr("Toutput_types"),
            output_shapes=tuple(g.known_shape(tensor) for tensor in node.inputs),
        )
        return [components.node.output(i) for i in range(len(node.inputs))]


class OptionalHasValue(Op):
    """True if the optional has a value."""

    signature = "optional: variant -> has_value: bool"
    kernel = staticmethod(lambda xp, optional: np.bool_(optional_of(optional).values is not None))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class OptionalGetValue(Op):
    """The tensors packed in an optional. Fails if it has no value."""

    signature = "optional: variant -> components: output_types"
    attrs = "output_types: list(type) >= 1, output_shapes: list(shape) >= 1"

    @staticmethod
    def kernel(xp: ModuleType, output_shapes: Any, /, optional: Any) -> Any:
        values = optional_of(optional).values
        if values is None:
            raise OpError("The given optional does not have a value.")
        if len(values) != len(output_shapes):
            raise OpError(
                f"The given optional has {len(values)} components, expected {len(output_shapes)}"
            )
        for index, (value, shape) in enumerate(zip(values, output_shapes, strict=True)):
            if not shape.accepts(value.shape):
                raise OpError(
                    f"The given optional has component {index} of shape "
                    f"{Shape(value.shape)}, expected {shape}"
                )
        return values[0] if len(values) == 1 else values

    shape = staticmethod(lambda context: list(context.attr("output_shapes")))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        values = [dz or g.zeros_like(node.output(i)) for i, dz in enumerate(grads)]
        return [g.OptionalFromValue(values)]
