"""Python values as the attributes of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cfgraph.build.blame import misuse
from cfgraph.build.constants import as_array, natural_dtype
from cfgraph.ir.attrs import Func, Tensor
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import Attr


def as_dtype(value: Any) -> DType:
    """A DType, its name, or a NumPy type, as a DType. Raises UsageError for anything else."""
    try:
        if isinstance(value, DType):
            return value
        return DType.named(value) if isinstance(value, str) else DType.of_numpy(value)
    except (KeyError, TypeError):
        message = f"{value!r} is no element type"
        raise misuse(message, hint="write one like 'float32' or np.float32") from None


def as_shape(value: Any) -> Shape:
    """A Shape, None (unknown rank), a size, or sizes of which None and -1 are unknown."""
    if value is None or isinstance(value, Shape):
        return Shape(None) if value is None else value
    sizes = [value] if isinstance(value, int | np.integer) else value
    try:
        return Shape(None if size is None or int(size) < 0 else int(size) for size in sizes)
    except (TypeError, ValueError):
        message = f"{value!r} is no shape"
        raise misuse(message, hint="write one like [2, None]") from None


def as_attr(op: str, declared: Attr, value: Any) -> Any:
    """A value as the attribute that an op declares. Raises UsageError where it is none."""
    kind = declared.kind
    if kind.startswith("list("):
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            message = f"{op} wants a list for the attribute {declared.name!r}, not {value!r}"
            raise misuse(message)
        items = tuple(_scalar(op, declared, kind[5:-1], item) for item in value)
        if declared.minimum is not None and len(items) < declared.minimum:
            message = (
                f"{op} wants at least {declared.minimum} in {declared.name!r}, not {len(items)}"
            )
            raise misuse(message)
        return items
    found = _scalar(op, declared, kind, value)
    if kind == "int" and declared.minimum is not None and found < declared.minimum:
        message = f"{op} wants {declared.name!r} to be at least {declared.minimum}, not {found}"
        raise misuse(message)
    return found


def as_note(value: Any) -> Any:
    """A value as an attribute that no op declares, by its Python type."""
    if isinstance(value, list | tuple):
        return tuple(as_note(item) for item in value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | int | float | bytes | DType | Shape | Tensor | Func):
        return value
    message = f"{value!r} cannot be an attribute"
    raise misuse(message)


def _scalar(op: str, declared: Attr, kind: str, value: Any) -> Any:
    if kind == "type":
        found: Any = as_dtype(value)
    elif kind == "shape":
        return as_shape(value)
    elif kind == "tensor":
        return _tensor(value)
    else:
        accepted, convert = _KINDS[kind]
        wrong_bool = isinstance(value, bool | np.bool_) and kind != "bool"
        if wrong_bool or not isinstance(value, accepted):
            message = f"{op} wants {_A[kind]} for the attribute {declared.name!r}, not {value!r}"
            raise misuse(message)
        found = convert(value)
    if declared.allowed is not None and found not in declared.allowed:
        told = ", ".join(
            item.decode() if isinstance(item, bytes) else str(item) for item in declared.allowed
        )
        shown = found.decode() if isinstance(found, bytes) else found
        message = f"{op} does not take {shown} for {declared.name!r}"
        raise misuse(message, hint=f"one of {told}")
    return found


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    dtype = natural_dtype([value])
    if dtype is None:
        message = f"no element type holds {value!r}"
        raise misuse(message)
    return Tensor(as_array(value, dtype, ""))


def _float(value: Any) -> float:
    return float(np.float32(value))  # what a file holds


def _text(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _function(value: str | Func) -> Func:
    return Func(value) if isinstance(value, str) else value


_A: Final = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "string": "a text",
    "func": "the name of a function",
}
_KINDS: Final[dict[str, tuple[Any, Callable[[Any], Any]]]] = {
    "int": (int | np.integer, int),
    "float": (int | float | np.integer | np.floating, _float),
    "bool": (bool | np.bool_, bool),
    "string": (str | bytes, _text),
    "func": (str | Func, _function),
}
