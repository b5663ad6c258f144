"""The feed language: `NAME=VALUE` options, and the arrays that they stand for.

VALUE  := "@" FILE.npy | "@" FILE.npz "[" KEY "]" | "@-"      an array from a file or stdin
        | TYPE "@" FILE                                        raw little-endian bytes
        | [TYPE ":"] JSON                                      numbers, true, NaN, "text", lists
        | [TYPE ":"] GENERATOR                                 zeros, ones, full(7), arange,
                                                               uniform(-1,1), normal(0,1)
TYPE   := f32, float32, DT_FLOAT, …, optionally with sizes: f32[2,3]
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy_format

from cfgraph.analysis.feeds_and_fetches import fed_tensor, is_input
from cfgraph.errors import CfgraphError, InvalidInput, UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.file_io import MAX_BYTES, read_path, read_stream, similar_file_hint
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import calls_of
from cfgraph.ir.names import did_you_mean, first_names
from cfgraph.ir.nested_text import parse_json
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve
from cfgraph.runtime.feeds.conversion import check_shape, feed_type, fit_to_tensor
from cfgraph.runtime.feeds.literals import GENERATORS, generate, parse_literal

_MAGIC: Final = b"\x93NUMPY"
_PICKLE: Final = b"\x80"
# of the entries of an archive that are no tensors: cfgraph.runtime.feeds.case_files
CASE_PREFIX: Final = "@"
SIGNATURES_HINT: Final = "--variables SAVED_MODEL provides the names of its signatures"
_JSON_HINT: Final = 'write names and values, as in {"x": [1.5, 2.5]}; or an .npz file'
_HEADERS: Final = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}


def read_bytes(path: str) -> bytes:
    """Read a file. Raises InvalidInput if it is missing, unreadable, or too large."""
    try:
        return read_path(Path(path))
    except InvalidInput as error:
        error.path = path
        raise
    except (OSError, ValueError) as error:  # a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        message = f"cannot read the file: {reason}"
        hint = similar_file_hint(Path(path)) if isinstance(error, FileNotFoundError) else None
        raise InvalidInput(message, path=path, hint=hint, code="CFG001") from None


def read_npy(path: str) -> Any:
    """The array of an .npy file. Raises InvalidInput for other content."""
    return decode_npy(read_bytes(path), path)


def decode_npy(data: bytes, path: str) -> Any:
    """The array in the bytes of an .npy file. Raises InvalidInput for other content."""
    if not data:
        raise InvalidInput("the file is empty", path=path, code="CFG002")
    if data[:1] == _PICKLE:
        raise _pickled(path)
    if not data.startswith(_MAGIC):
        raise InvalidInput("the file is not an .npy file", path=path, code="CFG030")
    stream = io.BytesIO(data)
    shape, fortran, dtype = _header(stream, path)
    if dtype.hasobject:
        raise _pickled(path)
    if dtype.fields or dtype.subdtype or dtype.kind in "mM":
        message = f"arrays of NumPy dtype {dtype} cannot be fed"
        raise InvalidInput(message, path=path, code="CFG030")
    count = math.prod(shape)
    actual, expected = len(data) - stream.tell(), count * dtype.itemsize
    if actual != expected:
        message = (
            f"an array of {list(shape)} {dtype.name} takes {expected} bytes, the file has {actual}"
        )
        hint = "the file may be truncated" if actual < expected else None
        raise InvalidInput(message, path=path, hint=hint, code="CFG030")
    flat = np.frombuffer(data, dtype, count, stream.tell())
    array = flat.reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), order="C", copy=True)


def _header(stream: IO[bytes], path: str) -> tuple[tuple[int, ...], bool, Any]:
    try:
        version = npy_format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"version {version[0]}.{version[1]}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers of Python 2
            shape, fortran, dtype = _HEADERS[version](stream)
        if any(size < 0 for size in shape):
            raise ValueError("a negative size")
    except Exception as error:  # NumPy's reader raises many kinds of errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"the header of the .npy file is damaged: {reason}"
        raise InvalidInput(message, path=path, code="CFG030") from None
    return shape, fortran, dtype


def _pickled(path: str) -> InvalidInput:
    message = "the file holds pickled Python objects, which are never loaded"
    hint = "save an array of numbers, booleans or bytes (dtype S)"
    return InvalidInput(message, path=path, hint=hint, code="CFG031")


def read_npz(
    path: str, is_read: Callable[[str], bool] = lambda key: True
) -> Iterator[tuple[str, Any]]:
    """The arrays of an .npz archive by key. Raises InvalidInput for other content."""
    archive = _read_archive(path)
    for name in archive.namelist():
        if is_read(key := name.removesuffix(".npy")):
            yield key, _member(archive, name, path)


def read_npz_key(path: str, key: str) -> Any:
    """One array of an .npz archive. Raises UsageError for an unknown key."""
    archive = _read_archive(path)
    keys = {name.removesuffix(".npy"): name for name in archive.namelist()}
    if key not in keys:
        hint = did_you_mean(key, keys) or f"its arrays: {', '.join(sorted(keys)) or 'none'}"
        raise UsageError(f"the archive has no array {key!r}", path=path, hint=hint, code="CFG032")
    return _member(archive, keys[key], path)


def _read_archive(path: str) -> zipfile.ZipFile:
    data = read_bytes(path)
    if data[:1] == _PICKLE:
        raise _pickled(path)
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        hint = "np.savez writes one; a .json file has an object of names and values"
        message = "the file is not an .npz archive"
        raise InvalidInput(message, path=path, hint=hint, code="CFG030") from None


def _member(archive: zipfile.ZipFile, name: str, path: str) -> Any:
    location = f"{path}[{name.removesuffix('.npy')}]"
    if archive.getinfo(name).file_size > MAX_BYTES:
        message = f"the array unpacks to more than {MAX_BYTES} bytes"
        raise InvalidInput(message, path=location, code="CFG002")
    reserve(archive.getinfo(name).file_size, f"the array {location}")
    try:
        data = archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, OSError) as error:
        message = f"the archive is damaged: {error}"
        raise InvalidInput(message, path=location, code="CFG030") from None
    return decode_npy(data, location)


# names that an error lists
_MAX_LISTED: Final = 5
_TYPED: Final = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?([:@])")
_GENERATED: Final = re.compile(rf"({'|'.join(GENERATORS)})(?:\((.*)\))?\Z", re.DOTALL)
_KEYED: Final = re.compile(r"(.+)\[([^\]]*)\]\Z", re.DOTALL)


def split_feed(text: str, subject: str = "feed") -> tuple[str, str]:
    """The name and the value of `NAME=VALUE`. Raises UsageError for other text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        message = f"{text!r} is not a valid {subject}"
        raise UsageError(message, hint="write NAME=VALUE, as in x=3.5 or x=@x.npy", code="CFG033")
    if not value.strip():
        message = f"{name.strip()} has no value"
        raise UsageError(message, hint=f"as in {name.strip()}=3.5", code="CFG033")
    return name.strip(), value.strip()


def _named_dtype(name: str) -> DType:
    try:
        dtype = DType.from_name(name)
        _ = dtype.numpy
    except (KeyError, TypeError):
        message = f"unknown dtype {name!r}"
        hint = "as in f32, f64, bf16, i32, i64, u8, bool, c64, str"
        raise UsageError(message, hint=hint, code="CFG033") from None
    return dtype


def _parse_sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        message = f"invalid shape [{text}]"
        raise UsageError(message, hint="write all sizes, as in f32[2,3]", code="CFG033")
    return tuple(int(part) for part in parts)


# a file with arrays, or the arrays themselves by name
FeedArchive = str | Mapping[str, Any]


def read_feeds(
    graph: Graph,
    feeds: Iterable[str] = (),
    archives: Iterable[FeedArchive] = (),
    seed: int = 0,
    names: Mapping[str, str] | None = None,
    skipped: Callable[[str], bool] = lambda name: False,
) -> dict[str, Any]:
    """The arrays to feed by tensor name, from the archives, then from each `NAME=VALUE`.

    `names` are further names of tensors, which take precedence; a `skipped` name is ignored.

    Raises UsageError for a name or value that does not fit the graph, and for two values of a
    tensor; InvalidInput for a file without arrays.
    """
    arrays: dict[str, Any] = {}
    texts: dict[str, str] = {}
    names = {} if names is None else names
    for archive in archives:
        arrays.update(_archive(graph, archive, names, skipped))
    for text in feeds:
        if text.startswith("@"):
            arrays.update(_archive(graph, text[1:], names, skipped))
            continue
        name, value = split_feed(text)
        if skipped(name):
            continue
        tensor = _feed_tensor(graph, name, names)
        array = read_value(value, graph, tensor, _subject(name, tensor, names), seed)
        if tensor.name in texts and not is_same_array(array, arrays[tensor.name]):
            raise repeated_value_error("feed", tensor, texts[tensor.name], text)
        texts[tensor.name] = text
        arrays[tensor.name] = array
    return arrays


def feed_names(feeds: Iterable[str], archives: Iterable[FeedArchive]) -> list[str]:
    """The names in `NAME=VALUE` and in archives. Raises InvalidInput for a file without arrays."""
    names, files = list[str](), [*archives]
    for text in feeds:
        if text.startswith("@"):
            files.append(text[1:])
        else:
            names.append(text.partition("=")[0].strip())
    keys = (key for archive in files for key in _archive_names(archive))
    return [*names, *(key for key in keys if not key.startswith(CASE_PREFIX))]


def is_same_array(a: Any, b: Any) -> bool:
    """True for arrays with the same bits, so that a printed feed may follow what it repeats."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype.hasobject else bool(a.tobytes() == b.tobytes())


def repeated_value_error(subject: str, tensor: Output, first: str, second: str) -> UsageError:
    """The error of two options `NAME=VALUE` for one tensor."""
    message = f"{subject} {tensor.name} has two values: {first} and {second}"
    return UsageError(message, hint="remove one of them", code="CFG033")


def read_value(text: str, graph: Graph, tensor: Output, subject: str, seed: int = 0) -> Any:
    """The array of a VALUE, converted for `tensor`.

    Errors start with `subject`.
    """
    dtype, shape = feed_type(graph, tensor)
    with _error_prefix(subject):
        array = _evaluate(text, dtype, shape, tensor.name, seed)
        return fit_to_tensor(array, dtype, shape)


@contextmanager
def _error_prefix(subject: str) -> Iterator[None]:
    """Put the name of the feed before the message of an error."""
    try:
        yield
    except CfgraphError as error:
        error.message = f"{subject}: {error.message}"
        raise


def _subject(name: str, tensor: Output, names: Mapping[str, str]) -> str:
    return f"feed {name if name in names else tensor.name}"


def _feed_tensor(graph: Graph, name: str, names: Mapping[str, str]) -> Output:
    complete = names.get(name, name)
    try:
        return fed_tensor(graph, complete)
    except UsageError as error:
        inputs = [*names] or [node.name for node in graph if is_input(node)]
        hint = did_you_mean(name, names) or _signature_input_hint(graph, name)
        hint = hint or _body_node_hint(graph, complete) or did_you_mean(name, graph.nodes)
        if hint is None:
            owner = "signature" if names else "graph"
            listed = f"inputs of the {owner}: {first_names(inputs, _MAX_LISTED)}"
            hint = listed if inputs else error.hint
        message = f"feed {name}: {error.message}"
        raise UsageError(message, hint=hint, code="CFG032") from None


def _body_node_hint(graph: Graph, name: str) -> str | None:
    """Hint for a name that begins with the node of a call, or None."""
    parts = name.split("/")
    callers = (graph.nodes.get("/".join(parts[:count])) for count in range(1, len(parts)))
    if not any(caller is not None and any(calls_of(caller)) for caller in callers):
        return None
    return "nodes of functions can be fed in the graph that `cfgraph lower` writes"


def _signature_input_hint(graph: Graph, name: str) -> str | None:
    """Hint with the placeholder `SIGNATURE_NAME` that TensorFlow 2 makes for an input, or None."""
    matches = [node.name for node in graph if is_input(node) and node.name.endswith(f"_{name}")]
    if not matches:
        return None
    listed = " or ".join(map(repr, matches[:_MAX_LISTED]))
    return f"did you mean {listed}? {SIGNATURES_HINT}"


def _archive(
    graph: Graph, archive: FeedArchive, names: Mapping[str, str], skipped: Callable[[str], bool]
) -> Iterator[tuple[str, Any]]:
    arrays: Iterable[tuple[str, Any]]
    if isinstance(archive, Mapping):
        origin, arrays = "", archive.items()
    else:
        origin = f", from {archive}"
        arrays = _json_archive(archive) if archive.endswith(".json") else read_npz(archive)
    for name, value in arrays:
        if name.startswith(CASE_PREFIX) or skipped(name):
            continue
        tensor = _feed_tensor(graph, name, names)
        with _error_prefix(f"{_subject(name, tensor, names)}{origin}"):
            dtype, shape = feed_type(graph, tensor)
            array = parse_literal(value, dtype) if origin.endswith(".json") else value
            yield tensor.name, fit_to_tensor(array, dtype, shape)


def _archive_names(archive: FeedArchive) -> list[str]:
    if isinstance(archive, Mapping):
        return [*archive]
    if archive.endswith(".json"):
        return [name for name, _ in _json_archive(archive)]
    return [name.removesuffix(".npy") for name in _read_archive(archive).namelist()]


def _json_archive(path: str) -> Iterator[tuple[str, str]]:
    try:
        values = parse_json(read_bytes(path).decode())
    except ValueError as error:
        raise InvalidInput(
            f"the file is not valid JSON: {error}", path=path, hint=_JSON_HINT, code="CFG030"
        ) from None
    if not isinstance(values, dict):
        message = "the file has no JSON object of names and values"
        raise InvalidInput(message, path=path, code="CFG030")
    for name, value in values.items():
        yield name, json.dumps(value)


def _evaluate(text: str, dtype: DType | None, shape: Shape, name: str, seed: int) -> Any:
    """The array of a VALUE for a tensor of a name, dtype, and shape."""
    if text.startswith("@"):
        return _read_array(text[1:])
    sizes = None
    typed = _TYPED.match(text)
    if typed:
        dtype, sizes = _named_dtype(typed[1]), _parse_sizes(typed[2])
        text = text[typed.end() :].strip()
    is_raw = typed is not None and typed[3] == "@"
    generated = None if is_raw else _GENERATED.match(text)
    if not is_raw and generated is None:
        array = parse_literal(text, dtype)
        if sizes is not None:
            check_shape(array.shape, Shape(sizes))
        return array
    source = generated[1] if generated else text
    if dtype is None:
        raise UsageError("the dtype is missing", hint=f"as in f32[2,3]:{source}", code="CFG033")
    if is_raw and dtype.is_object:
        raise UsageError("strings cannot be read from raw bytes", code="CFG034")
    sizes = _static_sizes(shape, source) if sizes is None else sizes
    if generated:
        return generate(source, generated[2], dtype, sizes, name, seed)
    return _read_raw(text, dtype, sizes)


def _read_array(text: str) -> Any:
    """The array of `FILE.npy`, `FILE.npz[KEY]`, or `-`."""
    keyed = _KEYED.match(text)
    if keyed and not keyed[1].endswith("/"):
        return read_npz_key(keyed[1], keyed[2])
    if text == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("standard input is not an .npy file", code="CFG033")
        return decode_npy(read_stream(sys.stdin.buffer), "standard input")
    if text.endswith(".npz"):
        archive = _read_archive(text)
        names = archive.namelist()
        if len(names) == 1:
            return _member(archive, names[0], text)
        keys = sorted(name.removesuffix(".npy") for name in names)
        hint = f"write @{text}[KEY]; it has {first_names(keys, _MAX_LISTED)}"
        raise UsageError("the archive has several arrays", hint=hint, code="CFG033")
    return read_npy(text)


def _read_raw(path: str, dtype: DType, sizes: tuple[int, ...]) -> Any:
    data = read_bytes(path)
    expected = math.prod(sizes) * dtype.numpy.itemsize
    if len(data) != expected:
        message = f"{dtype}{Shape(sizes)} takes {expected} bytes, the file has {len(data)}"
        raise InvalidInput(message, path=path, code="CFG030")
    return np.frombuffer(data, dtype.numpy.newbyteorder("<")).reshape(sizes)


def _static_sizes(shape: Shape, source: str) -> tuple[int, ...]:
    if shape.dims is not None and shape.is_full:
        return tuple(size for size in shape.dims if size is not None)
    message = f"the shape {shape} has unknown dimensions"
    raise UsageError(message, hint=f"write all of them, as in f32[2,3]:{source}", code="CFG033")
