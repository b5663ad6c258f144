"""Whether two attributes are the same: of one type, floats bit by bit.

Python's own equality takes 1 for true and 1.0, 0.0 for -0.0, and no NaN for itself.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from cfgraph.ir.attrs import Func, Tensor


def same(one: Any, other: Any) -> bool:
    """True for two values of one type that are alike, as are all that they hold."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return _bits(one) == _bits(other)
    if type(one) is tuple:
        return len(one) == len(other) and all(map(same, one, other))
    if is_dataclass(one):
        names = [item.name for item in fields(one) if item.compare]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


def look(value: Any) -> Hashable:
    """What one can look up; equal for attributes that are the same, of a constant its bytes."""
    if isinstance(value, Tensor):
        array = value.array
        content = array.tobytes() if array.dtype != object else repr(array.tolist())
        return (value.dtype, array.shape, content)
    if isinstance(value, float):
        return (float, _bits(value))
    if isinstance(value, Func):
        return (Func, value.name, frozenset((key, look(item)) for key, item in value.attrs.items()))
    return (type(value), tuple(map(look, value)) if type(value) is tuple else value)


def _bits(value: float) -> bytes:
    return struct.pack("<d", value)
