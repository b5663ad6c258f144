"""The base class of stateful resources, and the error for a handle of the wrong kind."""

from __future__ import annotations

import numpy as np


class Resource:
    """What a handle refers to: a variable, a stack, an array of tensors, a table."""

    __slots__ = ()


def explain_wrong_handle(error: AttributeError) -> str:
    """What to say where a handle refers to nothing that the kernel works on, or ``.

    It is empty where something else is amiss: then the error is a bug of ours.
    """
    value, wanted = error.obj, error.name or ""
    if not any(hasattr(kind, wanted) for kind in Resource.__subclasses__()):
        return ""
    if isinstance(value, Resource):
        return f"the handle refers to {value!r}, which is not what this op works on"
    if isinstance(value, np.ndarray) and value.dtype == object:
        return f"the handle {value.tolist()} refers to nothing in this run"
    return ""
