"""Running sums, products and log-sum-exps along one dimension."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ops.dims import runtime_axis
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import ALL_NUMBERS, FLOATS, INDEX, one_of

_FLAGS = f"exclusive: bool = false, reverse: bool = false, Tidx: {INDEX} = int32"


class Scan(SameShape, abstract=True):
    """At each place, the combination of all values up to there; `exclusive` leaves its own out.

    `kernel(xp, x, axis)` combines, `neutral` is what comes out of no value at all.
    """

    signature = "x: T, axis: Tidx -> out: T"
    attrs = f"{_FLAGS}, {one_of(ALL_NUMBERS)}"
    host_inputs = (1,)
    constant_inputs = (1,)
    neutral: float

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        exclusive, reverse = node.attr("exclusive"), node.attr("reverse")
        kernel: Any = cls.kernel
        neutral = cls.neutral

        def scan(x: Any, axis: Any) -> Any:
            if axis.ndim:
                message = f"ScanOp: axis must be a scalar, not {list(axis.shape)}"
                raise OpError(message)
            place = runtime_axis(axis, x.ndim, "ScanOp: Expected scan axis")
            if x.size == 0:
                return x
            if reverse:
                x = xp.flip(x, place)
            if exclusive:
                first = xp.full_like(x[_upto(place, 1)], neutral)
                x = xp.concatenate((first, x[_upto(place, -1)]), place)
            result = kernel(xp, x, place)
            return xp.flip(result, place) if reverse else result

        return widened(scan, node.attr("T"))


def _upto(axis: int, end: int) -> tuple[slice, ...]:
    return (*(slice(None) for _ in range(axis)), slice(end))


class Cumsum(Scan):
    """Running sums."""

    neutral = 0

    @staticmethod
    def kernel(xp: ModuleType, x: Any, axis: int) -> Any:
        return xp.cumsum(x, axis=axis, dtype=x.dtype)


class Cumprod(Scan):
    """Running products."""

    neutral = 1

    @staticmethod
    def kernel(xp: ModuleType, x: Any, axis: int) -> Any:
        return xp.cumprod(x, axis=axis, dtype=x.dtype)


class CumulativeLogsumexp(Scan):
    """Running logarithms of sums of exponentials."""

    attrs = f"{_FLAGS}, {one_of(FLOATS)}"
    traceable = False
    neutral = -float("inf")

    @staticmethod
    def kernel(xp: ModuleType, x: Any, axis: int) -> Any:
        return xp.logaddexp.accumulate(x, axis=axis)
