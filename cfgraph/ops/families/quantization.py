"""Quantization of floats to integers of few bits, and back."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape, vector_shape
from cfgraph.ops.kernels.array_namespace import in_float32, on_host
from cfgraph.ops.kernels.quantized_numbers import round_away
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext

_MODES: Final = "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'"
_QUANTIZED: Final = "T: {qint8, quint8, qint32, qint16, quint16}"
_F32: Final = np.float32


class QuantizedRange(NamedTuple):
    """The mode of a node, and the least and the greatest integer of its type."""

    mode: str
    least: int
    greatest: int

    @classmethod
    def from_node(cls, node: Node) -> QuantizedRange:
        """The range of attribute `T`."""
        limits = np.iinfo(node.attr("T").numpy)
        return cls(decode_text(node.attr("mode")), int(limits.min), int(limits.max))

    @property
    def steps(self) -> int:
        """The number of integers, less one."""
        return self.greatest - self.least

    @property
    def greatest_float32(self) -> Any:
        """The greatest integer that float32 represents."""
        rounded = _F32(self.greatest)
        return rounded if int(rounded) <= self.greatest else np.nextafter(rounded, _F32(0))

    @property
    def half(self) -> float:
        """The offset that shifts the range of a signed type to start at zero."""
        return (self.steps + 1) / 2 if self.least < 0 else 0.0


def channel_ranges(node: Node, x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds, ready to broadcast: scalars, or one per slice along the axis."""
    axis = node.attr("axis")
    if low.shape != high.shape or (low.size != 1 if axis == -1 else low.ndim != 1):
        raise OpError(
            f"min_range and max_range have invalid shapes {list(low.shape)}, {list(high.shape)}"
        )
    if axis == -1:
        return low.reshape(())[()], high.reshape(())[()]
    if not 0 <= axis < x.ndim or len(low) != x.shape[axis]:
        raise OpError(f"axis {axis} with {len(low)} ranges does not fit shape {list(x.shape)}")
    shape = [1] * x.ndim
    shape[axis] = -1
    return low.reshape(shape), high.reshape(shape)


class QuantizeV2(Op):
    """Floats of a range as integers, and the range that they represent."""

    signature = (
        "input: float32, min_range: float32, max_range: float32 "
        "-> output: T, output_min: float32, output_max: float32"
    )
    attrs = (
        f"{_QUANTIZED}, {_MODES}, round_mode: {{'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'}} = "
        "'HALF_AWAY_FROM_ZERO', narrow_range: bool = false, axis: int = -1, "
        "ensure_minimum_range: float = 0.01"
    )
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        target, dtype = QuantizedRange.from_node(node), node.attr("T").numpy
        even = node.attr("round_mode") == b"HALF_TO_EVEN"
        if even and target.mode != "SCALED":
            raise OpError("Round mode HALF_TO_EVEN only supported for mode SCALED")
        narrow, least_span = (
            bool(node.attr("narrow_range")),
            _F32(node.attr("ensure_minimum_range")),
        )

        def quantize(x: Any, low: Any, high: Any) -> Any:
            shape = np.asarray(low).shape
            low, high = channel_ranges(node, x, np.asarray(low), np.asarray(high))
            if not np.all(low <= high):
                raise OpError("Max range must be at least min range")
            span = np.maximum(_F32(1), np.maximum(np.abs(low), np.abs(high))) * least_span
            low = np.minimum(_F32(0), low)
            high = np.maximum(_F32(0), np.maximum(high, low + span))
            if target.mode == "SCALED":
                values, low, high = _scaled(x, low, high, target, narrow=narrow, even=even)
            elif target.mode == "MIN_FIRST":
                scale = _F32(target.steps / (np.float64(high) - low))
                values = round_away(x * scale) - (round_away(low * scale) - _F32(target.least))
                values = np.clip(values, _F32(target.least), target.greatest_float32)
            else:
                scale = _F32(target.steps / (np.float64(high) - low))
                values = (np.minimum(np.maximum(x, low), high) - low) * scale - _F32(target.half)
                values = np.trunc(values + _F32(0.5)) if not target.half else round_away(values)
            bounds = (np.reshape(np.asarray(v, _F32), shape) for v in (low, high))
            return (values.astype(dtype), *bounds)

        return quantize

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        bound = SCALAR_SHAPE if context.attr("axis") == -1 else vector_shape(None)
        return [context.inputs[0], bound, bound]


def _scaled(
    x: Any, low: Any, high: Any, target: QuantizedRange, *, narrow: bool, even: bool
) -> tuple[Any, Any, Any]:
    """Quantize symmetrically: zero is zero. The values and the range that they represent."""
    least, greatest = _F32(target.least + narrow), _F32(target.greatest)
    largest = np.finfo(_F32).max
    with np.errstate(all="ignore"):
        from_low = np.where(least * low > 0, least / low, largest)
        from_high = np.where(greatest * high > 0, greatest / high, largest)
    scale = np.minimum(from_low, from_high).astype(_F32)
    low, high = least / scale, greatest / scale
    scaled = np.minimum(np.maximum(x, low), high) * scale
    return np.rint(scaled) if even else round_away(scaled), low, high


class Dequantize(SameShape):
    """Floats that quantized integers represent."""

    signature = "input: T, min_range: float32, max_range: float32 -> output: dtype"
    attrs = (
        f"{_QUANTIZED}, {_MODES}, narrow_range: bool = false, axis: int = -1, "
        "dtype: {bfloat16, float32} = float32"
    )
    compilation = CompilerSupport(traceable=False, compiled=True)
    placement = HostPlacement(host_only=True)
    source = QuantizedRange.from_node

    @staticmethod
    def kernel(
        xp: ModuleType, node: Node, source: Any, dtype: DType, narrow_range: bool, /, *inputs: Any
    ) -> Any:
        x, low, high = inputs
        low, high = channel_ranges(node, x, np.asarray(low), np.asarray(high))
        numbers = x.astype(np.float64)
        if source.mode == "SCALED":
            scale = high / _F32(source.greatest)
            if source.least:
                scale = np.maximum(low / _F32(source.least + narrow_range), scale)
            return (numbers.astype(_F32) * scale).astype(dtype.numpy)
        if source.mode == "MIN_FIRST":
            scale = _F32((np.float64(high) - low) / source.steps)
            start = np.where(low == high, low, round_away(low / scale) * scale)
            return (start + (numbers - source.least).astype(_F32) * scale).astype(dtype.numpy)
        scale = _F32((np.float64(high) - low) / source.steps)
        shifted = (numbers + source.half).astype(_F32)
        return (shifted * scale + low).astype(dtype.numpy)


_SIMULATED: Final = (
    "signed_input: bool = true, num_bits: int = 8, range_given: bool = false, "
    "T: {bfloat16, float16, float32, float64}, "
    "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN', narrow_range: bool = false, "
    "axis: int = -1"
)


def simulated(node: Node, x: Any, low: Any, high: Any, bits: int, *, up: bool) -> Any:
    """Simulated quantization: floats rounded to the levels of an integer with this many bits."""
    signed, kind = bool(node.attr("signed_input")), x.dtype.type
    if not 1 <= bits <= (62 if signed else 63):
        raise OpError(f"num_bits is out of range: {bits} with signed_input {signed}")
    axis = node.attr("axis")
    if not -1 <= axis < x.ndim:
        raise OpError(f"axis {axis} is not in [-1, {x.ndim})")
    has_range = bool(node.attr("range_given"))
    if has_range:
        low, high = channel_ranges(node, x, np.asarray(low), np.asarray(high))
        if not np.all(low <= high):
            raise OpError("Invalid range: input_min > input_max")
    elif x.size:
        others = tuple(d for d in range(x.ndim) if d != axis) if axis != -1 else None
        low, high = x.min(axis=others, keepdims=True), x.max(axis=others, keepdims=True)
    else:
        return x
    least = kind(-(1 << (bits - 1)) + bool(node.attr("narrow_range")) if signed else 0)
    greatest = kind((1 << (bits - 1)) - 1 if signed else (1 << bits) - 1)
    largest = np.finfo(x.dtype).max
    with np.errstate(all="ignore"):
        from_low = np.where(least * low > 0, least / low, largest)
        from_high = np.where(greatest * high > 0, greatest / high, largest)
        by_low = from_low < from_high
        scale = np.where(by_low, from_low, from_high).astype(x.dtype)
        inverse = np.where(by_low, low / least, high / greatest).astype(x.dtype)
    low, high = np.where(by_low, low, least * inverse), np.where(by_low, greatest * inverse, high)
    clipped = np.minimum(np.maximum(x, low), high) if has_range else x
    scaled = clipped * scale
    rounded = np.floor(scaled + kind(0.5)) if up else np.rint(scaled)
    return (rounded * inverse).astype(x.dtype)


def _on_host_in_float32(kernel: Kernel, node: Node, xp: ModuleType) -> Kernel:
    return on_host(in_float32(kernel, node, xp), node, xp)


class QuantizeAndDequantizeV2(SameShape):
    """Floats rounded to what integers represent; the gradient passes through."""

    signature = "input: T, input_min: T, input_max: T -> output: T"
    attrs = _SIMULATED
    compilation = CompilerSupport(traceable=False, compiled=True)
    adapter = _on_host_in_float32

    @staticmethod
    def kernel(
        xp: ModuleType, node: Node, round_mode: bytes, /, x: Any, low: Any, high: Any
    ) -> Any:
        bits, up = node.attr("num_bits"), round_mode == b"HALF_UP"
        return simulated(node, x, low, high, bits, up=up)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        return dy, None, None


class QuantizeAndDequantizeV4(QuantizeAndDequantizeV2):
    """Floats rounded to what integers represent; the gradient passes inside the range."""

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        grad = g.QuantizeAndDequantizeV4Grad(dy, *node.inputs, axis=node.attr("axis")).node
        return grad.output(0), grad.output(1), grad.output(2)


class QuantizeAndDequantizeV4Grad(Op):
    """Gradient of QuantizeAndDequantizeV4: zero for numbers outside the range."""

    signature = (
        "gradients: T, input: T, input_min: T, input_max: T "
        "-> input_backprop: T, input_min_backprop: T, input_max_backprop: T"
    )
    attrs = "T: {bfloat16, float16, float32, float64}, axis: int = -1"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, node: Node, /, dy: Any, x: Any, low: Any, high: Any) -> Any:
        if dy.shape != x.shape:
            raise OpError(f"gradients {list(dy.shape)} and input {list(x.shape)} differ")
        least, greatest = channel_ranges(node, x, xp.asarray(low), xp.asarray(high))
        inside = ((x >= least) & (x <= greatest)).astype(x.dtype)
        return dy * inside, xp.zeros_like(low), xp.zeros_like(high)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        bound = SCALAR_SHAPE if context.attr("axis") == -1 else vector_shape(None)
        return [context.inputs[0].merge(context.inputs[1]), bound, bound]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        if grads[0] is None:
            return [None] * 4
        again = g.QuantizeAndDequantizeV4Grad(grads[0], *node.inputs[1:], axis=node.attr("axis"))
        return again, None, None, None


class QuantizeAndDequantizeV3(SameShape):
    """Floats rounded to what integers of a computed number of bits represent."""

    signature = "input: T, input_min: T, input_max: T, num_bits: host int32 -> output: T"
    attrs = (
        "signed_input: bool = true, range_given: bool = true, "
        "T: {bfloat16, float16, float32, float64}, narrow_range: bool = false, axis: int = -1"
    )
    compilation = CompilerSupport(traceable=False, compiled=True)
    adapter = _on_host_in_float32

    @staticmethod
    def kernel(xp: ModuleType, node: Node, /, x: Any, low: Any, high: Any, bits: Any) -> Any:
        return simulated(node, x, low, high, int(bits), up=False)

    gradient = staticmethod(lambda g, node, dy: (dy, None, None, None))
