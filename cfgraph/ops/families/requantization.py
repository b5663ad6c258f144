"""Changes of the range or the shape of quantized integers, and the range that they need."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.families.concat import concat_shape
from cfgraph.ops.families.quantized_arithmetic import QUANTIZED_TYPES, QuantizedOp, with_range
from cfgraph.ops.families.reshape import Reshape, reshape_array
from cfgraph.ops.kernels.quantized_numbers import QuantizedInterval, interval
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, static_int

_F32: Final = np.float32
_FRACTION_BITS: Final = 16


def _used_range(x: Any, source: QuantizedInterval) -> QuantizedInterval:
    """The range of the floats that a tensor contains, extended to zero from below."""
    low = x.min(initial=source.type.greatest)
    high = x.max(initial=source.type.least)
    floats = source.floats(np.array([low, high]))
    return interval(np.uint8, min(_F32(0), floats[0]), floats[1])


def narrowed(x: Any, source: QuantizedInterval, target: QuantizedInterval) -> Any:
    """Integers of 32 bits as integers of 8 bits, in fixed-point arithmetic that wraps."""
    source_width, width = source.high - source.low, target.high - target.low
    one = 1 << _FRACTION_BITS
    if width == 0:
        scale = offset = start = np.zeros((), np.int64)
    else:
        per_float = _F32(255.0 / np.float64(width))
        middle = _F32((source.low + source.high) / 2.0)
        scale = _truncated(255.0 * one * np.float64(source_width) / width)
        offset = _truncated(middle * per_float * _F32(one))
        lowest = one * (np.float64(target.low) * 255.0) / width
        start = _truncated(lowest + np.copysign(0.5, lowest))
    levels = (x.astype(np.int64) * scale) >> 32
    rounded = (levels + (offset - start + one // 2)) >> _FRACTION_BITS
    return np.clip(rounded, 0, 255).astype(np.uint8)


def _truncated(x: Any) -> Any:
    return np.asarray(x).astype(np.int64)


class _Narrowing(QuantizedOp, abstract=True):
    """Integers of 32 bits as integers of 8 bits."""

    attrs = f"Tinput: {QUANTIZED_TYPES}, out_type: {QUANTIZED_TYPES}"
    kernel_types: ClassVar = {"Tinput": ["qint32"], "out_type": ["quint8"]}


class QuantizeDownAndShrinkRange(_Narrowing):
    """Integers of 8 bits whose range is that of the numbers in the tensor."""

    signature = (
        "input: Tinput, input_min: float32, input_max: float32 "
        "-> output: out_type, output_min: float32, output_max: float32"
    )

    @staticmethod
    def kernel(xp: ModuleType, x: Any, low: Any, high: Any) -> Any:
        source = interval(x.dtype, low, high)
        target = _used_range(x, source)
        return with_range(narrowed(x, source, target), target)


class Requantize(_Narrowing):
    """Integers of 8 bits of a requested range."""

    signature = (
        "input: Tinput, input_min: float32, input_max: float32, "
        "requested_output_min: float32, requested_output_max: float32 "
        "-> output: out_type, output_min: float32, output_max: float32"
    )

    @staticmethod
    def kernel(xp: ModuleType, x: Any, low: Any, high: Any, least: Any, greatest: Any) -> Any:
        target = interval(np.uint8, least, greatest)
        if not (target.low <= 0 and target.high >= target.low):
            raise OpError(
                "the requested range must not begin above 0 or above its end, "
                f"got [{float(target.low):g}, {float(target.high):g}]"
            )
        return with_range(narrowed(x, interval(x.dtype, low, high), target), target)


class RequantizationRange(QuantizedOp):
    """The range of the numbers that a quantized tensor contains."""

    signature = (
        "input: Tinput, input_min: float32, input_max: float32 "
        "-> output_min: float32, output_max: float32"
    )
    attrs = f"Tinput: {QUANTIZED_TYPES}"
    kernel_types: ClassVar = {"Tinput": ["qint32"]}

    @staticmethod
    def kernel(xp: ModuleType, x: Any, low: Any, high: Any) -> Any:
        result = _used_range(x, interval(x.dtype, low, high))
        return result.low, result.high

    shape = staticmethod(lambda context: [SCALAR_SHAPE, SCALAR_SHAPE])


class QuantizedReshape(QuantizedOp):
    """A quantized tensor with the same elements and a new shape."""

    signature = (
        "tensor: T, shape: host Tshape, input_min: float32, input_max: float32 "
        "-> output: T, output_min: float32, output_max: float32"
    )
    attrs = "Tshape: {int32, int64} = int32"
    kernel_types: ClassVar = {"T": ["quint8", "qint32"]}

    @staticmethod
    def kernel(xp: ModuleType, x: Any, shape: Any, low: Any, high: Any) -> Any:
        return with_range(reshape_array(x, shape), interval(x.dtype, low, high))

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        return Reshape.shape(context)[0]


class QuantizedConcat(QuantizedOp):
    """Concatenation of quantized tensors, in a range that includes theirs and 0 from below."""

    signature = (
        "concat_dim: host int32, values: N*T, input_mins: N*float32, input_maxes: N*float32 "
        "-> output: T, output_min: float32, output_max: float32"
    )
    attrs = "N: int >= 2"
    kernel_types: ClassVar = {"T": ["quint8", "qint32"]}

    @staticmethod
    def kernel(xp: ModuleType, N: int, /, axis: Any, *inputs: Any) -> Any:
        parts = [np.atleast_1d(part) for part in inputs[:N]]
        bounds = zip(inputs[N : 2 * N], inputs[2 * N :], strict=True)
        sources = [interval(parts[0].dtype, low, high) for low, high in bounds]
        position = int(axis)
        if not 0 <= position < parts[0].ndim:
            raise OpError(f"the dimension {position} is not in [0, {parts[0].ndim})")
        low = min(_F32(0), *(s.low for s in sources))
        high = max(s.high for s in sources)
        if sources[0].type.least < 0:
            low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
        target = interval(parts[0].dtype, low, high)
        fitted = [
            part
            if (source.low, source.high) == (low, high)
            else target.tensor_quantized(source.tensor_floats(part))
            for part, source in zip(parts, sources, strict=True)
        ]
        return with_range(np.concatenate(fitted, position), target)

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        count = context.attr("N")
        return concat_shape(context.inputs[1 : 1 + count], static_int(context, 0))
