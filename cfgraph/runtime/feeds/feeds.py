"""Feeds: from `--feed` options and Python values to arrays that fit the graph."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from cfgraph.analysis.feeds_and_fetches import declared_type, fed_tensor, is_input
from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.errors import CfgraphError, InvalidInput, UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.names import first_names
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.variables import Variable
from cfgraph.runtime.feeds import npy
from cfgraph.runtime.feeds.generators import generate
from cfgraph.runtime.feeds.grammar import ValueSpec, parse_value, split_feed
from cfgraph.runtime.feeds.literals import check_shape, fit_dtype, parse_literal

# names that an error lists
_MAX_LISTED: Final = 5


def read_feeds(
    graph: Graph, feeds: Iterable[str] = (), archives: Iterable[str] = (), seed: int = 0
) -> dict[str, Any]:
    """The arrays to feed by tensor name: those of the archives, then each `NAME=VALUE`.

    Raises UsageError where a name or a value does not fit the graph, InvalidInput for a file that
    holds no arrays.
    """
    found: dict[str, Any] = {}
    for path in archives:
        found.update(_archive(graph, path))
    for text in feeds:
        if text.startswith("@"):
            found.update(_archive(graph, text[1:]))
            continue
        name, value = split_feed(text)
        tensor = _feed_tensor(graph, name)
        found[tensor.name] = read_value(value, graph, tensor, f"feed {tensor.name}", seed)
    return found


def read_value(text: str, graph: Graph, tensor: Output, what: str, seed: int = 0) -> Any:
    """The array that a VALUE says, as one that `tensor` can be given.

    Errors begin with `what`.
    """
    wanted, shape = feed_type(graph, tensor)
    with _ErrorPrefix(what):
        return fit_to_tensor(
            _evaluate(parse_value(text), wanted, shape, tensor.name, seed), wanted, shape
        )


def feed_type(graph: Graph, tensor: Output) -> tuple[DType | None, Shape]:
    """Type and shape of what a tensor is fed with; the handle of a variable with its value."""
    wanted, shape = declared_type(graph, tensor)
    if wanted is not None and wanted.kind == "resource":
        return variable_of_handle(graph, tensor)
    return wanted, shape


def fit_to_tensor(array: Any, wanted: DType | None, shape: Shape = UNKNOWN_SHAPE) -> Any:
    """An array in the wanted type and shape. Raises UsageError where it does not fit."""
    array = np.asarray(array)
    if array.dtype.hasobject or wanted is not None:
        array = fit_dtype(array, wanted or DType.from_numpy(array.dtype))
    check_shape(array.shape, shape)
    return array


class _ErrorPrefix:
    """Puts the name of the feed before the message of an error."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, CfgraphError):
            error.message = f"{self.what}: {error.message}"


def _feed_tensor(graph: Graph, name: str) -> Output:
    try:
        return fed_tensor(graph, name)
    except UsageError as error:
        inputs = [node.name for node in graph if is_input(node)]
        hint = error.hint or (
            f"the graph has {first_names(inputs, _MAX_LISTED)}" if inputs else None
        )
        message = f"feed {name}: {error.message}"
        raise UsageError(message, hint=hint, code="CFG032") from None


def _archive(graph: Graph, path: str) -> Iterator[tuple[str, Any]]:
    arrays = _json_archive(path) if path.endswith(".json") else npy.read_npz(path)
    for name, value in arrays:
        tensor = _feed_tensor(graph, name)
        with _ErrorPrefix(f"feed {tensor.name}, from {path}"):
            wanted, shape = feed_type(graph, tensor)
            array = parse_literal(value, wanted) if isinstance(value, str) else value
            yield tensor.name, fit_to_tensor(array, wanted, shape)


def _json_archive(path: str) -> Iterator[tuple[str, str]]:
    try:
        values = json.loads(npy.read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"this is no JSON: {error}", path=path, code="CFG030") from None
    if not isinstance(values, dict):
        message = "the file holds no JSON object of names and values"
        raise InvalidInput(message, path=path, code="CFG030")
    for name, value in values.items():
        yield name, json.dumps(value)


def _evaluate(spec: ValueSpec, wanted: DType | None, shape: Shape, name: str, seed: int) -> Any:
    array = _READERS[spec.form](spec, wanted, shape, name, seed)
    if spec.sizes is not None and spec.form != "generated":
        check_shape(array.shape, Shape(spec.sizes))
    return array


def _from_file(spec: ValueSpec, wanted: DType | None, shape: Shape, name: str, seed: int) -> Any:
    if spec.key is not None:
        return npy.read_npz_key(spec.text, spec.key)
    if spec.text == "-":
        if sys.stdin.isatty():
            raise UsageError("standard input is a terminal, not an .npy file", code="CFG033")
        return npy.decode_npy(sys.stdin.buffer.read(), "standard input")
    if spec.text.endswith(".npz"):
        arrays = dict(npy.read_npz(spec.text))
        if len(arrays) == 1:
            return next(iter(arrays.values()))
        hint = f"write @{spec.text}[KEY]; it has {first_names(sorted(arrays), _MAX_LISTED)}"
        raise UsageError("say which array of the archive", hint=hint, code="CFG033")
    return npy.read_npy(spec.text)


def _from_raw(spec: ValueSpec, wanted: DType | None, shape: Shape, name: str, seed: int) -> Any:
    assert spec.dtype is not None
    if spec.dtype.is_object:
        raise UsageError("strings have no raw form", code="CFG034")
    sizes = spec.sizes if spec.sizes is not None else _sizes(shape, spec)
    data = npy.read_bytes(spec.text)
    want = math.prod(sizes) * spec.dtype.numpy.itemsize
    if len(data) != want:
        message = f"{spec.dtype}{Shape(sizes)} takes {want} bytes, the file has {len(data)}"
        raise InvalidInput(message, path=spec.text, code="CFG030")
    return np.frombuffer(data, spec.dtype.numpy.newbyteorder("<")).reshape(sizes)


def _from_json(spec: ValueSpec, wanted: DType | None, shape: Shape, name: str, seed: int) -> Any:
    return parse_literal(spec.text, spec.dtype or wanted)


def _generated(spec: ValueSpec, wanted: DType | None, shape: Shape, name: str, seed: int) -> Any:
    dtype = spec.dtype or wanted
    if dtype is None:
        raise UsageError("say the type", hint=f"as in f32[2,3]:{spec.text}", code="CFG033")
    sizes = spec.sizes if spec.sizes is not None else _sizes(shape, spec)
    return generate(spec.text, spec.arguments, dtype, sizes, name, seed)


def _sizes(shape: Shape, spec: ValueSpec) -> tuple[int, ...]:
    if shape.dims is not None and shape.is_full:
        return tuple(size for size in shape.dims if size is not None)
    message = f"the shape {shape} leaves sizes open"
    raise UsageError(message, hint=f"write all of them, as in f32[2,3]:{spec.text}", code="CFG033")


_READERS: Final[dict[str, Callable[[ValueSpec, DType | None, Shape, str, int], Any]]] = {
    "file": _from_file,
    "raw": _from_raw,
    "json": _from_json,
    "generated": _generated,
}


_ARRAY_LIKE: Final = (bool, int, float, complex, str, bytes, list, tuple, type(None))


def feed_value(graph: Graph, item: Output, value: Any) -> Any:
    """What the kernels take of a fed value: an array of the tensor's type, a scalar of rank 0.

    An array that is fed for the handle of a resource is the value of a variable of its own.
    """
    wanted, shape = feed_type(graph, item)
    kind = item.dtype.kind if item.dtype else ""
    if kind == "variant" or (kind == "resource" and not _is_array_like(value)):
        return value
    array = _feed_array(item, value, wanted, shape)
    if kind == "resource":
        dtype = wanted or DType.from_numpy(array.dtype)
        held = Shape(array.shape)
        return Variable(dtype, held, item.node.name, resource=True, value=array)
    return array


def _is_array_like(value: Any) -> bool:
    """True for what makes an array; resources are objects that this and other runs made."""
    return isinstance(value, _ARRAY_LIKE) or hasattr(value, "__array__")


def _feed_array(item: Output, value: Any, wanted: DType | None, shape: Shape) -> Any:
    try:
        array = fit_to_tensor(value, wanted, shape)
    except UsageError as error:
        error.message = f"feed {item.name}: {error.message}"
        raise
    if array.ndim == 0:
        return array[()] if array.dtype != object else array.copy()
    shared = isinstance(value, np.ndarray) and np.may_share_memory(array, value)
    return array.copy() if shared else array
