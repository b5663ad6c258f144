"""Functions of matrices as of numbers: exponential, logarithm, square root; cross products."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, index
from cfgraph.ops.determinant import SquareToSquare
from cfgraph.ops.host_only import on_host
from cfgraph.ops.matrix_gradients import turned
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, REAL, one_of


class MatrixFunction(SquareToSquare, abstract=True):
    """A function of each matrix; `named` says which one of SciPy's."""

    named: ClassVar[str]
    traceable = False

    @classmethod
    def function(cls, node: Node, xp: ModuleType) -> Kernel:
        from scipy import linalg

        each = getattr(linalg, cls.named)

        def of_all(x: Any) -> Any:
            result = np.empty(x.shape, x.dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SciPy's doubts about its accuracy
                for place in np.ndindex(x.shape[:-2]):
                    value = each(x[place])
                    real = np.iscomplexobj(x) or not np.iscomplexobj(value)
                    result[place] = value if real else np.nan
            return result

        return on_host(xp, of_all)

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return [_by_blocks(g, cls.name, node.inputs[0], dz)]


class MatrixExponential(MatrixFunction):
    """The exponential of each matrix."""

    named = "expm"


class MatrixLogarithm(MatrixFunction):
    """The principal logarithm of each matrix."""

    attrs = one_of(COMPLEX)
    named = "logm"


class MatrixSquareRoot(MatrixFunction):
    """The principal square root of each matrix; NaN where a real one has no real root."""

    named = "sqrtm"


def _by_blocks(g: Adjoint, op: str, x: Output, dz: Output) -> Output:
    """The derivative of the adjoint matrix in the direction dz.

    It is the upper right block of the same function of [[x^H, dz], [0, x^H]] (Mathias 1996).
    """
    flipped = turned(g, x)
    upper = g.ConcatV2(flipped, dz, index(g, -1))
    lower = g.ConcatV2(g.zeros_like(flipped), flipped, index(g, -1))
    whole = getattr(g, op)(g.ConcatV2(upper, lower, index(g, -2)))
    right = g.Split(index(g, -1), whole, num_split=2).node.output(1)
    return g.Split(index(g, -2), right, num_split=2)


class Cross(SameShape):
    """The cross product of vectors of three."""

    signature = "a: T, b: T -> product: T"
    attrs = one_of(REAL)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def cross(a: Any, b: Any) -> Any:
            if a.shape != b.shape or not a.ndim or a.shape[-1] != 3:
                message = (
                    "Both inputs must be of one shape, with inner dimension 3: "
                    f"{list(a.shape)} vs. {list(b.shape)}"
                )
                raise OpError(message)
            x, y = (a[..., 1], a[..., 2], a[..., 0]), (b[..., 2], b[..., 0], b[..., 1])
            u, v = (a[..., 2], a[..., 0], a[..., 1]), (b[..., 1], b[..., 2], b[..., 0])
            return xp.stack([p * q - r * s for p, q, r, s in zip(x, y, u, v, strict=True)], axis=-1)

        return widened(cross, node.attr("T"))

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        a, b = node.inputs
        return lambda: g.Cross(b, dz), lambda: g.Cross(dz, a)
