"""The base class of stateful resources, and the error for a handle of the wrong kind."""

from __future__ import annotations

import numpy as np


class Resource:
    """Referent of a handle: a variable, stack, tensor array, or table."""

    __slots__ = ()


def explain_wrong_handle(error: AttributeError) -> str:
    """Explain the failure of a kernel whose handle refers to an unsuitable object.

    Empty for any other cause: the error is then a bug in cfgraph.
    """
    value, wanted = error.obj, error.name or ""
    if not any(hasattr(kind, wanted) for kind in Resource.__subclasses__()):
        return ""
    if isinstance(value, Resource):
        return f"the handle refers to {value!r}, which this op does not accept"
    if isinstance(value, np.ndarray) and value.dtype == object:
        return f"the handle {value.tolist()} refers to nothing in this run"
    return ""
