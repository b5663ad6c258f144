"""What the kernels take of a value that is fed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.errors import UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.variables import Variable
from cfgraph.runtime.feeds import fed_type, fitted

_VALUES: Final = (bool, int, float, complex, str, bytes, list, tuple, type(None))


def as_fed(graph: Graph, item: Output, value: Any) -> Any:
    """What the kernels take of a fed value: an array of the tensor's type, a scalar of rank 0.

    An array that is fed for the handle of a resource is the value of a variable of its own.
    """
    wanted, shape = fed_type(graph, item)
    kind = item.dtype.kind if item.dtype else ""
    if kind == "variant" or (kind == "resource" and not _is_value(value)):
        return value
    array = _array(item, value, wanted, shape)
    if kind == "resource":
        dtype = wanted or DType.from_numpy(array.dtype)
        held = Shape(array.shape)
        return Variable(dtype, held, item.node.name, resource=True, value=array)
    return array


def _is_value(value: Any) -> bool:
    """True for what makes an array; resources are objects that this and other runs made."""
    return isinstance(value, _VALUES) or hasattr(value, "__array__")


def _array(item: Output, value: Any, wanted: DType | None, shape: Shape) -> Any:
    try:
        array = fitted(value, wanted, shape)
    except UsageError as error:
        error.message = f"feed {item.name}: {error.message}"
        raise
    if array.ndim == 0:
        return array[()] if array.dtype != object else array.copy()
    shared = isinstance(value, np.ndarray) and np.may_share_memory(array, value)
    return array.copy() if shared else array
