"""Values as bytes: arrays of messages, and what a Send passes to a Recv in another process.

A value is a head, which describes it, and a payload, the elements of its arrays:

    head     tag, then for an array its element type, rank, and dimensions
    payload  the elements, each array at a multiple of 16 bytes

No pickle: the bytes of a link may come from anyone who reaches its port. `decode` accepts exactly
what `encode` writes, and raises DecodeError for anything else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import prod
from typing import Any, Final

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.optional import OptionalVariant
from cfgraph.ops.families.tensor_list import TensorList

UNSENDABLE_CODE: Final = "CFG722"
_ALIGNMENT: Final = 16
_MAX_DEPTH: Final = 64
_MAX_RANK: Final = 64
_NONE, _ARRAY, _SCALAR, _BYTES, _OBJECTS, _LIST, _OPTIONAL, _EMPTY_OPTIONAL = range(8)
_NUMBERS: Final = (np.number, np.bool_)
_DTYPE: Final = struct.Struct("<BH")
_SIZE: Final = struct.Struct("<q")
_Buffer = bytes | memoryview


class DecodeError(Exception):
    """Bytes that no worker has sent."""


def encode(value: Any) -> tuple[bytes, list[_Buffer]]:
    """The head and the parts of the payload of a value; None is a dead token.

    Arrays are not copied unless their elements are apart. Raises Unsupported for a handle of a
    resource, which refers to memory of its process.
    """
    if isinstance(value, _NUMBERS):
        return _start(_SCALAR, value.dtype) + value.tobytes(), []
    return encode_all((value,))


def encode_all(values: Iterable[Any]) -> tuple[bytes, list[_Buffer]]:
    """The head and the parts of the payload of several values, as those of `encode`."""
    encoder = _Encoder()
    for value in values:
        encoder.write(value)
    return bytes(encoder.head), encoder.payload


@cache
def _start(tag: int, dtype: Any) -> bytes:
    """The start of the head of an array or scalar of this type."""
    return _DTYPE.pack(tag, DType.from_numpy(dtype).number)


@cache
def _scalar_dtypes() -> dict[bytes, Any]:
    """The dtypes of scalars, by the start of their head."""
    kinds = [np.dtype(kind) for kind in (*np.typecodes["AllInteger"], *"?efdFD")]
    return {_start(_SCALAR, dtype): dtype for dtype in kinds}


class _Encoder:
    def __init__(self) -> None:
        self.head = bytearray()
        self.payload: list[_Buffer] = []

    def write(self, value: Any) -> None:
        """Encode a value, and append it to the message."""
        if value is None:
            self.head.append(_NONE)
        elif isinstance(value, np.ndarray):
            self._write_array(value)
        elif isinstance(value, np.generic) and not isinstance(value, np.object_ | np.flexible):
            self.head += _start(_SCALAR, value.dtype)
            self.head += value.tobytes()
        elif isinstance(value, bytes | str):
            data = value if isinstance(value, bytes) else value.encode()
            self.head.append(_BYTES)
            self.head += _SIZE.pack(len(data))
            self._append(data, len(data))
        elif isinstance(value, TensorList):
            items = value.all()
            self.head += _DTYPE.pack(_LIST, value.element_dtype.number)
            self._write_dims(value.element_shape.dims)
            self.head += _SIZE.pack(value.max_elements) + _SIZE.pack(len(items))
            for item in items:
                self.write(item)
        elif isinstance(value, OptionalVariant):
            self._write_optional(value)
        else:
            message = f"{value!r} cannot be sent to another process"
            hint = "place the nodes that use it on devices of one worker"
            raise Unsupported(message, hint=hint, code=UNSENDABLE_CODE)

    def _write_array(self, value: Any) -> None:
        if value.dtype.hasobject:
            self.head.append(_OBJECTS)
            self._write_dims(value.shape)
            for item in value.flat:
                self.write(item)
            return
        self.head += _start(_ARRAY, value.dtype)
        self._write_dims(value.shape)
        if value.nbytes:
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
            self._append(data, value.nbytes)

    def _append(self, data: _Buffer, size: int) -> None:
        """Append to the payload, with the padding before the next part."""
        self.payload.append(data)
        if padding := -size % _ALIGNMENT:
            self.payload.append(bytes(padding))

    def _write_dims(self, dims: tuple[int | None, ...] | None) -> None:
        """Append dimensions; -1 is unknown, also as a rank."""
        if dims is None:
            self.head += _SIZE.pack(-1)
            return
        sizes = [-1 if size is None else size for size in dims]
        self.head += struct.pack(f"<{1 + len(sizes)}q", len(sizes), *sizes)

    def _write_optional(self, value: OptionalVariant) -> None:
        if value.values is None:
            self.head.append(_EMPTY_OPTIONAL)
            return
        self.head.append(_OPTIONAL)
        self.head += _SIZE.pack(len(value.values))
        for item in value.values:
            self.write(item)


def decode(head: bytes, payload: Any) -> Any:
    """The value of a head and its payload, an array of bytes that the value may share.

    Raises DecodeError for bytes that `encode` does not write.
    """
    dtype = _scalar_dtypes().get(head[: _DTYPE.size])
    if dtype is not None and len(head) == _DTYPE.size + dtype.itemsize and not len(payload):
        return np.frombuffer(head, dtype, 1, _DTYPE.size)[0]
    values = decode_all(head, payload)
    if len(values) > 1:
        raise DecodeError("malformed value: the message is longer than its value")
    return values[0]


def decode_all(head: bytes | memoryview, payload: Any) -> list[Any]:
    """The values of a head and their payload, as those of `decode`."""
    decoder = _Decoder(memoryview(head), payload)
    values: list[Any] = []
    try:
        while not values or decoder.position < len(head):
            values.append(decoder.read(0))
    except (struct.error, IndexError, KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"malformed value: {error}") from None
    if decoder.position != len(head) or decoder.offset != len(payload):
        raise DecodeError("malformed value: the payload is longer than its values")
    return values


class _Decoder:
    def __init__(self, head: memoryview, payload: Any) -> None:
        self.head, self.payload = head, payload
        self.position = self.offset = 0

    def read(self, depth: int) -> Any:
        """Decode the next value of the message."""
        if depth > _MAX_DEPTH:
            raise DecodeError("malformed value: nested too deeply")
        return _READERS[self.head[self.position]](self, depth)

    def _skip_tag(self) -> None:
        self.position += 1

    def _number(self) -> int:
        (number,) = _SIZE.unpack_from(self.head, self.position)
        self.position += _SIZE.size
        return int(number)

    def _dtype(self) -> DType:
        _, number = _DTYPE.unpack_from(self.head, self.position)
        self.position += _DTYPE.size
        return DType.from_number(number)

    def _count(self) -> int:
        """A number of values, each of which takes at least one byte of the head."""
        count = self._number()
        if not 0 <= count <= len(self.head) - self.position:
            raise DecodeError(f"malformed value: {count} elements")
        return count

    def _dims(self) -> tuple[int, ...] | None:
        rank = self._number()
        if rank == -1:
            return None
        if not 0 <= rank <= _MAX_RANK:
            raise DecodeError(f"malformed value: rank {rank}")
        dims = struct.unpack_from(f"<{rank}q", self.head, self.position)
        self.position += _SIZE.size * rank
        return dims

    def _known_dims(self) -> tuple[int, ...]:
        dims = self._dims()
        if dims is None or min(dims, default=0) < 0:
            raise DecodeError("malformed value: unknown dimensions")
        return dims

    def _skip(self, size: int) -> int:
        """Pass the next bytes of the payload, and their padding; returns their place."""
        start, end = self.offset, self.offset + size
        if end > len(self.payload):
            raise DecodeError("malformed value: the payload is too short")
        self.offset = min(end + -size % _ALIGNMENT, len(self.payload))
        return start

    def none(self, _: int) -> None:
        """A dead token, or an element of a list without a value."""
        self._skip_tag()

    def array(self, _: int) -> Any:
        """An array that shares the payload."""
        dtype, dims = self._dtype(), self._known_dims()
        element = np.dtype(dtype.numpy)
        if element.hasobject:
            raise DecodeError(f"malformed value: an array of {dtype}")
        reserve_array(dims, element.itemsize, "a received value")
        offset = self._skip(prod(dims) * element.itemsize)
        return np.ndarray(dims, element, self.payload, offset)

    def scalar(self, _: int) -> Any:
        """A scalar, whose bytes are in the head."""
        element = np.dtype(self._dtype().numpy)
        if element.hasobject:
            raise DecodeError("malformed value: a scalar without a number")
        (value,) = np.frombuffer(self.head[self.position :], element, 1)
        self.position += element.itemsize
        return value

    def text(self, _: int) -> bytes:
        """A string."""
        self._skip_tag()
        size = self._number()
        if size < 0:
            raise DecodeError(f"malformed value: a string of {size} bytes")
        start = self._skip(size)
        return bytes(self.payload[start : start + size])

    def objects(self, depth: int) -> Any:
        """An array of strings or variants."""
        self._skip_tag()
        dims = self._known_dims()
        count = prod(dims)
        if count > len(self.head) - self.position:
            raise DecodeError(f"malformed value: {count} elements")
        array = np.empty(count, object)
        for index in range(count):
            array[index] = self.read(depth + 1)
        return array.reshape(dims)

    def tensor_list(self, depth: int) -> TensorList:
        """A tensor list."""
        dtype, dims = self._dtype(), self._dims()
        shape = Shape(None if dims is None else tuple(None if n < 0 else n for n in dims))
        most = self._number()
        return TensorList(dtype, shape, list(self._items(depth)), most)

    def optional(self, depth: int) -> OptionalVariant:
        """An optional with values."""
        self._skip_tag()
        return OptionalVariant(tuple(self._items(depth)))

    def empty_optional(self, _: int) -> OptionalVariant:
        """An optional without a value."""
        self._skip_tag()
        return OptionalVariant(None)

    def _items(self, depth: int) -> Iterator[Any]:
        for _ in range(self._count()):
            yield self.read(depth + 1)


_READERS: Final[Mapping[int, Callable[[_Decoder, int], Any]]] = {
    _NONE: _Decoder.none,
    _ARRAY: _Decoder.array,
    _SCALAR: _Decoder.scalar,
    _BYTES: _Decoder.text,
    _OBJECTS: _Decoder.objects,
    _LIST: _Decoder.tensor_list,
    _OPTIONAL: _Decoder.optional,
    _EMPTY_OPTIONAL: _Decoder.empty_optional,
}
