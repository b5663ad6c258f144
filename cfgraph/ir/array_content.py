"""Content of arrays: equality and keys that do not expand an array of one repeated element.

A file of a hundred bytes may hold a constant of 2**31 elements, all of them equal; NumPy stores
such an array as one element with strides of zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from hashlib import blake2b
from typing import Any, Final

_CHUNK_ELEMENTS: Final = 1 << 20


def repeated_element(array: Any) -> Any | None:
    """The element of an array that stores a single one as often as its shape says, else None."""
    repeats = array.size > 1 and not any(
        stride for size, stride in zip(array.shape, array.strides, strict=True) if size > 1
    )
    return array[(0,) * array.ndim] if repeats else None


def same_content(a: Any, b: Any) -> bool:
    """True if two arrays have the same shape and the same elements, bit by bit."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if repeated_element(a) is not None and repeated_element(b) is not None:
        return bool(_first_content(a) == _first_content(b))
    return all(x == y for x, y in zip(_chunks(a), _chunks(b), strict=True))


def content_key(array: Any) -> Hashable:
    """A hashable value that is equal for arrays of one type and shape with the same elements."""
    first: Any = next(_chunks(array)) if array.size <= 1 else _first_content(array)
    digest, same = blake2b(), True
    if array.size > 1 and repeated_element(array) is None:
        for chunk in _chunks(array):
            same = same and chunk == first * (len(chunk) // len(first))
            digest.update(chunk if isinstance(chunk, bytes) else repr(chunk).encode())
    key: Hashable = first if same else digest.digest()
    return key


def _first_content(array: Any) -> Any:
    return next(_chunks(array.reshape(-1)[:1]))


def _chunks(array: Any) -> Iterator[Any]:
    """The bytes of an array, or tuples of its objects, in pieces; at least one."""
    flat = array.reshape(-1)  # a view, also of repeats
    for start in range(0, flat.size or 1, _CHUNK_ELEMENTS):
        chunk = flat[start : start + _CHUNK_ELEMENTS]
        yield tuple(chunk.tolist()) if array.dtype == object else chunk.tobytes()
