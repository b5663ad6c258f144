"""Conversion of element types: by value, by bits, and by the parts of complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families.constants import identity
from cfgraph.ops.kernels.array_namespace import is_gpu_namespace
from cfgraph.ops.opdef.batching import elementwise
from cfgraph.ops.opdef.facts import AlgebraicFacts, CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    binary_gradients,
    conjugate,
)
from cfgraph.ops.opdef.op import (
    ALL_NUMBERS,
    COMPLEX,
    Elementwise,
    Kernel,
    Op,
    OpError,
    SameShape,
    one_of,
)
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank_at_least


class Cast(SameShape):
    """Elements converted to DstT: floats truncate toward zero, complex numbers to real parts."""

    signature = "x: SrcT -> y: DstT"
    attrs = "Truncate: bool = false"
    batching = staticmethod(elementwise)

    @classmethod
    def can_fail(cls, node: Node) -> bool:
        return False

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        return 0 if context.attr("SrcT") is context.attr("DstT") else None

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        source, target = node.attr("SrcT"), node.attr("DstT")
        if source is target:
            return identity
        if source.is_object or target.is_object:
            raise OpError(f"Cast {source} to {target} is not supported")
        dtype = target.numpy
        inexact = source.is_floating or source.is_complex
        if is_gpu_namespace(xp) and inexact and target.is_integer and dtype.isbuiltin:
            return lambda x: _float_to_integer(xp, x.real, dtype)
        if source.is_complex and not target.is_complex:
            return lambda x: x.real.astype(dtype)
        builtin = source.numpy.isbuiltin and target.numpy.isbuiltin
        if xp is np and builtin and target.is_floating:
            return _to_float(target.numpy.type)
        return lambda x: x.astype(dtype)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        source = node.attr("SrcT")
        return [g.Cast(dy, DstT=source) if source.is_differentiable else None]


def _float_to_integer(xp: ModuleType, x: Any, dtype: np.dtype[Any]) -> Any:
    """Convert GPU floats to integers by truncation, with the out-of-range results of x86.

    CUDA saturates; x86 yields the minimum of int32 or int64, of which narrow types keep the low
    bits.
    """
    wide = np.dtype(np.int64 if dtype.itemsize > 4 else np.int32)
    least = -(2.0 ** (8 * wide.itemsize - 1))
    x = x.astype(np.float64)

    def signed(x: Any) -> Any:
        inside = (x > least - (wide.itemsize < 8)) & (x < -least) | (x == least)
        return xp.where(inside, x, least).astype(wide)

    if dtype.kind == "i" or dtype.itemsize < 4:
        return signed(x).astype(dtype, copy=False)
    half = dtype.type(1 << 8 * wide.itemsize - 1)
    over = signed(x + least).astype(dtype) ^ half
    return xp.where(x >= -least, over, signed(x).astype(dtype))


def _to_float(kind: Any) -> Kernel:
    """Convert a scalar by calling its type, which takes half the time of `astype`."""
    return lambda x: x.astype(kind) if x.ndim else kind(x)


class Bitcast(Op):
    """The same bits as another type; differing widths add or drop the last dimension."""

    signature = "input: T -> output: type"
    attrs = f"{one_of(ALL_NUMBERS)}, {one_of(ALL_NUMBERS, attr='type')}"
    algebra = AlgebraicFacts(bitwise=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        source, target = node.attr("T").numpy, node.attr("type").numpy
        if source.itemsize == target.itemsize:
            return lambda x: x.view(target)
        if source.itemsize > target.itemsize:
            return lambda x: x.copy().reshape((*x.shape, 1)).view(target)
        parts = target.itemsize // source.itemsize

        def joined(x: Any) -> Any:
            if x.ndim == 0 or x.shape[-1] != parts:
                raise OpError(
                    f"Cannot bitcast from {node.attr('T')} to {node.attr('type')}: "
                    f"the last dimension of {list(x.shape)} must be {parts}"
                )
            return x.copy().view(target).reshape(x.shape[:-1])

        return joined

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = context.inputs[0]
        source, target = context.attr("T").numpy, context.attr("type").numpy
        if source.itemsize == target.itemsize or shape.dims is None:
            return [shape]
        if source.itemsize > target.itemsize:
            return [shape + vector_shape(source.itemsize // target.itemsize)]
        require_rank_at_least(shape, 1)
        shape[-1:].merge(vector_shape(target.itemsize // source.itemsize))
        return [shape[:-1]]


class ComplexPart(Elementwise, abstract=True):
    """A real component of each complex number."""

    signature = "input: T -> output: Tout"
    attrs = f"{one_of(COMPLEX)} = complex64, {one_of('float32', 'float64', attr='Tout')} = float32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, part = node.attr("T"), node.attr("Tout")
        if dtype.real is not part:
            raise OpError(f"a part of {dtype} has type {dtype.real}, not {part}")
        return super().bind(node, xp)


class Real(ComplexPart):
    """Real part."""

    function = "real"
    gradient = staticmethod(lambda g, node, dy: [g.Complex(dy, 0, Tout=node.attr("T"))])


class Imag(ComplexPart):
    """Imaginary part."""

    function = "imag"
    gradient = staticmethod(lambda g, node, dy: [_times_imaginary_unit(g, node, dy)])


def _times_imaginary_unit(g: GradientBuilder, node: Node, dy: Output) -> Output:
    """Multiply a real gradient by the imaginary unit."""
    return g.Complex(g.const(0, node.attr("Tout")), dy, Tout=node.attr("T"))


class Angle(ComplexPart):
    """Phase angle in radians."""

    function = "angle"
    gradient = staticmethod(
        lambda g, node, dy: [g.RealDiv(_times_imaginary_unit(g, node, dy), g.Conj(node.inputs[0]))]
    )


class ComplexAbs(ComplexPart):
    """Modulus sqrt(re^2 + im^2)."""

    signature = "x: T -> y: Tout"
    function = "abs"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        along = g.Mul(g.Complex(dy, 0, Tout=node.attr("T")), node.inputs[0])
        return [g.DivNoNan(along, g.Complex(node.output(), 0, Tout=node.attr("T")))]


class Conj(Elementwise):
    """Complex conjugate; variants are forwarded unchanged."""

    algebra = AlgebraicFacts(involutive=True)
    signature = "input: T -> output: T"
    attrs = f"{one_of(COMPLEX, 'variant')} = complex64"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_object:
            return identity
        conjugate: Kernel = xp.conj
        return conjugate

    gradient = staticmethod(lambda g, node, dy: [conjugate(g, dy)])


class Complex(Elementwise):
    """Complex number with the real and imaginary parts of the inputs."""

    signature = "real: T, imag: T -> out: Tout"
    attrs = f"{one_of('float32', 'float64')} = float32, {one_of(COMPLEX, attr='Tout')} = complex64"

    # a product with 1j would turn infinities into NaN, so the parts are interleaved in memory
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, Tout: DType, /, real: Any, imag: Any) -> Any:
        parts = xp.stack(xp.broadcast_arrays(real, imag), axis=-1)
        return parts.view(Tout.numpy)[..., 0]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        part = node.attr("T")
        return binary_gradients(
            g, node, lambda: g.Real(dz, Tout=part), lambda: g.Imag(dz, Tout=part)
        )
