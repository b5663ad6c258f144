"""Attribute values as the readable form writes them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from cfgraph.ir.attrs import Func, Placeholder, Raw, Tensor
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde_attrs import attr_data, attr_from_data
from cfgraph.ir.serde_layout import Layout, layout_of
from cfgraph.ir.shapes import Shape
from cfgraph.ir.text_lex import name_text, string_text

# an encoded attribute longer than this is rarely seen twice
_MAX_KEPT = 256


class Inexact(Exception):
    """The readable form has no words for a value that would give its encoding again."""


class AttrPrinter:
    """Prints encoded attributes, each different one once."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._keys: dict[str, str] = {}

    def pair(self, key: str, data: bytes) -> str:
        """The text of an attribute with its name."""
        name = self._keys.get(key)
        if name is None:
            name = self._keys[key] = name_text(key)
        return f"{name}={self._known.get(data) or self.text(data)}"

    def text(self, data: bytes) -> str:
        """The text of an encoded attribute."""
        known = self._known.get(data)
        if known is None:
            known = _text_of_data(data)
            if len(data) <= _MAX_KEPT:
                self._known[data] = known
        return known

    def value_text(self, value: Any) -> str:
        """The text of a value."""
        return self.text(value.data if isinstance(value, Raw) else attr_data(value))

    def attrs_text(self, attrs: Mapping[str, Any]) -> str:
        """Attributes in braces, by name."""
        items = (f"{name_text(key)}={self.value_text(attrs[key])}" for key in sorted(attrs))
        return "{" + ", ".join(items) + "}"


def raw_text(data: bytes) -> str:
    """Bytes in base64."""
    return f'raw"{base64.b64encode(data).decode()}"'


def _text_of_data(data: bytes) -> str:
    try:
        return _text(attr_from_data(data))
    except Inexact:
        return raw_text(data)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, bytes):
        return string_text(value)
    if isinstance(value, DType):
        return _dtype_text(value)
    if isinstance(value, Shape):
        return _shape_text(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_text, value)) + ")"
    if isinstance(value, Func):
        return "@" + name_text(value.name) + (_func_attrs_text(value) if value.attrs else "")
    if isinstance(value, Placeholder):
        return "$" + name_text(value.name)
    if isinstance(value, Tensor):
        return _tensor_text(value)
    assert isinstance(value, Raw)
    return raw_text(value.data)


def _func_attrs_text(func: Func) -> str:
    items = (f"{name_text(key)}={_text(func.attrs[key])}" for key in sorted(func.attrs))
    return "{" + ", ".join(items) + "}"


def _float_text(value: float) -> str:
    return _exact_texts(np.array([value], np.float32))[0]


def _dtype_text(dtype: DType) -> str:
    try:
        known = DType.named(dtype.name)
    except KeyError:
        raise Inexact from None
    if known is not dtype:
        raise Inexact
    return dtype.name


def _shape_text(shape: Shape) -> str:
    if not shape.names or shape.dims is None:
        return str(shape)
    pairs = zip(shape.names, shape.dims, strict=True)
    dims = ((name and f"{name_text(name)}=") + _dim_text(dim) for name, dim in pairs)
    return "[" + ",".join(dims) + "]"


def _dim_text(dim: int | None) -> str:
    return "?" if dim is None else str(dim)


def _tensor_text(tensor: Tensor) -> str:
    layout = layout_of(tensor)
    if layout is None:
        raise Inexact
    head = f"{layout.dtype}[{','.join(map(str, layout.dims))}]:"
    if layout.form == "content":
        return head + raw_text(layout.values)
    try:
        texts = _element_texts(layout)
    except Inexact:
        if layout.form != "dense" or layout.values.size == 1 or layout.dtype.is_object:
            raise
        return head + raw_text(layout.values.tobytes())
    if layout.form == "list":
        return f"{head}({', '.join(texts)})"
    return head + _nested(texts, layout.dims)


def _element_texts(layout: Layout) -> list[str]:
    flat = layout.values.reshape(-1)
    kind = layout.dtype.kind
    if kind == "string":
        return [string_text(item) for item in flat.tolist()]
    if kind == "bool":
        return ["true" if item else "false" for item in flat.tolist()]
    if kind in ("int", "uint"):
        return [str(int(item)) for item in flat.tolist()]
    if kind == "complex":
        return _complex_texts(flat)
    return _exact_texts(flat)


def _complex_texts(flat: Any) -> list[str]:
    parts = _exact_texts(flat.view(flat.real.dtype))
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [f"{real}{'' if imag[0] == '-' else '+'}{imag}j" for real, imag in pairs]


def _exact_texts(flat: Any) -> list[str]:
    """The shortest texts that read back as the same bits."""
    texts = [_signed(str(item), item) for item in flat]
    with np.errstate(all="ignore"):
        again = np.array([float(text) for text in texts], np.float64).astype(flat.dtype)
    if again.tobytes() != flat.tobytes():
        raise Inexact
    return texts


def _signed(text: str, item: Any) -> str:
    return "-nan" if text == "nan" and np.signbit(item) else text


def _nested(texts: list[str], dims: tuple[int, ...]) -> str:
    for dim in reversed(dims):
        texts = [
            "[" + ",".join(texts[start : start + dim]) + "]" for start in range(0, len(texts), dim)
        ]
    return texts[0]
