"""Conversion of fed values to arrays of the dtype and shape of a tensor, without loss."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.analysis.feeds_and_fetches import declared_type, expected_types
from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import aligned_copy
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.resources import Resource

# bytes from which compiled code would copy an array once more
_MIN_ALIGNED: Final = 1 << 16
_ARRAY_LIKE: Final = (bool, int, float, complex, str, bytes, list, tuple, type(None))


class FedVariable(Variable):
    """The variable of a handle for which an array is fed."""

    __slots__ = ()


def feed_value(graph: Graph, tensor: Output, value: Any) -> Any:
    """The value that kernels receive for a fed one. Raises UsageError if it does not fit."""
    return FeedConverter(graph, tensor).convert(value)


class FeedConverter:
    """Conversion of fed values to arrays of a tensor's dtype, or to scalars.

    An array fed for a resource handle is the value of a new variable. Raises UsageError if the
    readers of a tensor without a dtype disagree about it.
    """

    def __init__(self, graph: Graph, tensor: Output) -> None:
        self.tensor = tensor
        self.dtype, self.shape = feed_type(graph, tensor)
        declared, _ = declared_type(graph, tensor)
        self.kind = declared.kind if declared else ""
        plain = self.dtype is not None and not self.dtype.is_object
        self.numpy = _numpy_dtype(self.dtype) if plain and self.dtype else None

    def convert(self, value: Any) -> Any:
        """The value that kernels receive for a fed one. Raises UsageError if it does not fit."""
        tensor, kind = self.tensor, self.kind
        if kind == "variant":
            return value
        is_array = type(value) is np.ndarray
        if kind == "resource" and not (is_array or _is_array_like(value)):
            if not isinstance(value, Resource):
                message = f"feed {tensor.name}: {type(value).__name__!r} is not a resource"
                hint = "feed an array, or a fetched resource"
                raise UsageError(message, code="CFG034", hint=hint)
            return value
        array: Any
        if is_array and value.dtype is self.numpy and value.ndim:
            if not self.shape.accepts(value.shape):
                _feed_array(tensor, value, self.dtype, self.shape)
            array = value.copy() if value.nbytes < _MIN_ALIGNED else aligned_copy(value)
        else:
            array = _feed_array(tensor, value, self.dtype, self.shape)
        if kind == "resource":
            dtype = self.dtype or DType.from_numpy(array.dtype)
            value_shape = self.shape if self.shape.is_full else Shape(array.shape)
            return FedVariable(dtype, value_shape, tensor.node.name, resource=True, value=array)
        return array


def _is_array_like(value: Any) -> bool:
    """True for values that convert to arrays; resources are objects that earlier runs made."""
    return isinstance(value, _ARRAY_LIKE) or hasattr(value, "__array__")


def _feed_array(tensor: Output, value: Any, dtype: DType | None, shape: Shape) -> Any:
    try:
        array = fit_to_tensor(value, dtype, shape)
    except UsageError as error:
        error.message = f"feed {tensor.name}: {error.message}"
        raise
    if array.ndim == 0:
        return array[()] if array.dtype != object else array.copy()
    shared = isinstance(value, np.ndarray) and np.may_share_memory(array, value)
    return array.copy() if shared else array


def feed_type(graph: Graph, tensor: Output) -> tuple[DType | None, Shape]:
    """Dtype and shape of a tensor's feed; for a variable's handle, of the variable's value.

    Raises UsageError if the readers of a tensor without a dtype disagree about it.
    """
    dtype, shape = declared_type(graph, tensor)
    if dtype is None and (types := sorted(map(str, expected_types(tensor)))):
        message = f"{tensor.name} has no dtype, and its readers expect {', '.join(types)}"
        raise UsageError(message, node=tensor.node, hint="feed what its readers compute")
    if dtype is not None and dtype.kind == "resource":
        return variable_of_handle(graph, tensor)
    return dtype, shape


def fit_to_tensor(array: Any, dtype: DType | None, shape: Shape = UNKNOWN_SHAPE) -> Any:
    """Convert an array to a dtype and shape. Raises UsageError if it does not fit."""
    array = np.asarray(array)
    if array.dtype.hasobject or dtype is not None:
        array = fit_dtype(array, dtype or DType.from_numpy(array.dtype))
    check_shape(array.shape, shape)
    return array


def _numpy_dtype(dtype: DType) -> Any:
    """The NumPy dtype of a fed tensor. Raises UsageError if there is none."""
    try:
        return dtype.numpy
    except TypeError as error:
        raise UsageError(str(error), code="CFG034") from None


def fit_dtype(array: Any, dtype: DType) -> Any:
    """Convert an array to `dtype`; only rounding to fewer digits is allowed.

    Raises UsageError for a value that would overflow, lose its fraction, or change its meaning.
    """
    actual, expected = array.dtype, _numpy_dtype(dtype)
    if dtype.is_object or actual.kind in "SUO":
        return _fit_strings(array, dtype)
    if actual == expected:
        return array
    if actual.kind == "V" and actual.names is None and actual.itemsize == expected.itemsize:
        return array.view(expected)  # how .npy files hold bfloat16 and float8
    source = _dtype_kind(actual)
    if source == dtype.kind == "bool":
        return array.astype(expected)
    if source not in _SOURCES.get(dtype.kind, ()):
        raise UsageError(f"the value has dtype {actual.name}, expected {dtype}", code="CFG034")
    if dtype.is_integer:
        return _fit_integers(array, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        fitted = array.astype(expected)
    lost = np.isfinite(array) & ~np.isfinite(fitted)
    if lost.any():
        value = array[lost].flat[0]
        raise UsageError(f"{value} is beyond the range of {dtype}", code="CFG034")
    if (np.isinf(array) & ~np.isinf(fitted)).any():
        raise UsageError(f"{dtype} has no infinity", code="CFG034")
    return fitted


_SOURCES: Final = {
    "int": ("int", "float"),
    "uint": ("int", "float"),
    "float": ("int", "float"),
    "complex": ("int", "float", "complex"),
}


def _dtype_kind(dtype: Any) -> str:
    try:
        kind = DType.from_numpy(dtype).kind
    except TypeError:
        return "none"
    return "int" if kind == "uint" else kind


def _fit_integers(array: Any, dtype: DType) -> Any:
    if _dtype_kind(array.dtype) == "float":
        array = array.astype(np.float64)
        if (bad := ~(array == np.trunc(array)) | np.isinf(array)).any():
            raise UsageError(f"{array[bad].flat[0]} is not a valid {dtype}", code="CFG034")
    if array.size:
        low, high = integer_limits(dtype)
        for value in (int(array.min()), int(array.max())):
            if not low <= value <= high:
                raise out_of_range_error(value, dtype)
    return array.astype(dtype.numpy)


def _fit_strings(array: Any, dtype: DType) -> Any:
    if dtype is not dtypes.string:
        raise UsageError(f"{_describe_elements(array)}, expected {dtype}", code="CFG034")
    if array.dtype.kind not in "SUO":
        message = f"the value has dtype {array.dtype.name}, expected {dtype}"
        raise UsageError(message, code="CFG034")
    strings = np.empty(array.shape, object)
    strings.reshape(-1)[:] = [_string_bytes(element, array) for element in array.flat]
    return strings


def _string_bytes(element: object, array: Any) -> bytes:
    if isinstance(element, bytes):
        return bytes(element)
    if not isinstance(element, str):
        raise UsageError(f"{_describe_elements(array)}, expected strings", code="CFG034")
    try:
        return element.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the text {element!a} is not valid Unicode", code="CFG034") from None


def _describe_elements(array: Any) -> str:
    """A description of elements that are not numbers."""
    items = array.flat if array.dtype.kind == "O" else ()
    other = next((value for value in items if not isinstance(value, str | bytes)), "")
    if other is None:
        return "the value is None" if array.ndim == 0 else "the value contains None"
    return "the value contains strings" if other == "" else f"the value is a {type(other).__name__}"


def check_shape(shape: tuple[int, ...], expected: Shape) -> None:
    """Raise UsageError, naming the dimension, for a value of another shape."""
    if expected.accepts(shape):
        return
    assert expected.dims is not None
    shapes = f"(expected {expected}, got {Shape(shape)})"
    if len(shape) != len(expected.dims):
        message = f"the shape is {Shape(shape)}, expected {expected}"
        raise UsageError(message, code="CFG035")
    dimension = next(
        dimension
        for dimension, (actual, size) in enumerate(zip(shape, expected.dims, strict=True))
        if size not in (None, actual)
    )
    message = (
        f"dimension {dimension} is {shape[dimension]}, expected {expected.dims[dimension]} {shapes}"
    )
    raise UsageError(message, code="CFG035")


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    if dtype.numpy.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return int(info.min), int(info.max)
    bits = int("".join(filter(str.isdigit, dtype.name)))  # int4 and the like, from ml_dtypes
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def out_of_range_error(value: int, dtype: DType) -> UsageError:
    """The error of an integer outside the range of its type."""
    low, high = integer_limits(dtype)
    return UsageError(f"{value} is out of range for {dtype} ({low} to {high})", code="CFG034")
