"""How a file lays out a tensor's elements, so that the readable form can say the same."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.errors import InvalidInput
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Tensor
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde_tensor import (
    EncodedTensor,
    check_tensor,
    encode_shape,
    encode_tensor,
    from_list,
    list_name,
    write_array,
    write_list,
)
from cfgraph.ir.serde_wire import encoded
from cfgraph.ir.shapes import Shape
from cfgraph.proto import tensor_pb2

# a tensor with more elements is not spelled out
MAX_SPELLED: Final = 64


class Layout(NamedTuple):
    """A tensor as the readable form spells it.

    `form` is `dense` (an array, encoded as `encode_tensor` does), `list` (the flat elements of the
    typed list, which may be fewer or more than the shape asks for) or `content` (raw bytes).
    """

    dtype: DType
    dims: tuple[int, ...]
    form: str
    values: Any


def layout_of(tensor: Tensor) -> Layout | None:
    """The layout of a tensor; None where no layout would give the same encoding again."""
    proto = tensor_pb2.TensorProto()
    encode_tensor(tensor, proto)
    try:
        layout = _guess(proto)
    except InvalidInput:
        return None
    same = layout is not None and encoded(_proto_of(layout)) == encoded(proto)
    return layout if same else None


def _guess(proto: Any) -> Layout | None:
    dtype, dims, count = check_tensor(proto)
    if dtype.is_object and dtype is not dtypes.string:
        return None
    if proto.tensor_content:
        if dtype.is_object or count < 2 or count > MAX_SPELLED:
            return Layout(dtype, dims, "content", proto.tensor_content)
        array = np.frombuffer(proto.tensor_content, dtype.numpy).reshape(dims)
        return Layout(dtype, dims, "dense", array)
    values = getattr(proto, list_name(dtype))
    if len(values) > MAX_SPELLED * 2:
        return None
    flat = from_list(values, dtype)
    dense = len(flat) == count and (count == 1 or (dtype is dtypes.string and count > 1))
    return (
        Layout(dtype, dims, "dense", flat.reshape(dims))
        if dense
        else Layout(dtype, dims, "list", flat)
    )


def tensor_of(layout: Layout) -> Tensor:
    """The tensor of a layout, as it would come from a file."""
    return Tensor(source=EncodedTensor(_proto_of(layout)))


def _proto_of(layout: Layout) -> Any:
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
        write_list(layout.values, layout.dtype, proto)
    return proto
