"""Conversion of Python and NumPy values to dtypes, shapes, attributes, and arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.build.user_frame import misuse_error
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import AttrDef

# candidate types per Python kind, in order of preference
_INTEGER_DTYPES: Final = (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64)
_FLOAT_DTYPES: Final = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)
_COMPLEX_DTYPES: Final = (dtypes.complex128, dtypes.complex64)
_CANDIDATE_DTYPES: Final[dict[str, tuple[DType, ...]]] = {
    "bool": (dtypes.bool_,),
    "string": (dtypes.string,),
    "int": (*_INTEGER_DTYPES, *_FLOAT_DTYPES, *_COMPLEX_DTYPES),
    "float": (*_FLOAT_DTYPES, *_COMPLEX_DTYPES),
    "complex": _COMPLEX_DTYPES,
    "empty": (*_FLOAT_DTYPES, *_INTEGER_DTYPES, *_COMPLEX_DTYPES, dtypes.bool_, dtypes.string),
}
_KIND_ORDER: Final = ("empty", "bool", "int", "float", "complex", "string")
_NUMPY_TYPES: Final = (np.ndarray, np.generic)


def natural_dtype(values: Iterable[Any], allowed: Sequence[DType] | None = None) -> DType | None:
    """The most natural type for all these values, or None if no allowed type can represent them.

    A NumPy value keeps its type; Python integers are int32 if they fit, floats float32.
    """
    items = list(values)
    kind = max((_python_kind(item) for item in items), key=_KIND_ORDER.index, default="empty")
    own = [_numpy_dtype(item) for item in items if isinstance(item, _NUMPY_TYPES)]
    candidates = [dtype for dtype in own if allowed is None or dtype in allowed]
    candidates += [d for d in _CANDIDATE_DTYPES[kind] if allowed is None or d in allowed]
    return next((dtype for dtype in candidates if all(_fits(v, dtype) for v in items)), None)


def as_array(value: Any, dtype: DType, what: str) -> Any:
    """Convert a value to an array of a type. Raises UsageError if that would change the value.

    `what` is the start of the message.
    """
    try:
        if _fits(value, dtype):
            return _convert(value, dtype)
    except (TypeError, ValueError):
        pass  # ragged
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    have = f" of type {_numpy_dtype(value)}" if isinstance(value, _NUMPY_TYPES) else ""
    message = f"{what}{shown}{have} cannot be represented as {dtype}"
    raise misuse_error(message, hint="use a value of that type, or Cast the other operands")


def nested_elements(value: Any) -> Iterator[Any]:
    """Iterate over the elements of nested lists and tuples."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from nested_elements(item)
    else:
        yield value


def _python_kind(value: Any) -> str:
    if isinstance(value, _NUMPY_TYPES):
        dtype = _numpy_dtype(value)
        return "int" if dtype.kind == "uint" else dtype.kind
    if isinstance(value, list | tuple):
        return max(
            (_python_kind(item) for item in nested_elements(value)),
            key=_KIND_ORDER.index,
            default="empty",
        )
    if isinstance(value, bool):
        return "bool"
    for python, kind in ((int, "int"), (float, "float"), (complex, "complex")):
        if isinstance(value, python):
            return kind
    if isinstance(value, str | bytes):
        return "string"
    message = f"a value of type {type(value).__name__} cannot be a tensor"
    raise misuse_error(message)


def _numpy_dtype(value: Any) -> DType:
    try:
        return DType.from_numpy(value.dtype)
    except TypeError as error:
        raise misuse_error(str(error)) from None


def _fits(value: Any, dtype: DType) -> bool:
    try:
        return _preserves_value(value, dtype)
    except (ValueError, OverflowError):
        return False  # ragged, or too large for any float


def _preserves_value(value: Any, dtype: DType) -> bool:
    """True if the kind, integer values, and the finiteness of numbers are preserved."""
    kind = _python_kind(value)
    if kind in ("bool", "string") or dtype.kind in ("bool", "string"):
        return kind in (dtype.kind, "empty")
    if dtype.is_object or dtype not in _NUMERIC_DTYPES:
        return False
    if isinstance(value, _NUMPY_TYPES) and _numpy_dtype(value) is dtype:
        return True
    if kind == "int" and dtype.is_integer:
        return _in_range(value, dtype)
    if kind in ("int", "float") and dtype.is_floating:
        return _is_finite_in(value, dtype)
    if dtype.is_complex:
        np.asarray(value, np.complex128)  # raises ValueError for a ragged list
        return True
    return kind == "empty"


_NUMERIC_DTYPES: Final = frozenset(
    DType.from_number(number)
    for number in range(1, 34)
    if DType.from_number(number).kind in ("int", "uint", "float", "complex")
)


def _in_range(value: Any, dtype: DType) -> bool:
    numbers = (
        np.asarray(value)
        if isinstance(value, _NUMPY_TYPES)
        else np.array(list(nested_elements(value)), object)
    )
    if not numbers.size:
        return True
    info: Any = np.iinfo(dtype.numpy) if dtype.numpy.kind in "iu" else _dtype_info(dtype)
    return bool(int(info.min) <= int(numbers.min()) and int(numbers.max()) <= int(info.max))


def _is_finite_in(value: Any, dtype: DType) -> bool:
    """True if all finite numbers stay finite."""
    import ml_dtypes

    numbers = np.abs(np.asarray(value, np.float64))
    finite = numbers[np.isfinite(numbers)]
    limits: Any = ml_dtypes.finfo
    return not finite.size or bool(finite.max() <= float(limits(dtype.numpy).max))


def _dtype_info(dtype: DType) -> Any:
    import ml_dtypes

    limits: Any = ml_dtypes.iinfo
    return limits(dtype.numpy)


def _convert(value: Any, dtype: DType) -> Any:
    if dtype is not dtypes.string:
        return np.asarray(value, dtype.numpy)
    array: Any = np.asarray(value, object)
    encoded = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        item: Any = array[index]
        encoded[index] = item.encode() if isinstance(item, str) else bytes(item)
    return encoded


def as_dtype(value: Any) -> DType:
    """Convert a DType, a name, or a NumPy type to a DType. Raises UsageError for anything else."""
    try:
        if isinstance(value, DType):
            return value
        return DType.from_name(value) if isinstance(value, str) else DType.from_numpy(value)
    except (KeyError, TypeError):
        message = f"{value!r} is not an element type"
        raise misuse_error(message, hint="write one like 'float32' or np.float32") from None


def as_shape(value: Any) -> Shape:
    """Convert a Shape, None (unknown rank), a size, or sizes (None and -1 are unknown) to a
    Shape.
    """
    if value is None or isinstance(value, Shape):
        return Shape(None) if value is None else value
    sizes = [value] if isinstance(value, int | np.integer) else value
    try:
        return Shape(None if size is None or int(size) < 0 else int(size) for size in sizes)
    except (TypeError, ValueError):
        message = f"{value!r} is not a shape"
        raise misuse_error(message, hint="write one like [2, None]") from None


def as_attr(op: str, declared: AttrDef, value: Any) -> Any:
    """Convert a value to an attribute that an op declares. Raises UsageError if it is invalid."""
    kind = declared.kind
    if kind.startswith("list("):
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            message = f"{op}: attribute {declared.name!r} must be a list, got {value!r}"
            raise misuse_error(message)
        items = tuple(_scalar_attr(op, declared, kind[5:-1], item) for item in value)
        if declared.minimum is not None and len(items) < declared.minimum:
            least = f"at least {declared.minimum} elements"
            message = f"{op} expects {least} in {declared.name!r}, got {len(items)}"
            raise misuse_error(message)
        return items
    attr = _scalar_attr(op, declared, kind, value)
    if kind == "int" and declared.minimum is not None and attr < declared.minimum:
        message = f"{op} expects {declared.name!r} to be at least {declared.minimum}, got {attr}"
        raise misuse_error(message)
    return attr


def as_undeclared_attr(value: Any) -> Any:
    """Convert a value to an undeclared attribute, by its Python type."""
    if isinstance(value, list | tuple):
        return tuple(as_undeclared_attr(item) for item in value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | int | float | bytes | DType | Shape | TensorValue | Func):
        return value
    message = f"{value!r} cannot be an attribute"
    raise misuse_error(message)


def _scalar_attr(op: str, declared: AttrDef, kind: str, value: Any) -> Any:
    if kind == "type":
        attr: Any = as_dtype(value)
    elif kind == "shape":
        return as_shape(value)
    elif kind == "tensor":
        return _tensor_attr(value)
    else:
        accepted, convert = _KIND_CONVERTERS[kind]
        wrong_bool = isinstance(value, bool | np.bool_) and kind != "bool"
        if wrong_bool or not isinstance(value, accepted):
            expected = f"{_KIND_NAMES[kind]} for the attribute {declared.name!r}"
            message = f"{op} expects {expected}, got {value!r}"
            raise misuse_error(message)
        attr = convert(value)
    if declared.allowed is not None and attr not in declared.allowed:
        allowed = ", ".join(
            item.decode() if isinstance(item, bytes) else str(item) for item in declared.allowed
        )
        shown = attr.decode() if isinstance(attr, bytes) else attr
        message = f"{op} does not accept {shown} for {declared.name!r}"
        raise misuse_error(message, hint=f"one of {allowed}")
    return attr


def _tensor_attr(value: Any) -> TensorValue:
    if isinstance(value, TensorValue):
        return value
    dtype = natural_dtype([value])
    if dtype is None:
        message = f"no element type can represent {value!r}"
        raise misuse_error(message)
    return TensorValue(as_array(value, dtype, ""))


def _float_attr(value: Any) -> float:
    return float(np.float32(value))  # the precision of a file


def _string_attr(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _func_attr(value: str | Func) -> Func:
    return Func(value) if isinstance(value, str) else value


_KIND_NAMES: Final = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "string": "a string",
    "func": "the name of a function",
}
_KIND_CONVERTERS: Final[dict[str, tuple[Any, Callable[[Any], Any]]]] = {
    "int": (int | np.integer, int),
    "float": (int | float | np.integer | np.floating, _float_attr),
    "bool": (bool | np.bool_, bool),
    "string": (str | bytes, _string_attr),
    "func": (str | Func, _func_attr),
}
