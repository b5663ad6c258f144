"""Complex numbers and their parts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj
from cfgraph.ops.array import same
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.pointwise_gradients import of_pair
from cfgraph.ops.type_sets import COMPLEX, one_of


class Part(Pointwise, abstract=True):
    """A real number from each complex one."""

    signature = "input: T -> output: Tout"
    attrs = f"{one_of(COMPLEX)} = complex64, {one_of('float32', 'float64', attr='Tout')} = float32"


class Real(Part):
    """The real part."""

    function = "real"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [g.Complex(dy, 0, Tout=node.attr("T"))]


class Imag(Part):
    """The imaginary part."""

    function = "imag"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [_upright(g, node, dy)]


def _upright(g: Adjoint, node: Node, dy: Output) -> Output:
    """A real gradient times the imaginary unit."""
    return g.Complex(g.const(0, node.attr("Tout")), dy, Tout=node.attr("T"))


class Angle(Part):
    """The angle to the real axis."""

    function = "angle"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [g.RealDiv(_upright(g, node, dy), g.Conj(node.inputs[0]))]


class ComplexAbs(Part):
    """The length."""

    signature = "x: T -> y: Tout"
    function = "abs"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        along = g.Mul(g.Complex(dy, 0, Tout=node.attr("T")), node.inputs[0])
        return [g.DivNoNan(along, g.Complex(node.output(), 0, Tout=node.attr("T")))]


class Conj(Pointwise):
    """The number with its imaginary part negated; variants as they are."""

    signature = "input: T -> output: T"
    attrs = f"{one_of(COMPLEX, 'variant')} = complex64"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_object:
            return same
        conjugate: Kernel = xp.conj
        return conjugate

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [conj(g, dy)]


class Complex(Pointwise):
    """A complex number from its two parts."""

    signature = "real: T, imag: T -> out: Tout"
    attrs = f"{one_of('float32', 'float64')} = float32, {one_of(COMPLEX, attr='Tout')} = complex64"

    # a product with 1j would make NaN of infinities, so the parts are laid side by side
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        wanted = node.attr("Tout").numpy

        def join(real: Any, imag: Any) -> Any:
            parts = xp.stack(xp.broadcast_arrays(real, imag), axis=-1)
            return parts.view(wanted)[..., 0]

        return join

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        part = node.attr("T")
        return of_pair(g, node, lambda: g.Real(dz, Tout=part), lambda: g.Imag(dz, Tout=part))
