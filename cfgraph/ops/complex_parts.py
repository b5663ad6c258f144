"""Complex numbers and their parts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ops.array import same
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.type_sets import COMPLEX, one_of


class Part(Pointwise, abstract=True):
    """A real number from each complex one."""

    signature = "input: T -> output: Tout"
    attrs = f"{one_of(COMPLEX)} = complex64, {one_of('float32', 'float64', attr='Tout')} = float32"


class Real(Part):
    """The real part."""

    function = "real"


class Imag(Part):
    """The imaginary part."""

    function = "imag"


class Angle(Part):
    """The angle to the real axis."""

    function = "angle"


class ComplexAbs(Part):
    """The length."""

    signature = "x: T -> y: Tout"
    function = "abs"


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
