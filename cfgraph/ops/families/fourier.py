"""Discrete Fourier transforms over the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import COMPLEX, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank_at_least


def half_spectrum_gradient(
    g: GradientBuilder, node: Node, dz: Output, inverse: str, dims: int
) -> InputGradients:
    """Gradient of a real-to-complex transform: the inverse transform of zero-padded `dz`."""
    x, length = node.inputs
    sizes = g.shape(dz)
    full_sizes = _concat_sizes(
        g, _slice_sizes(g, sizes, None, -1), _slice_sizes(g, length, -1, None)
    )
    inverse_transform = getattr(g, inverse)(_place_in_corner(g, dz, full_sizes, 1))
    dx = g.Mul(g.Real(inverse_transform, Tout=x.dtype), _real_block_size(g, node, x))
    return _undo_crop(g, dx, x, dims), None


def inverse_half_spectrum_gradient(
    g: GradientBuilder, node: Node, dz: Output, forward: str, dims: int
) -> InputGradients:
    """Gradient of a complex-to-real transform; columns for two frequencies count twice."""
    x, length = node.inputs
    half = getattr(g, forward)(dz, length, Tcomplex=x.dtype)
    weights = g.RealDiv(_column_weights(g, length, dz), _real_block_size(g, node, dz))
    dx = g.Mul(half, g.Cast(weights, DstT=x.dtype))
    return _undo_crop(g, dx, x, dims), None


def _column_weights(g: GradientBuilder, length: Output, like: Output) -> Output:
    """Weights of spectrum columns: 1 for self-conjugate ones (first and middle), otherwise 2."""
    assert like.dtype is not None
    known = g.known_value(length)
    if known is not None:
        last = int(known[-1])
        column = range(last // 2 + 1)
        return g.const(
            [1 if position in (0, last - position) else 2 for position in column], like.dtype
        )
    size = g.Reshape(_slice_sizes(g, length, -1, None), int32_constant(g, []))
    position = g.Range(int32_constant(g, 0), g.AddV2(g.FloorDiv(size, 2), 1), int32_constant(g, 1))
    own = g.LogicalOr(g.Equal(position, 0), g.Equal(g.AddV2(position, position), size))
    return g.SelectV2(own, g.const(1, like.dtype), g.const(2, like.dtype))


def _real_block_size(g: GradientBuilder, node: Node, like: Output) -> Output:
    """Number of elements of the real signal, in the dtype of `like`."""
    length = node.inputs[1]
    known = g.known_value(length)
    assert like.dtype is not None
    if known is not None:
        return g.const(known.prod(), like.dtype)
    return g.Cast(g.Prod(length, int32_constant(g, 0)), DstT=like.dtype)


def _undo_crop(g: GradientBuilder, y: Output, x: Output, dims: int) -> Output:
    actual, expected = g.known_shape(y)[-dims:], g.known_shape(x)[-dims:]
    return y if actual.is_full and actual == expected else _place_in_corner(g, y, g.shape(x), dims)


def _place_in_corner(g: GradientBuilder, y: Output, sizes: Output, dims: int) -> Output:
    """Zero-pad `y` at the end of its last `dims` dimensions."""
    begin, steps = (int32_constant(g, [number] * (dims + 1)) for number in (0, 1))
    end = _concat_sizes(g, int32_constant(g, [0]), _slice_sizes(g, g.shape(y), -dims, None))
    return g.StridedSliceGrad(sizes, begin, end, steps, y, ellipsis_mask=1)


def _slice_sizes(g: GradientBuilder, sizes: Output, start: int | None, end: int | None) -> Output:
    known = g.known_value(sizes)
    if known is not None:
        return int32_constant(g, known[start:end])
    bounds = (int32_constant(g, [bound]) for bound in (start or 0, end or 0, 1))
    masks = {"begin_mask": int(start is None), "end_mask": int(end is None)}
    return g.StridedSlice(sizes, *bounds, **masks)


def _concat_sizes(g: GradientBuilder, *parts: Output) -> Output:
    known = [value for part in parts if (value := g.known_value(part)) is not None]
    if len(known) == len(parts):
        return int32_constant(g, [size for value in known for size in value.tolist()])
    return g.ConcatV2(parts, int32_constant(g, 0))


_COMPLEX_SIGNATURE = f"{one_of(COMPLEX, attr='Tcomplex')} = complex64"
_REAL_COMPLEX_ATTRS = (
    f"{one_of('float32', 'float64', attr='Treal')} = float32, {_COMPLEX_SIGNATURE}"
)


class FourierTransform(Op, abstract=True):
    """A transform over the last `dims` dimensions; `function` is its name in `numpy.fft`."""

    signature = "input: Tcomplex -> output: Tcomplex"
    attrs = _COMPLEX_SIGNATURE
    dims: ClassVar[int] = 1
    function: ClassVar[str] = "fftn"
    inverse: ClassVar[str]  # the inverse op, up to a factor: the number of elements

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function, axes = getattr(xp.fft, cls.function), tuple(range(-cls.dims, 0))

        def transform(value: Any) -> Any:
            check_transform_rank(value, cls.dims)
            return function(value, axes=axes) if value.size else value

        return transform

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [require_rank_at_least(context.inputs[0], cls.dims)]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        back, count = getattr(g, cls.inverse)(dz), _block_size(g, dz, cls.dims)
        return [g.RealDiv(back, count) if cls.function == "ifftn" else g.Mul(back, count)]


def _block_size(g: GradientBuilder, x: Output, dims: int) -> Output | int:
    """Number of elements that one transform covers."""
    known = g.known_shape(x)[-dims:].elements
    if known is not None:
        return known
    last = (int32_constant(g, [bound]) for bound in (-dims, 0, 1))
    sizes = g.StridedSlice(g.shape(x), *last, end_mask=1)
    return g.Cast(g.Prod(sizes, int32_constant(g, 0)), DstT=x.dtype)


def check_transform_rank(value: Any, dims: int) -> None:
    """Check that a tensor has at least the dimensions of the transform."""
    if value.ndim < dims:
        raise OpError(f"Input must have rank of at least {dims} but got: {list(value.shape)}")


class FFT(FourierTransform):
    """1-D discrete Fourier transform."""

    inverse = "IFFT"


class FFT2D(FourierTransform):
    """2-D discrete Fourier transform."""

    dims = 2
    inverse = "IFFT2D"


class FFT3D(FourierTransform):
    """3-D discrete Fourier transform."""

    dims = 3
    inverse = "IFFT3D"


class IFFT(FourierTransform):
    """Inverse 1-D discrete Fourier transform."""

    function = "ifftn"
    inverse = "FFT"


class IFFT2D(FourierTransform):
    """Inverse 2-D discrete Fourier transform."""

    dims, function = 2, "ifftn"
    inverse = "FFT2D"


class IFFT3D(FourierTransform):
    """Inverse 3-D discrete Fourier transform."""

    dims, function = 3, "ifftn"
    inverse = "FFT3D"


class RFFT(FourierTransform):
    """1-D Fourier transform of real signals: only the non-negative frequencies."""

    signature = "input: Treal, fft_length: const int32 -> output: Tcomplex"
    attrs = _REAL_COMPLEX_ATTRS
    function = "rfftn"
    inverse = "IFFT"
    is_real_to_complex: ClassVar[bool] = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function, axes = getattr(xp.fft, cls.function), tuple(range(-cls.dims, 0))
        is_real_to_complex = cls.is_real_to_complex
        dtype = node.attr("Tcomplex" if is_real_to_complex else "Treal").numpy

        def transform(value: Any, length: Any) -> Any:
            check_transform_rank(value, cls.dims)
            sizes = [int(size) for size in length.reshape(-1)]
            if length.shape != (cls.dims,) or min(sizes) < 0:
                raise OpError(f"fft_length must be {cls.dims} sizes, got {length}")
            needed = sizes if is_real_to_complex else [*sizes[:-1], _half_size(sizes[-1])]
            if value.size and any(
                h < n for h, n in zip(value.shape[-cls.dims :], needed, strict=True)
            ):
                message = f"Input of shape {list(value.shape)} is too small for fft_length {sizes}"
                raise OpError(message)
            last = _half_size(sizes[-1]) if is_real_to_complex else sizes[-1]
            if 0 in sizes or not value.size:
                return xp.zeros((*value.shape[: -cls.dims], *sizes[:-1], last), dtype)
            return function(value, s=sizes, axes=axes).astype(dtype)

        return transform

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = require_rank_at_least(context.inputs[0], cls.dims)
        length = context.value(1)
        if shape.dims is None:
            return [UNKNOWN_SHAPE]
        if length is None:
            return [shape[: -cls.dims] + Shape([None] * cls.dims)]
        sizes = [int(size) for size in length.reshape(-1)]
        last = _half_size(sizes[-1]) if cls.is_real_to_complex else sizes[-1]
        return [shape[: -cls.dims] + Shape((*sizes[:-1], last))]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        if cls.is_real_to_complex:
            return half_spectrum_gradient(g, node, dz, cls.inverse, cls.dims)
        return inverse_half_spectrum_gradient(g, node, dz, cls.inverse, cls.dims)


def _half_size(size: int) -> int:
    """The number of frequencies that a real signal has."""
    return size // 2 + 1 if size else 0


class RFFT2D(RFFT):
    """2-D Fourier transform of real signals: non-negative frequencies in the last dimension."""

    dims = 2
    inverse = "IFFT2D"


class RFFT3D(RFFT):
    """3-D Fourier transform of real signals: non-negative frequencies in the last dimension."""

    dims = 3
    inverse = "IFFT3D"


class IRFFT(RFFT):
    """Inverse of RFFT: real signals from their non-negative frequencies."""

    signature = "input: Tcomplex, fft_length: const int32 -> output: Treal"
    function, is_real_to_complex = "irfftn", False
    inverse = "RFFT"


class IRFFT2D(IRFFT):
    """Inverse of RFFT2D: real signals from their non-negative frequencies."""

    dims = 2
    inverse = "RFFT2D"


class IRFFT3D(IRFFT):
    """Inverse of RFFT3D: real signals from their non-negative frequencies."""

    dims = 3
    inverse = "RFFT3D"
