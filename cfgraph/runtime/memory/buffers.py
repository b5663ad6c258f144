"""The buffers behind values: who owns the bytes, and copies of them.

Scalars, handles and texts have none here: they are small, or the host's.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np

from cfgraph.ops.outline import Outline

Buffer: TypeAlias = np.ndarray | Outline


def buffer_of(value: Any) -> Buffer | None:
    """What owns the bytes of a value; views share them. None where there is nothing to count."""
    if isinstance(value, np.ndarray):
        if not value.ndim or value.dtype == object:
            return None
        while isinstance(value.base, np.ndarray):
            value = value.base
        return cast(Buffer, value)
    if isinstance(value, Outline) and value.shape:
        return value.base or value
    if is_on_card(value) and value.shape:
        return cast(Buffer, value if value.base is None else value.base)
    return None


def is_on_card(value: Any) -> bool:
    """True for an array in the memory of a card, whatever library it is of."""
    return hasattr(type(value), "__cuda_array_interface__")


def copy_of_value(value: Any) -> Any:
    """The same value in bytes of its own."""
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else value
    if isinstance(value, Outline):
        return Outline(value.dtype, value.shape)
    return value.copy() if is_on_card(value) else value
