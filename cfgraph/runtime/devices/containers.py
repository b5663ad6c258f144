"""Values that hold others, on their way between devices: lists, optionals, arrays of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cfgraph.ops.elements import each
from cfgraph.ops.optional import Optional
from cfgraph.ops.tensor_list import TensorList


def carried(value: Any, move: Callable[[Any], Any]) -> Any:
    """A value moved, with all that is in it."""
    if isinstance(value, TensorList):
        items = [None if item is None else carried(item, move) for item in value.all()]
        return value.replaced(items)
    if isinstance(value, Optional):
        held = value.values
        return value if held is None else Optional(tuple(carried(item, move) for item in held))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return each(lambda item: carried(item, move), value) if value.size else value
    return value if isinstance(value, bytes) else move(value)


def holds_others(value: Any) -> bool:
    """True for a value that holds others."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.hasobject)
    return isinstance(value, TensorList | Optional)
