"""Arrays from .npy and .npz files, with sizes checked first and nothing unpickled."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy_format

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.names import did_you_mean

MAX_BYTES: Final = 2 << 30
_MAGIC: Final = b"\x93NUMPY"
_PICKLE: Final = b"\x80"
_HEADERS: Final = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}


def read_bytes(path: str) -> bytes:
    """Read a file. Raises InvalidInput if it is missing, unreadable, or too large."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"cannot read the file: {error.strerror}"
        raise InvalidInput(message, path=path, code="CFG001") from None
    if len(data) > MAX_BYTES:
        message = f"the file has more than {MAX_BYTES} bytes"
        raise InvalidInput(message, path=path, code="CFG002")
    return data


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


def read_npz(path: str) -> Iterator[tuple[str, Any]]:
    """The arrays of an .npz archive by key. Raises InvalidInput for other content."""
    archive = _archive(path)
    for name in archive.namelist():
        yield name.removesuffix(".npy"), _member(archive, name, path)


def read_npz_key(path: str, key: str) -> Any:
    """One array of an .npz archive. Raises UsageError for an unknown key."""
    archive = _archive(path)
    keys = {name.removesuffix(".npy"): name for name in archive.namelist()}
    if key not in keys:
        hint = did_you_mean(key, keys) or f"it has {', '.join(sorted(keys)) or 'no arrays'}"
        raise UsageError(f"the archive has no array {key!r}", path=path, hint=hint, code="CFG032")
    return _member(archive, keys[key], path)


def _archive(path: str) -> zipfile.ZipFile:
    data = read_bytes(path)
    if data[:1] == _PICKLE:
        raise _pickled(path)
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        message = f"the file is not an .npz archive: {error}"
        raise InvalidInput(message, path=path, code="CFG030") from None


def _member(archive: zipfile.ZipFile, name: str, path: str) -> Any:
    location = f"{path}[{name.removesuffix('.npy')}]"
    if archive.getinfo(name).file_size > MAX_BYTES:
        message = f"the array unpacks to more than {MAX_BYTES} bytes"
        raise InvalidInput(message, path=location, code="CFG002")
    try:
        data = archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, OSError) as error:
        message = f"the archive is damaged: {error}"
        raise InvalidInput(message, path=location, code="CFG030") from None
    return decode_npy(data, location)
