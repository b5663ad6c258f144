"""Constant tensors read from the readable form."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import Tensor
from cfgraph.ir.dtypes import DType, string
from cfgraph.ir.serde_layout import Layout, tensor_of
from cfgraph.ir.serde_tensor import MAX_ELEMENTS, MAX_RANK
from cfgraph.ir.shapes import Shape
from cfgraph.ir.text_lex import Line
from cfgraph.ir.text_parse_scalars import COMPLEX_TEXT, FLOAT_TEXT, parse_int, parse_raw

# what the widest types hold; the tensor's own type is checked afterwards
_WIDEST: Final = range(-(1 << 63), 1 << 64)


def is_shape_of_tensor(shape: Shape) -> bool:
    """True if a tensor can be of this shape."""
    return shape.is_full and not shape.names and len(tuple(shape)) <= MAX_RANK


def parse_tensor(line: Line, dtype: DType, shape: Shape) -> Tensor:
    """Read the elements of a tensor, after its type and shape."""
    if dtype.is_object and dtype is not string:
        raise line.error(f"no elements were expected, for a {dtype} cannot be written")
    line.expect(":")
    dims = tuple(int(dim) for dim in shape if dim is not None)
    start = line.place
    try:
        layout = _layout(line, dtype, dims)
        tensor = tensor_of(layout)
        tensor.check()
    except (InvalidInput, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput) and error.code == "CFG004":
            raise
        line.place = start
        raise line.error(f"the elements of a {dtype}{shape} were expected ({error})") from None
    return tensor


def _layout(line: Line, dtype: DType, dims: tuple[int, ...]) -> Layout:
    if line.token == "raw":
        data = parse_raw(line)
        return Layout(dtype, dims, "content", data)
    read = _element_reader(line, dtype)
    if line.token == "(":
        return Layout(dtype, dims, "list", _array(_flat(line, read), dtype))
    if prod(dims) > MAX_ELEMENTS:
        raise line.error("a tensor with fewer elements was expected")
    items: list[Any] = []
    _nested(line, dims, read, items)
    return Layout(dtype, dims, "dense", _array(items, dtype).reshape(dims))


def _flat(line: Line, read: Callable[[], Any]) -> list[Any]:
    line.expect("(")
    items: list[Any] = []
    while not line.take(")"):
        if items and not line.take(","):
            raise line.error("',' or ')' was expected")
        items.append(read())
    return items


def _nested(line: Line, dims: tuple[int, ...], read: Callable[[], Any], items: list[Any]) -> None:
    if not dims:
        items.append(read())
        return
    line.expect("[")
    for place in range(dims[0]):
        if place:
            line.expect(",")
        _nested(line, dims[1:], read, items)
    line.expect("]")


def _element_reader(line: Line, dtype: DType) -> Callable[[], Any]:
    kind = dtype.kind
    if kind == "string":
        return lambda: line.data("a string")
    if kind == "bool":
        return lambda: _bool(line)
    if kind in ("int", "uint"):
        return lambda: parse_int(line, _WIDEST)
    if kind == "complex":
        return lambda: _complex(line)
    return lambda: _float(line)


def _bool(line: Line) -> bool:
    if line.token not in ("true", "false"):
        raise line.error("true or false was expected")
    return line.next() == "true"


def _float(line: Line) -> float:
    if not FLOAT_TEXT(line.token):
        raise line.error("a number was expected")
    return float(line.next())


def _complex(line: Line) -> tuple[float, float]:
    match = COMPLEX_TEXT(line.token)
    if match is None:
        raise line.error("a number such as 1.0+2.0j was expected")
    line.next()
    return float(match[1]), float(match[2] or 0)


def _array(items: list[Any], dtype: DType) -> Any:
    if dtype.is_object:
        flat = np.empty(len(items), object)
        flat[:] = items
        return flat
    if dtype.kind == "bool":
        return np.array(items, bool)
    if dtype.kind in ("int", "uint"):
        return _ints(items, dtype)
    with np.errstate(all="ignore"):
        if dtype.is_complex:
            part = np.float32 if dtype.numpy.itemsize == 8 else np.float64
            return np.array(items, np.float64).reshape(-1).astype(part).view(dtype.numpy)
        return np.array(items, np.float64).astype(dtype.numpy)


def _ints(items: list[int], dtype: DType) -> Any:
    wide = np.array(items, np.int64 if dtype.kind == "int" else np.uint64)
    narrow = wide.astype(dtype.numpy)
    if narrow.astype(wide.dtype).tolist() != items:
        message = f"an element is out of the range of {dtype}"
        raise ValueError(message)
    return narrow
