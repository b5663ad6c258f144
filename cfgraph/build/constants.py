"""Python and NumPy values as arrays of the type that an op wants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.build.blame import misuse
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType

# the types that a Python value of a kind may take where nothing else says, best first
_INTEGERS: Final = (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64)
_FLOATS: Final = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)
_COMPLEX: Final = (dtypes.complex128, dtypes.complex64)
_TAKES: Final[dict[str, tuple[DType, ...]]] = {
    "bool": (dtypes.bool_,),
    "string": (dtypes.string,),
    "int": (*_INTEGERS, *_FLOATS, *_COMPLEX),
    "float": (*_FLOATS, *_COMPLEX),
    "complex": _COMPLEX,
    "empty": (*_FLOATS, *_INTEGERS, *_COMPLEX, dtypes.bool_, dtypes.string),
}
_WIDTH: Final = ("empty", "bool", "int", "float", "complex", "string")
_TYPED: Final = (np.ndarray, np.generic)


def natural_dtype(values: Iterable[Any], allowed: Sequence[DType] | None = None) -> DType | None:
    """The one type that all these values take best; None where no allowed type can hold them.

    A NumPy value keeps its own; Python's integers are int32 where they fit, its floats float32.
    """
    items = list(values)
    kind = max((_kind(item) for item in items), key=_WIDTH.index, default="empty")
    own = [_numpy_dtype(item) for item in items if isinstance(item, _TYPED)]
    candidates = [dtype for dtype in own if allowed is None or dtype in allowed]
    candidates += [d for d in _TAKES[kind] if allowed is None or d in allowed]
    return next((dtype for dtype in candidates if all(_fits(v, dtype) for v in items)), None)


def as_array(value: Any, dtype: DType, what: str) -> Any:
    """The value as an array of a type. Raises UsageError where it would not stay what it is.

    `what` begins the message.
    """
    try:
        if _fits(value, dtype):
            return _converted(value, dtype)
    except (TypeError, ValueError):
        pass  # ragged
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    have = f" of type {_numpy_dtype(value)}" if isinstance(value, _TYPED) else ""
    message = f"{what}{shown}{have} is no {dtype}"
    raise misuse(message, hint="write a value of that type, or Cast the tensors that it meets")


def leaves(value: Any) -> Iterator[Any]:
    """The elements of nested lists and tuples."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _kind(value: Any) -> str:
    if isinstance(value, _TYPED):
        dtype = _numpy_dtype(value)
        return "int" if dtype.kind == "uint" else dtype.kind
    if isinstance(value, list | tuple):
        return max((_kind(item) for item in leaves(value)), key=_WIDTH.index, default="empty")
    if isinstance(value, bool):
        return "bool"
    for python, kind in ((int, "int"), (float, "float"), (complex, "complex")):
        if isinstance(value, python):
            return kind
    if isinstance(value, str | bytes):
        return "string"
    message = f"a value of type {type(value).__name__} cannot be a tensor"
    raise misuse(message)


def _numpy_dtype(value: Any) -> DType:
    try:
        return DType.of_numpy(value.dtype)
    except TypeError as error:
        raise misuse(str(error)) from None


def _fits(value: Any, dtype: DType) -> bool:
    try:
        return _keeps(value, dtype)
    except (ValueError, OverflowError):
        return False  # ragged, or too large for any float


def _keeps(value: Any, dtype: DType) -> bool:
    """True if the value keeps its kind, an integer its value, and a finite number stays finite."""
    kind = _kind(value)
    if kind in ("bool", "string") or dtype.kind in ("bool", "string"):
        return kind in (dtype.kind, "empty")
    if dtype.is_object or dtype not in _NUMBERS:
        return False
    if isinstance(value, _TYPED) and _numpy_dtype(value) is dtype:
        return True
    if kind == "int" and dtype.is_integer:
        return _in_range(value, dtype)
    if kind in ("int", "float") and dtype.is_floating:
        return _is_finite_in(value, dtype)
    if dtype.is_complex:
        np.asarray(value, np.complex128)  # raises where it is ragged
        return True
    return kind == "empty"


_NUMBERS: Final = frozenset(
    DType.of(number)
    for number in range(1, 34)
    if DType.of(number).kind in ("int", "uint", "float", "complex")
)


def _in_range(value: Any, dtype: DType) -> bool:
    numbers = (
        np.asarray(value) if isinstance(value, _TYPED) else np.array(list(leaves(value)), object)
    )
    if not numbers.size:
        return True
    info: Any = np.iinfo(dtype.numpy) if dtype.numpy.kind in "iu" else _ml_info(dtype)
    return bool(int(info.min) <= int(numbers.min()) and int(numbers.max()) <= int(info.max))


def _is_finite_in(value: Any, dtype: DType) -> bool:
    """True if no finite number becomes infinite."""
    import ml_dtypes

    numbers = np.abs(np.asarray(value, np.float64))
    finite = numbers[np.isfinite(numbers)]
    limits: Any = ml_dtypes.finfo
    return not finite.size or bool(finite.max() <= float(limits(dtype.numpy).max))


def _ml_info(dtype: DType) -> Any:
    import ml_dtypes

    limits: Any = ml_dtypes.iinfo
    return limits(dtype.numpy)


def _converted(value: Any, dtype: DType) -> Any:
    if dtype is not dtypes.string:
        return np.asarray(value, dtype.numpy)
    array: Any = np.asarray(value, object)
    encoded = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        item: Any = array[place]
        encoded[place] = item.encode() if isinstance(item, str) else bytes(item)
    return encoded
