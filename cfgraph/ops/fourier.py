"""Discrete Fourier transforms over the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.adjoint import Adjoint, Partials, index
from cfgraph.ops.dims import want_rank_at_least
from cfgraph.ops.half_fourier_gradients import of_half, of_whole
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.type_sets import COMPLEX, one_of

_COMPLEX = f"{one_of(COMPLEX, attr='Tcomplex')} = complex64"
_BOTH = f"{one_of('float32', 'float64', attr='Treal')} = float32, {_COMPLEX}"


class Transform(Op, abstract=True):
    """A transform over the last `dims` dimensions; `function` is its name in `numpy.fft`."""

    signature = "input: Tcomplex -> output: Tcomplex"
    attrs = _COMPLEX
    dims: ClassVar[int] = 1
    function: ClassVar[str] = "fftn"
    inverse: ClassVar[str]  # but for a factor, the number of elements

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function, axes = getattr(xp.fft, cls.function), tuple(range(-cls.dims, 0))

        def transform(value: Any) -> Any:
            check_rank(value, cls.dims)
            return function(value, axes=axes) if value.size else value

        return transform

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [want_rank_at_least(context.inputs[0], cls.dims)]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        back, many = getattr(g, cls.inverse)(dz), _many(g, dz, cls.dims)
        return [g.RealDiv(back, many) if cls.function == "ifftn" else g.Mul(back, many)]


def _many(g: Adjoint, x: Output, dims: int) -> Output | int:
    """The number of elements of each block that is transformed."""
    known = g.known_shape(x)[-dims:].elements
    if known is not None:
        return known
    last = (index(g, [item]) for item in (-dims, 0, 1))
    sizes = g.StridedSlice(g.shape(x), *last, end_mask=1)
    return g.Cast(g.Prod(sizes, index(g, 0)), DstT=x.dtype)


def check_rank(value: Any, dims: int) -> None:
    """Raises OpError where there are fewer dimensions than the transform goes over."""
    if value.ndim < dims:
        message = f"Input must have rank of at least {dims} but got: {list(value.shape)}"
        raise OpError(message)


class FFT(Transform):
    """The Fourier transform of vectors."""

    inverse = "IFFT"


class FFT2D(Transform):
    """The Fourier transform of matrices."""

    dims = 2
    inverse = "IFFT2D"


class FFT3D(Transform):
    """The Fourier transform of blocks."""

    dims = 3
    inverse = "IFFT3D"


class IFFT(Transform):
    """The inverse Fourier transform of vectors."""

    function = "ifftn"
    inverse = "FFT"


class IFFT2D(Transform):
    """The inverse Fourier transform of matrices."""

    dims, function = 2, "ifftn"
    inverse = "FFT2D"


class IFFT3D(Transform):
    """The inverse Fourier transform of blocks."""

    dims, function = 3, "ifftn"
    inverse = "FFT3D"


class RFFT(Transform):
    """The half of the Fourier transform of real vectors that says all."""

    signature = "input: Treal, fft_length: int32 -> output: Tcomplex"
    attrs = _BOTH
    host_inputs = (1,)
    constant_inputs = (1,)
    function = "rfftn"
    inverse = "IFFT"
    halves: ClassVar[bool] = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function, axes = getattr(xp.fft, cls.function), tuple(range(-cls.dims, 0))
        halves, wanted = cls.halves, node.attr("Tcomplex" if cls.halves else "Treal").numpy

        def transform(value: Any, length: Any) -> Any:
            check_rank(value, cls.dims)
            sizes = [int(size) for size in length.reshape(-1)]
            if length.shape != (cls.dims,) or min(sizes) < 0:
                message = f"fft_length must be {cls.dims} sizes, got {length}"
                raise OpError(message)
            needed = sizes if halves else [*sizes[:-1], sizes[-1] // 2 + 1]
            if value.size and any(
                h < n for h, n in zip(value.shape[-cls.dims :], needed, strict=True)
            ):
                message = f"Input of shape {list(value.shape)} is too small for fft_length {sizes}"
                raise OpError(message)
            last = sizes[-1] // 2 + 1 if halves else sizes[-1]
            if 0 in sizes or not value.size:
                return xp.zeros((*value.shape[: -cls.dims], *sizes[:-1], last), wanted)
            return function(value, s=sizes, axes=axes).astype(wanted)

        return transform

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        have = want_rank_at_least(context.inputs[0], cls.dims)
        length = context.value(1)
        if have.dims is None:
            return [UNKNOWN_SHAPE]
        if length is None:
            return [have[: -cls.dims] + Shape([None] * cls.dims)]
        sizes = [int(size) for size in length.reshape(-1)]
        last = sizes[-1] // 2 + 1 if cls.halves else sizes[-1]
        return [have[: -cls.dims] + Shape((*sizes[:-1], last))]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return (of_half if cls.halves else of_whole)(g, node, dz, cls.inverse, cls.dims)


class RFFT2D(RFFT):
    """The half of the Fourier transform of real matrices that says all."""

    dims = 2
    inverse = "IFFT2D"


class RFFT3D(RFFT):
    """The half of the Fourier transform of real blocks that says all."""

    dims = 3
    inverse = "IFFT3D"


class IRFFT(RFFT):
    """Real vectors from one half of their Fourier transform."""

    signature = "input: Tcomplex, fft_length: int32 -> output: Treal"
    function, halves = "irfftn", False
    inverse = "RFFT"


class IRFFT2D(IRFFT):
    """Real matrices from one half of their Fourier transform."""

    dims = 2
    inverse = "RFFT2D"


class IRFFT3D(IRFFT):
    """Real blocks from one half of their Fourier transform."""

    dims = 3
    inverse = "RFFT3D"
