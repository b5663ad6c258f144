"""Fake quantization: rounding to quantization levels in floating point, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, no_gradient, same_attrs
from cfgraph.ops.opdef.op import Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_BITS_ATTR = "num_bits: int = 8, narrow_range: bool = false"
_RANGE_ATTRS = f"min: float = -6.0, max: float = 6.0, {_BITS_ATTR}"


class QuantizationSteps(NamedTuple):
    """Quantization of a range, nudged so that zero is a level.

    `size` is the distance of two levels; TensorFlow computes its inverse separately.
    """

    low: Any
    high: Any
    size: Any
    inverse_size: Any


Levels = tuple[Any, Any]


def _levels(node: Node) -> Levels:
    """The first and the last level. Raises OpError for an invalid number of bits."""
    bits = node.attr("num_bits")
    if not 2 <= bits <= 16:
        raise OpError(f"num_bits must be between 2 and 16, inclusive, it is {bits}")
    return np.float32(1 if node.attr("narrow_range") else 0), np.float32(2**bits - 1)


def _quantization_steps(xp: ModuleType, levels: Levels, low: Any, high: Any) -> QuantizationSteps:
    first, last = levels
    size, inverse_size = (high - low) / (last - first), (last - first) / (high - low)
    zero = first - low / size
    nudged = xp.where(zero < first, first, xp.where(zero > last, last, xp.floor(zero + 0.5)))
    # NaN as an integer is 0
    nudged = xp.where(xp.isnan(nudged), 0, nudged).astype(np.float32)
    return QuantizationSteps((first - nudged) * size, (last - nudged) * size, size, inverse_size)


def _constant_steps(node: Node) -> QuantizationSteps:
    """The quantization of the range in the attributes. Raises OpError for an empty one."""
    levels = _levels(node)
    low, high = np.float32(node.attr("min")), np.float32(node.attr("max"))
    if not low < high:
        raise OpError(f"min has to be smaller than max, was: {low} >= {high}")
    return _quantization_steps(np, levels, low, high)


def _quantize(xp: ModuleType, inputs: Any, steps: QuantizationSteps, *, divide: bool) -> Any:
    """Round to a level; `divide` by the step or multiply by its inverse, which differ at halves."""
    half = np.float32(0.5)
    zero = xp.floor((-steps.low / steps.size if divide else -steps.low * steps.inverse_size) + half)
    # the lower bound wins where a range has its bounds in the wrong order
    inside = xp.maximum(xp.minimum(inputs, steps.high), steps.low) - steps.low
    number = xp.floor(
        (inside / steps.size if divide else inside * steps.inverse_size) - zero + half
    )
    return number * steps.size


def _straight_through(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
    """Straight-through estimator: identity within the range, elsewhere a gradient of its bounds."""
    gradients = same_attrs(g, f"{node.op}Gradient", node, dy, *node.inputs).node
    return [gradients.output(port) for port in range(len(node.inputs))]


class FakeQuantWithMinMaxArgs(SameShape):
    """Inputs clipped to a constant range and rounded to its quantization levels."""

    gradient = staticmethod(_straight_through)
    signature = "inputs: float32 -> outputs: float32"
    attrs = _RANGE_ATTRS
    # compilers fuse multiplication and addition, which rounds halves differently
    compilation = CompilerSupport(traceable=False)
    steps = _constant_steps
    kernel = staticmethod(lambda xp, steps, /, inputs: _quantize(xp, inputs, steps, divide=False))


class FakeQuantWithMinMaxArgsGradient(SameShape):
    """Gradient of FakeQuantWithMinMaxArgs: `gradients` within the range, zero elsewhere."""

    gradient = staticmethod(no_gradient)
    signature = "gradients: float32, inputs: float32 -> backprops: float32"
    attrs = _RANGE_ATTRS
    steps = _constant_steps

    @staticmethod
    def kernel(xp: ModuleType, steps: QuantizationSteps, /, grad: Any, inputs: Any) -> Any:
        _check_same_shapes(grad, inputs)
        inside = (inputs >= steps.low) & (inputs <= steps.high)
        return xp.where(inside, grad, np.float32(0))

    shape = staticmethod(lambda context: [context.inputs[0].merge(context.inputs[1])])


def _check_same_shapes(grad: Any, inputs: Any) -> None:
    if grad.shape != inputs.shape:
        raise OpError(
            "gradient and input must be the same size, "
            f"not {list(grad.shape)} and {list(inputs.shape)}"
        )


class FakeQuantOp(Op, abstract=True):
    """Fake quantization, or its gradient, with a range of two inputs."""

    attrs = _BITS_ATTR
    compilation = CompilerSupport(traceable=False)
    levels = _levels
    # a range for each channel, the last dimension
    by_channel: ClassVar[bool] = False

    @classmethod
    def check_range(cls, inputs: Any, low: Any, high: Any) -> None:
        """Raise OpError for bounds of another shape than expected."""
        shape = (inputs.shape[-1:] or (1,)) if cls.by_channel else ()
        if low.shape != shape or high.shape != shape:
            raise OpError(f"min and max must have the shape {list(shape)}")


class FakeQuantWithMinMaxVars(FakeQuantOp, SameShape):
    """Inputs clipped to a range of two scalar inputs and rounded to its quantization levels."""

    gradient = staticmethod(_straight_through)
    signature = "inputs: float32, min: float32, max: float32 -> outputs: float32"

    @classmethod
    def kernel(cls, xp: ModuleType, levels: Levels, /, inputs: Any, low: Any, high: Any) -> Any:
        cls.check_range(inputs, low, high)
        steps = _quantization_steps(xp, levels, low, high)
        quantized = _quantize(xp, inputs, steps, divide=not cls.by_channel)
        # an empty range yields zeros
        empty = (low == 0) & (high == 0)
        return xp.where(empty, np.float32(0), quantized).astype(np.float32)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[1], 0)
        require_rank(context.inputs[2], 0)
        return [context.inputs[0]]


class FakeQuantWithMinMaxVarsPerChannel(FakeQuantWithMinMaxVars):
    """Inputs clipped to one range per channel (last dimension) and rounded to its levels."""

    by_channel = True

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        ends = require_rank(context.inputs[1].merge(context.inputs[2]), 1)
        data = context.inputs[0]
        if data.dims:
            data[-1:].merge(ends)
        return [data]


class FakeQuantWithMinMaxVarsGradient(FakeQuantOp):
    """Gradients of FakeQuantWithMinMaxVars with respect to the inputs and both bounds."""

    gradient = staticmethod(no_gradient)
    signature = (
        "gradients: float32, inputs: float32, min: float32, max: float32 -> "
        "backprops_wrt_input: float32, backprop_wrt_min: float32, backprop_wrt_max: float32"
    )

    @classmethod
    def kernel(
        cls, xp: ModuleType, levels: Levels, /, grad: Any, inputs: Any, low: Any, high: Any
    ) -> Any:
        cls.check_range(inputs, low, high)
        _check_same_shapes(grad, inputs)
        steps = _quantization_steps(xp, levels, low, high)
        # an empty range passes all gradients on
        some = (low != 0) | (high != 0)
        below, above = some & (inputs < steps.low), some & (inputs > steps.high)
        inside = (inputs >= steps.low) & (inputs <= steps.high)
        axes = tuple(range(inputs.ndim - 1)) if cls.by_channel else None
        # products, so that no gradient that is infinite or NaN is lost
        return (
            xp.where(some, grad * inside, grad),
            xp.where(some, (grad * below).sum(axis=axes, dtype=np.float32), np.float32(0)),
            xp.where(some, (grad * above).sum(axis=axes, dtype=np.float32), np.float32(0)),
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[2], 0)
        require_rank(context.inputs[3], 0)
        return [context.inputs[0].merge(context.inputs[1]), SCALAR_SHAPE, SCALAR_SHAPE]


class FakeQuantWithMinMaxVarsPerChannelGradient(FakeQuantWithMinMaxVarsGradient):
    """Gradients of FakeQuantWithMinMaxVarsPerChannel with respect to the inputs and all bounds."""

    by_channel = True

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = context.inputs[0].merge(context.inputs[1])
        ends = require_rank(context.inputs[2].merge(context.inputs[3]), 1)
        if data.dims:
            ends = ends.merge(data[-1:])
        return [data, ends, ends]
