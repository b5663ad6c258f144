"""What handles refer to, and what to say of a kernel that got a handle of another kind."""

from __future__ import annotations

import numpy as np


class Referent:
    """What a handle refers to: a variable, a stack, an array of tensors, a table."""

    __slots__ = ()


def wrong_handle(error: AttributeError) -> str:
    """What to say where a handle refers to nothing that the kernel works on, or ``.

    It is empty where something else is amiss: then the error is a bug of ours.
    """
    value, wanted = error.obj, error.name or ""
    if not any(hasattr(kind, wanted) for kind in Referent.__subclasses__()):
        return ""
    if isinstance(value, Referent):
        return f"the handle refers to {value!r}, which is not what this op works on"
    if isinstance(value, np.ndarray) and value.dtype == object:
        return f"the handle {value.tolist()} refers to nothing in this run"
    return ""
