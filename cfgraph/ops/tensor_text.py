"""Tensors written for people: flat and cut short, or nested with the middle left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_ESCAPES = {
    **{byte: f"\\{byte:03o}".encode() for byte in (*range(32), 127)},
    **{ord(a): b"\\" + a.encode() for a in "\\'\""},
    ord("\n"): rb"\n",
    ord("\r"): rb"\r",
    ord("\t"): rb"\t",
}


def escaped(text: bytes) -> bytes:
    """A string with what cannot be shown escaped as in C; bytes beyond ASCII stay."""
    return b"".join(_ESCAPES.get(byte) or bytes([byte]) for byte in text)


def shortest(value: float, digits: int, more: int, kind: Any) -> str:
    """A number with so many digits, or with more where it would not be read back the same."""
    text = f"%.{digits}g" % value
    return text if math.isnan(value) or kind(float(text)) == value else f"%.{more}g" % value


def element(value: Any, *, quoted: bool) -> bytes:
    """One element."""
    if isinstance(value, bytes):
        return b'"' + escaped(value) + b'"' if quoted else escaped(value)
    dtype = value.dtype
    if dtype == np.bool_:
        return b"1" if value else b"0"
    if np.issubdtype(dtype, np.integer):
        return str(int(value)).encode()
    if dtype == np.float64:
        return shortest(float(value), 15, 17, np.float64).encode()
    return shortest(float(value), 6, 9, np.float32).encode()


def shows(array: Any) -> bool:
    """True for the types whose elements can be shown."""
    if array.dtype == object:
        return all(isinstance(value, bytes) for value in array.ravel())
    return bool(array.dtype.kind != "c")


def flat(value: Any, limit: int) -> bytes:
    """The first elements of a tensor, rows in brackets, without a bracket around all."""
    array = np.asarray(value)
    most = array.size if limit < 0 else min(limit, array.size)
    rest = b"..." if array.size > most else b""
    if not shows(array):
        return b" ".join([b"?"] * most) + rest
    items = list(array.ravel())
    if array.ndim == 0:
        return b" ".join(element(v, quoted=False) for v in items[:most]) + rest
    parts: list[bytes] = []
    _flat_rows(items, array.shape, most, 0, 0, parts)
    return b"".join(parts) + rest


def _flat_rows(
    items: list[Any], shape: tuple[int, ...], limit: int, dim: int, done: int, parts: list[bytes]
) -> int:
    """Write one row of a dimension; return how many elements are written in all."""
    if done >= limit:
        return done
    if dim == len(shape) - 1:
        for place in range(shape[dim]):
            if done >= limit:
                if dim:
                    parts.append(b"...")
                return done
            parts.append((b" " if place else b"") + element(items[done], quoted=False))
            done += 1
        return done
    for _ in range(shape[dim]):
        if done >= limit:
            break
        parts.append(b"[")
        done = _flat_rows(items, shape, limit, dim + 1, done, parts)
        parts.append(b"]")
    return done


def nested(value: Any, limit: int) -> bytes:
    """A tensor in nested brackets, so many elements at both ends of each dimension."""
    array = np.asarray(value)
    most = array.size if limit < 0 else min(limit, array.size)
    if not shows(array):
        marks = b" ".join([b"?"] * most) + (b"..." if 0 <= limit < array.size else b"")
        return b"[" + marks + b"]" if array.ndim else marks
    if array.ndim == 0 and most == 0:
        return b"..."
    return _nested_rows(array, most, 0, array.ndim)


def _nested_rows(array: Any, ends: int, dim: int, rank: int) -> bytes:
    if dim == rank:
        return element(array.item() if array.dtype == object else array[()], quoted=True)
    gap = b" " if dim == rank - 1 else b"\n" * (rank - 1 - dim) + b" " * (dim + 1)
    count = len(array)
    rows = [_nested_rows(row, ends, dim + 1, rank) for row in _rows(array, 0, min(ends, count))]
    if count > 2 * ends:
        rows.append(b"...")
    last = [
        _nested_rows(row, ends, dim + 1, rank)
        for row in _rows(array, max(ends, count - ends), count)
    ]
    text = gap.join(rows + last)
    # what is left out at the very start is set off as well
    return b"[" + (gap + text if ends == 0 and count else text) + b"]"


def _rows(array: Any, start: int, stop: int) -> list[Any]:
    return [array[place, ...] for place in range(start, stop)]
