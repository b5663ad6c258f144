"""Encoded variants in constants: the type that wrote them, its metadata, and their tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from cfgraph.errors import InvalidInput
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde.tensor import decode_shape, decode_tensor
from cfgraph.ir.serde.varints import read_varints
from cfgraph.ir.shapes import Shape
from cfgraph.proto.tensor_shape_pb2 import TensorShapeProto


class EncodedVariant(NamedTuple):
    """One variant as in a file; a tensor without a type is None."""

    type_name: str
    metadata: bytes
    tensors: list[Any]


def encoded_variant(message: Any) -> EncodedVariant:
    """Decode a VariantTensorDataProto. Raises InvalidInput for invalid tensors."""
    tensors = [decode_tensor(tensor) if tensor.dtype else None for tensor in message.tensors]
    return EncodedVariant(message.type_name, message.metadata, tensors)


class ListMetadata(NamedTuple):
    """The metadata of a list of tensors."""

    missing: list[int]
    dtype: DType
    max_elements: int
    shape: Shape


def list_metadata(metadata: bytes) -> ListMetadata:
    """Decode the positions without a tensor, the type, the limit, and the shape of elements.

    Raises InvalidInput if the bytes end early or contain no shape.
    """
    from google.protobuf.message import DecodeError

    try:
        (count,), start = read_varints(metadata, 1)
        numbers, length = read_varints(metadata[start:], min(count, len(metadata)) + 2)
        shape = TensorShapeProto.FromString(metadata[start + length :])
    except (DecodeError, ValueError):
        message = "the metadata of a list of tensors is invalid"
        raise InvalidInput(message) from None
    *missing, number, limit = numbers
    signed = limit - (1 << 64) if limit >> 63 else limit
    return ListMetadata(missing, DType.from_number(number), signed, decode_shape(shape))
