"""Rows of a tensor replaced or changed, as a new value."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ops.kernels.array_namespace import accumulated_at, updated_at
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import OpError, SameShape


class InplaceUpdate(SameShape):
    """Tensor with rows replaced; an index counts modulo the number of rows."""

    signature = "x: T, i: int32, v: T -> y: T"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def kernel(cls, xp: ModuleType, x: Any, i: Any, v: Any) -> Any:
        if i.ndim != 1 or not x.ndim or v.ndim != x.ndim or x.shape[1:] != v.shape[1:]:
            raise OpError(
                f"x {list(x.shape)}, i {list(i.shape)}, and v {list(v.shape)} must fit each other"
            )
        if len(i) != len(v):
            raise OpError(f"i and v must have one length: {len(i)} and {len(v)}")
        return cls.changed(xp, x, i % max(len(x), 1), v)

    @staticmethod
    def changed(xp: ModuleType, x: Any, rows: Any, v: Any) -> Any:
        """The tensor with rows changed."""
        return updated_at(x, rows, v)


class InplaceAdd(InplaceUpdate):
    """Tensor with values added to rows; an index counts modulo the number of rows."""

    changed = staticmethod(lambda xp, x, rows, v: accumulated_at(xp, x, rows, v, "add"))


class InplaceSub(InplaceUpdate):
    """Tensor with values subtracted from rows; an index counts modulo the number of rows."""

    changed = staticmethod(lambda xp, x, rows, v: accumulated_at(xp, x, rows, v, "subtract"))
