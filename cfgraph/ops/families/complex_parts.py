"""Construction of complex numbers, their parts, and conjugates."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    binary_gradients,
    conjugate,
)
from cfgraph.ops.opdef.op import COMPLEX, Elementwise, Kernel, one_of


class ComplexPart(Elementwise, abstract=True):
    """A real component of each complex number."""

    signature = "input: T -> output: Tout"
    attrs = f"{one_of(COMPLEX)} = complex64, {one_of('float32', 'float64', attr='Tout')} = float32"


class Real(ComplexPart):
    """Real part."""

    function = "real"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        return [g.Complex(dy, 0, Tout=node.attr("T"))]


class Imag(ComplexPart):
    """Imaginary part."""

    function = "imag"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        return [_times_imaginary_unit(g, node, dy)]


def _times_imaginary_unit(g: GradientBuilder, node: Node, dy: Output) -> Output:
    """Multiply a real gradient by the imaginary unit."""
    return g.Complex(g.const(0, node.attr("Tout")), dy, Tout=node.attr("T"))


class Angle(ComplexPart):
    """Phase angle in radians."""

    function = "angle"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        return [g.RealDiv(_times_imaginary_unit(g, node, dy), g.Conj(node.inputs[0]))]


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

    signature = "input: T -> output: T"
    attrs = f"{one_of(COMPLEX, 'variant')} = complex64"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_object:
            return identity
        conjugate: Kernel = xp.conj
        return conjugate

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        return [conjugate(g, dy)]


class Complex(Elementwise):
    """Complex number with the real and imaginary parts of the inputs."""

    signature = "real: T, imag: T -> out: Tout"
    attrs = f"{one_of('float32', 'float64')} = float32, {one_of(COMPLEX, attr='Tout')} = complex64"

    # a product with 1j would turn infinities into NaN, so the parts are interleaved in memory
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("Tout").numpy

        def join(real: Any, imag: Any) -> Any:
            parts = xp.stack(xp.broadcast_arrays(real, imag), axis=-1)
            return parts.view(dtype)[..., 0]

        return join

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        part = node.attr("T")
        return binary_gradients(
            g, node, lambda: g.Real(dz, Tout=part), lambda: g.Imag(dz, Tout=part)
        )
