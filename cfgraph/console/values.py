"""Text and JSON of values: short enough to read, exact enough to read back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, Final

import numpy as np

from cfgraph.cli.output import flowed
from cfgraph.console.documents import Statistics, ValueReport
from cfgraph.ir.attrs import repeated_element
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import AbstractTensor, Shape
from cfgraph.ops.families.optional import OptionalVariant
from cfgraph.ops.families.tensor_list import TensorList
from cfgraph.ops.families.variables import Variable

# elements of a value that are shown: in JSON, and as text
MAX_ELEMENTS: Final = 1024
MAX_TEXT_ELEMENTS: Final = 200
LINE_WIDTH: Final = 78
_EDGE: Final = 3
_GAP: Final = "…"
_SMALL: Final = 8
_VARIANTS: Final = (TensorList, OptionalVariant)


def type_text(value: Any) -> str:
    """Type and shape of a value, as in `float32[2,3]`."""
    array = _as_array(value)
    return f"{_dtype_name(array)}{Shape(array.shape)}"


def _as_array(value: Any) -> Any:
    """Convert a value to an array, a reference to the value it refers to.

    NumPy must not treat a resource as a sequence; an abstract tensor is not an array.
    """
    if isinstance(value, AbstractTensor):
        return value
    if isinstance(value, Variable) and not value.resource and value.initialized:
        value = value.read()
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        return np.asarray(value)
    array = np.empty((), object)
    array[()] = value
    return array


def _is_opaque(array: Any) -> bool:
    """True for an array of resources or variants."""
    if array.dtype != object:
        return False
    items = array.flat if repeated_element(array) is None else [array.flat[0]]
    return not all(isinstance(item, bytes | str) for item in items)


def _dtype_name(array: Any) -> str:
    if _is_opaque(array):
        return "variant" if isinstance(array.flat[0], _VARIANTS) else "resource"
    try:
        return DType.from_numpy(array.dtype).name
    except TypeError:
        return str(array.dtype.name)


def value_text(value: Any, full: bool = False) -> str:
    """Format a value as JSON that `--feed` reads; long values take several lines.

    More than 200 elements are elided unless `full`.
    """
    array = _as_array(value)
    if isinstance(array, AbstractTensor):
        return "not computed"
    element = _element_text(array)
    if array.ndim == 0:
        return element(array[()])
    whole = full or _list_count(array.shape) <= MAX_TEXT_ELEMENTS
    edge, left = (None, count()) if whole else (_EDGE, iter(range(MAX_TEXT_ELEMENTS)))
    nested = _nested_texts(array, element, edge, left)
    line = _single_line(nested, array.ndim)
    return line if len(line) <= LINE_WIDTH else "\n".join(_multi_line(nested, array.ndim))


def _element_text(array: Any) -> Callable[[Any], str]:
    """Return the formatter of one element: numbers in the fewest digits that read back equal."""
    kind = array.dtype.kind
    if kind == "b":
        return lambda item: "true" if item else "false"
    if kind in "iu":
        return str
    if kind == "f":
        return _float_text
    if kind == "c":
        return _complex_text
    if kind == "V":
        return _extended_text
    return _object_text


def _object_text(item: Any) -> str:
    if isinstance(item, bytes):
        item = item.decode("utf-8", "backslashreplace")
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False)
    name = getattr(item, "name", "")  # not str(item), which may contain an address
    return f"<{type(item).__name__}{f' {name}' if name else ''}>"


def _float_text(item: Any) -> str:
    if np.isfinite(item):
        text = str(item)
        plain = "e" in text and 1e-4 <= abs(float(item)) < 1e16
        return np.format_float_positional(item, trim="0") if plain else text
    return "NaN" if np.isnan(item) else "Infinity" if item > 0 else "-Infinity"


def _complex_text(item: Any) -> str:
    real, imaginary = (str(component) for component in (item.real, item.imag))
    return f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"


def _extended_text(item: Any) -> str:
    """Format a number of an ml_dtypes type, whose own text has more digits than needed."""
    kind, value = type(item), float(item)
    if "int" in np.dtype(kind).name:
        return str(int(item))
    if not np.isfinite(value):
        return _float_text(value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 9))
    text = next(text for text in texts if float(kind(float(text))) == value)
    return text if set(text) & set(".e") else f"{text}.0"


def _list_count(shape: tuple[int, ...]) -> int:
    """Return the number of elements, or of lists if these are empty."""
    return math.prod(max(size, 1) for size in shape)


def _nested_texts(
    array: Any, element: Callable[[Any], str], edge: int | None, left: Iterator[int]
) -> Any:
    """Return the elements as texts in nested lists; the middle of long lists is elided.

    Each text and each list takes a number from `left`; after the last, all is elided.
    """
    if next(left, None) is None:
        return _GAP
    size = array.shape[0]
    indices: Sequence[int | None] = range(size)
    if edge is not None and size > 2 * edge:
        indices = [*range(edge), None, *range(size - edge, size)]
    if array.ndim == 1:
        return [
            _GAP if index is None or next(left, None) is None else element(array[index])
            for index in indices
        ]
    return [
        _GAP if index is None else _nested_texts(array[index], element, edge, left)
        for index in indices
    ]


def _single_line(nested: Any, rank: int) -> str:
    if isinstance(nested, str):
        return nested
    return f"[{', '.join(_single_line(item, rank - 1) for item in nested)}]"


def _multi_line(nested: list[Any], rank: int) -> Iterator[str]:
    """Yield the innermost lists on separate lines; long ones are wrapped."""
    if rank == 1:
        lines = list(flowed(nested, LINE_WIDTH, " ")) or [" "]
        yield "[" + lines[0][1:] + ("]" if len(lines) == 1 else "")
        yield from lines[1:-1]
        if len(lines) > 1:
            yield lines[-1] + "]"
        return
    for index, item in enumerate(nested):
        last = index == len(nested) - 1
        lines = [item] if isinstance(item, str) else list(_multi_line(item, rank - 1))
        for number, line in enumerate(lines):
            opened = "[" if index == number == 0 else " "
            ended = number == len(lines) - 1
            yield opened + line + (("]" if last else ",") if ended else "")


def value_report(value: Any, full: bool = False) -> ValueReport:
    """Return a value as a member of a document; a large one without elements unless `full`."""
    array = _as_array(value)
    dtype, shape = _dtype_name(array), list(array.shape)
    if isinstance(array, AbstractTensor):
        return ValueReport(dtype, shape, computed=False)
    if _list_count(array.shape) > MAX_ELEMENTS and not full:
        return ValueReport(dtype, shape, elided=True, statistics=Statistics(**_statistics(array)))
    items = [_element_json(item, array.dtype.kind) for item in _json_items(array)]
    return ValueReport(dtype, shape, _reshape(items, array.shape))


def statistics_text(value: Any, full: bool = False) -> str:
    """Describe the elements of an elided value; empty for other values."""
    array = _as_array(value)
    if full or isinstance(array, AbstractTensor):
        return ""
    if _list_count(array.shape) <= MAX_TEXT_ELEMENTS:
        return ""
    found = _statistics(array)
    parts = [f"{key} {found[key]:.6g}" for key in ("min", "max", "mean") if key in found]
    parts += [
        f"{found[key]} {name}" for key, name in (("nan", "NaN"), ("inf", "Inf")) if found.get(key)
    ]
    return ", ".join(parts)


def _statistics(array: Any) -> dict[str, Any]:
    """Minimum, maximum, and mean of the finite elements, and the numbers of NaN and Inf."""
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    if array.dtype.kind not in "fiu" or not array.size:
        return {}
    nan, infinite = 0, 0
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        nan, infinite = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        array = array[np.isfinite(array)]
    counts = {"nan": nan, "inf": infinite}
    if not array.size:
        return counts
    with np.errstate(all="ignore"):  # the sum of large elements overflows
        mean = float(np.mean(array, dtype=np.float64))
    return {"min": array.min().item(), "max": array.max().item(), "mean": mean, **counts}


def _json_items(array: Any) -> Iterator[Any]:
    flat = array.reshape(-1)
    return (flat[index] for index in range(flat.size))


def _element_json(item: Any, kind: str) -> Any:
    if kind in "biu":
        return item.item()
    if kind == "O":
        return item if isinstance(item, bytes | str) else _object_text(item)
    if kind == "c":
        return _complex_text(item)
    text = _float_text(item) if kind == "f" else _extended_text(item)
    return json.loads(text) if np.isfinite(float(item)) else text


def _reshape(items: list[Any], shape: tuple[int, ...]) -> Any:
    for size in reversed(shape[1:]):
        count = len(items) // size if size else int(np.prod(shape[:-1]))
        items = [items[index * size : (index + 1) * size] for index in range(count)]
    return items if shape else items[0]


def summary_text(value: Any, limit: int = 40) -> str:
    """Format type and, if it is short, value for a line of a trace."""
    if isinstance(value, np.generic):  # a fast path: most values in a loop are scalars
        kind, element = _scalar_printer(value.dtype)
        return f"{kind} {element(value)}"
    array = _as_array(value)
    kind = type_text(array)
    if isinstance(array, AbstractTensor) or array.size > _SMALL or _is_opaque(array):
        return kind
    text = value_text(array)
    return f"{kind} {text}" if len(text) <= limit else kind


@cache
def _scalar_printer(dtype: Any) -> tuple[str, Callable[[Any], str]]:
    array = np.zeros((), dtype)
    return type_text(array), _element_text(array)
