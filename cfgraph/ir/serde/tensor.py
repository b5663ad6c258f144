"""Conversion of tensors to and from TensorProto: typed lists, raw content, and element layout."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.errors import InvalidInput
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue, repeated_element
from cfgraph.ir.dtypes import DType
from cfgraph.ir.node import make_pair
from cfgraph.ir.serde.file_contents import content_digest, content_of, content_size, file_of
from cfgraph.ir.serde.varints import read_varints, write_varint
from cfgraph.ir.serde.wire import message_bytes
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve
from cfgraph.proto import tensor_pb2

MAX_ELEMENTS: Final = 1 << 31
# NumPy's maximum number of dimensions
MAX_RANK: Final = 64
# a small file must not fill the memory with repeats of a last element
_MAX_REPEATED_BYTES: Final = 1 << 30

# more repeats of one element are written as one
_MAX_WRITTEN_REPEATS: Final = 1 << 20

# field that lists the elements, by the number of the dtype
_LIST_FIELDS: Final[dict[int, str]] = (
    {1: "float_val", 2: "double_val", 7: "string_val", 8: "scomplex_val", 9: "int64_val"}
    | {10: "bool_val", 18: "dcomplex_val", 14: "half_val", 19: "half_val"}
    | {20: "resource_handle_val", 21: "variant_val", 22: "uint32_val", 23: "uint64_val"}
    | dict.fromkeys((3, 4, 5, 6, 11, 12, 13, 15, 16, 17, 29, 30, 31, 32), "int_val")
    | dict.fromkeys((24, 25, 26, 27, 28, 33), "float8_val")
)


class TensorHeader(NamedTuple):
    """The declaration of a TensorProto: type, sizes, and number of elements."""

    dtype: DType
    sizes: tuple[int, ...]
    elements: int


class EncodedTensor:
    """A TensorProto, decoded on demand; it must not be changed, since its header is checked once.

    Functions and their copies share their tensors.
    """

    __slots__ = ("_digest", "_encoded", "_file", "_header", "_is_checked", "_shape")

    def __init__(self, proto: Any) -> None:
        self._encoded: Any = proto
        self._file = file_of(proto)
        self._header: TensorHeader | None = None
        self._shape: Shape | None = None
        self._digest: bytes | None = None
        self._is_checked = False

    def detach(self) -> None:
        """Refer to the bytes of the tensor instead of the message that it is part of."""
        self._encoded = self._encoded.SerializeToString(deterministic=True)

    @property
    def proto(self) -> Any:
        """The message."""
        encoded = self._encoded
        if type(encoded) is bytes:
            return tensor_pb2.TensorProto.FromString(encoded)
        return encoded

    def dtype(self) -> DType:
        """The element type as declared."""
        header = self._header
        return DType.from_number(self.proto.dtype) if header is None else header.dtype

    def shape(self) -> Shape:
        """The shape as declared."""
        if self._shape is None:
            self._shape = decode_shape(self.proto.tensor_shape)
        return self._shape

    def array(self) -> Any:
        """The content. Raises InvalidInput if it contradicts dtype or shape."""
        return decode_tensor(self.proto, self._header)

    def check(self) -> None:
        """Raise InvalidInput if content and declaration contradict each other."""
        if self._is_checked:
            return
        proto = self.proto
        header = self._header = _checked_header(proto)
        if header.elements and header.dtype.is_object:
            content = proto.tensor_content
            if content:
                _string_lengths(bytes(content_of(content)), header.dtype, header.elements)
        self._is_checked = True

    def digest(self) -> bytes | None:
        """A digest of raw content that is left in a file, else None."""
        if self._digest is None:
            self._digest = content_digest(self.proto.tensor_content)
        return self._digest

    def encoded(self) -> bytes:
        """The bytes of the message."""
        return message_bytes(self.proto)


def decode_shape(proto: Any) -> Shape:
    """The Shape of a TensorShapeProto."""
    if proto.unknown_rank:
        return Shape(None)
    dims = proto.dim
    sizes = [None if dim.size < 0 else dim.size for dim in dims]
    names = [dim.name for dim in dims]
    return Shape(sizes, names) if any(names) else Shape(sizes)


def encode_shape(shape: Shape, proto: Any) -> None:
    """Write a Shape into an empty TensorShapeProto."""
    if shape.dims is None:
        proto.unknown_rank = True
        return
    for index, size in enumerate(shape.dims):
        dim = proto.dim.add()
        dim.size = -1 if size is None else size
        if shape.names:
            dim.name = shape.names[index]


def _checked_header(proto: Any) -> TensorHeader:
    """The header of a TensorProto; the content is not decoded.

    Raises InvalidInput for an invalid type or shape, or content of the wrong length.
    """
    dtype = DType.from_number(proto.dtype)
    declared = proto.tensor_shape
    if dtype.base.number not in _LIST_FIELDS or dtype.is_ref:
        raise InvalidInput(f"a tensor cannot have the type {dtype.name}", code="CFG020")
    dims = declared.dim
    sizes = tuple([dim.size for dim in dims]) if dims else ()
    if declared.unknown_rank or len(sizes) > MAX_RANK or (sizes and min(sizes) < 0):
        raise _shape_error(decode_shape(declared))
    count = math.prod(sizes)
    if count > MAX_ELEMENTS or (not count and math.prod(filter(None, sizes)) > MAX_ELEMENTS):
        shape = decode_shape(declared)
        raise InvalidInput(f"a tensor of shape {shape} has too many elements", code="CFG021")
    if count and not dtype.is_object:
        size, expected = content_size(proto.tensor_content), count * dtype.numpy.itemsize
        if size and size != expected:
            message = (
                f"a tensor of type {dtype} and shape {decode_shape(declared)} has {size} bytes"
            )
            raise InvalidInput(f"{message}, expected {expected}", code="CFG022")
    header: TensorHeader = make_pair(TensorHeader, (dtype, sizes, count))
    return header


def _shape_error(shape: Shape) -> InvalidInput:
    """The error for a shape that no tensor can have."""
    if shape.rank is not None and shape.rank > MAX_RANK:
        return InvalidInput(f"a tensor cannot have {shape.rank} dimensions", code="CFG021")
    return InvalidInput(f"a tensor cannot have the unknown shape {shape}", code="CFG021")


def _list_field_name(dtype: DType) -> str:
    """Name of the field that lists the elements of a type."""
    return _LIST_FIELDS[dtype.number]


def decode_tensor(proto: Any, header: TensorHeader | None = None) -> Any:
    """Decode a TensorProto by the rules of the format; a `header` has been checked.

    Content takes precedence over the typed list. A short list repeats its last element, an empty
    one means zeros, a long one is cut.
    """
    dtype, sizes, count = header or _checked_header(proto)
    if count == 0:
        return np.zeros(sizes, dtype.numpy)
    content = proto.tensor_content
    if content:
        return _array_from_content(content, dtype, count).reshape(sizes)
    flat = _array_from_list(getattr(proto, _list_field_name(dtype)), dtype)[:count]
    return _repeat_last(flat, dtype, sizes, count)


def _array_from_content(content: bytes, dtype: DType, count: int) -> Any:
    data = content_of(content)
    if not dtype.is_object:
        return np.frombuffer(memoryview(data).toreadonly(), dtype.numpy)
    strings = _strings_from_content(bytes(data), dtype, count)
    return _object_array(list(map(_variant, strings)) if dtype is dtypes.variant else strings)


def _variant(data: bytes) -> Any:
    """The message of one variant. Raises InvalidInput if the bytes are none."""
    from google.protobuf.message import DecodeError

    try:
        return tensor_pb2.VariantTensorDataProto.FromString(data)
    except DecodeError:
        raise InvalidInput("a variant of the constant is invalid", code="CFG021") from None


def _object_array(items: list[Any]) -> Any:
    flat = np.empty(len(items), object)
    flat[:] = items
    return flat


def _array_from_list(values: Any, dtype: DType) -> Any:
    """Elements of a typed list, as a flat array."""
    if dtype.is_object:
        return _object_array(list(values))
    if dtype.number in (14, 19):
        return np.array(values, np.int64).astype(np.uint16).view(dtype.numpy)
    if isinstance(values, bytes):
        return np.frombuffer(values, np.uint8).view(dtype.numpy)
    if dtype.is_complex:
        component = np.float32 if dtype is dtypes.complex64 else np.float64
        pairs = np.array(values, component)
        return pairs[: len(pairs) // 2 * 2].view(dtype.numpy)
    # a slice is a list, which NumPy reads twice as fast as a repeated field
    return np.array(values[:], _list_dtype(dtype)).astype(dtype.numpy)


def _repeat_last(flat: Any, dtype: DType, sizes: tuple[int, ...], count: int) -> Any:
    """Repeat the last element up to `count`; a single element becomes a broadcast view."""
    if len(flat) == count:
        return flat.reshape(sizes)
    rest = np.empty((), flat.dtype)
    rest[()] = _padding_value(flat, dtype)
    if len(flat) <= 1 and dtype is not dtypes.resource:
        if dtype.is_object:
            return np.broadcast_to(rest, sizes)
        repeated = np.ndarray(sizes, rest.dtype, rest, strides=(0,) * len(sizes))
        repeated.flags.writeable = False  # as broadcast_to does, which takes four times as long
        return repeated
    if count * flat.itemsize > _MAX_REPEATED_BYTES:
        message = f"a tensor of shape {Shape(sizes)} lists only {len(flat)} of its elements"
        raise InvalidInput(message, code="CFG021")
    reserve(count * flat.itemsize, f"a tensor of shape {Shape(sizes)}")
    return np.concatenate([flat, np.broadcast_to(rest, count - len(flat))]).reshape(sizes)


def _padding_value(flat: Any, dtype: DType) -> Any:
    if len(flat) and dtype is not dtypes.resource:
        return flat[-1]
    return b"" if dtype.is_object else flat.dtype.type(0)


def _string_lengths(content: bytes, dtype: DType, count: int) -> tuple[list[int], int]:
    """The lengths of strings, and the offset of the first: all lengths precede all strings."""
    if dtype not in (dtypes.string, dtypes.variant):
        raise InvalidInput(f"a constant of type {dtype} has no value", code="CFG020")
    try:
        lengths, offset = read_varints(content, count)
    except ValueError:
        raise InvalidInput("the content of a string tensor is truncated", code="CFG022") from None
    if offset + sum(lengths) != len(content):
        raise InvalidInput("the content of a string tensor has the wrong length", code="CFG022")
    return lengths, offset


def _strings_from_content(content: bytes, dtype: DType, count: int) -> list[bytes]:
    """Split string content."""
    lengths, offset = _string_lengths(content, dtype, count)
    items = []
    for length in lengths:
        items.append(content[offset : offset + length])
        offset += length
    return items


def encode_tensor(tensor: TensorValue, proto: Any) -> None:
    """Write a tensor into an empty TensorProto; an encoded tensor is copied."""
    if isinstance(tensor.source, EncodedTensor):
        proto.CopyFrom(tensor.source.proto)
    else:
        write_array(np.asarray(tensor.array), tensor.dtype, proto)


def write_array(array: Any, dtype: DType, proto: Any) -> None:
    """Write an array into an empty TensorProto: one element as a list, more as raw content.

    Many repeats of one element are also written as one, which a reader repeats.
    """
    if dtype.is_object and dtype is not dtypes.string:
        raise InvalidInput(f"a constant of type {dtype} cannot be written", code="CFG020")
    proto.dtype = dtype.number
    proto.tensor_shape.SetInParent()
    encode_shape(Shape(array.shape), proto.tensor_shape)
    repeats = array.size > _MAX_WRITTEN_REPEATS and repeated_element(array) is not None
    if array.size == 1 or repeats or dtype is dtypes.string:
        _write_list(array.reshape(-1)[:1] if repeats else array.reshape(-1), dtype, proto)
    else:
        proto.tensor_content = np.ascontiguousarray(array).tobytes()


def tensor_to_bytes(array: Any, dtype: DType) -> bytes:
    """Serialize an array as a TensorProto with raw content, as TensorFlow's ops do.

    The content of strings is their lengths as varints, then their bytes.
    """
    proto: Any = tensor_pb2.TensorProto()
    proto.dtype = dtype.number
    proto.tensor_shape.SetInParent()
    encode_shape(Shape(array.shape), proto.tensor_shape)
    if dtype is dtypes.string:
        items = [_as_bytes(item) for item in array.reshape(-1).tolist()]
        proto.tensor_content = b"".join([*(write_varint(len(item)) for item in items), *items])
    else:
        proto.tensor_content = np.ascontiguousarray(array).tobytes()
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def tensor_from_bytes(data: bytes) -> tuple[Any, DType]:
    """Return the array and the type of a serialized TensorProto. Raises InvalidInput."""
    from google.protobuf.message import DecodeError

    try:
        proto = tensor_pb2.TensorProto.FromString(data)
    except DecodeError:
        raise InvalidInput("a serialized tensor is truncated or corrupt", code="CFG021") from None
    return decode_tensor(proto), DType.from_number(proto.dtype)


def _write_list(flat: Any, dtype: DType, proto: Any) -> None:
    """Write flat elements into the typed list of a TensorProto."""
    name = _list_field_name(dtype)
    if name == "float8_val":
        proto.float8_val = flat.tobytes()
    elif name == "half_val":
        proto.half_val.extend(flat.view(np.uint16).tolist())
    elif dtype.is_complex:
        getattr(proto, name).extend(flat.view(flat.real.dtype).tolist())
    elif dtype is dtypes.string:
        proto.string_val.extend(_as_bytes(item) for item in flat.tolist())
    else:
        getattr(proto, name).extend(flat.astype(_list_dtype(dtype), copy=False).tolist())


def _list_dtype(dtype: DType) -> Any:
    """The NumPy type of a typed list, before the cast to the element type."""
    if dtype is dtypes.uint64:
        return np.uint64
    return np.int64 if dtype.is_integer else dtype.numpy


def _as_bytes(item: Any) -> bytes:
    return item.encode() if isinstance(item, str) else bytes(item)


# larger tensors are written in base64
_MAX_LITERAL_ELEMENTS: Final = 64


class TensorLayout(NamedTuple):
    """The layout of a tensor in the text format.

    `form` is `dense` (an array, encoded as by `encode_tensor`), `list` (the flat elements of the
    typed list, whose number may differ from the shape) or `content` (raw bytes).
    """

    dtype: DType
    dims: tuple[int, ...]
    form: str
    values: Any


def tensor_layout(tensor: TensorValue) -> TensorLayout | None:
    """The layout of a tensor, or None if no layout reproduces its encoding."""
    proto = tensor_pb2.TensorProto()
    encode_tensor(tensor, proto)
    try:
        layout = _guess_layout(proto)
    except InvalidInput:
        return None
    same = layout is not None and message_bytes(_proto_from_layout(layout)) == message_bytes(proto)
    return layout if same else None


def _guess_layout(proto: Any) -> TensorLayout | None:
    dtype, dims, count = _checked_header(proto)
    if dtype.is_object and dtype is not dtypes.string:
        return None
    if proto.tensor_content:
        if dtype.is_object or count < 2 or count > _MAX_LITERAL_ELEMENTS:
            return TensorLayout(dtype, dims, "content", bytes(content_of(proto.tensor_content)))
        array = np.frombuffer(proto.tensor_content, dtype.numpy).reshape(dims)
        return TensorLayout(dtype, dims, "dense", array)
    values = getattr(proto, _list_field_name(dtype))
    if len(values) > _MAX_LITERAL_ELEMENTS * 2:
        return None
    flat = _array_from_list(values, dtype)
    dense = len(flat) == count and (count == 1 or (dtype is dtypes.string and count > 1))
    return (
        TensorLayout(dtype, dims, "dense", flat.reshape(dims))
        if dense
        else TensorLayout(dtype, dims, "list", flat)
    )


def tensor_from_layout(layout: TensorLayout) -> TensorValue:
    """The encoded tensor of a layout.

    Raises InvalidInput if the content contradicts dtype or shape; lengths of strings are read when
    they are needed, as from other files.
    """
    proto = _proto_from_layout(layout)
    _checked_header(proto)
    return TensorValue(source=EncodedTensor(proto))


def _proto_from_layout(layout: TensorLayout) -> Any:
    proto: Any = tensor_pb2.TensorProto()
    if layout.form == "dense":
        write_array(layout.values, layout.dtype, proto)
        return proto
    proto.dtype = layout.dtype.number
    proto.tensor_shape.SetInParent()
    encode_shape(Shape(layout.dims), proto.tensor_shape)
    if layout.form == "content":
        proto.tensor_content = layout.values
    else:
        _write_list(layout.values, layout.dtype, proto)
    return proto
