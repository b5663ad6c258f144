"""Conversion of attribute values and full types to and from protobuf messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import AttrPlaceholder, EncodedAttr, Func, TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde.tensor import EncodedTensor, decode_shape, encode_shape, encode_tensor
from cfgraph.ir.serde.wire import message_bytes, parse_message
from cfgraph.ir.shapes import Shape
from cfgraph.proto import attr_value_pb2, full_type_pb2

_TYPE_PREFIX: Final = "TFT_"


class FullType(NamedTuple):
    """A type such as `array[tensor[float]]`: its kind, its arguments, and an optional name or
    number.

    The kind is in lower case, or a number if unknown.
    """

    kind: str
    args: tuple[FullType, ...] = ()
    value: str | int | None = None


def decode_full_type(proto: Any) -> FullType | None:
    """Decode a FullTypeDef, or return None if encoding the result would give other bytes."""
    full = _decode_type_tree(proto)
    return full if message_bytes(encode_full_type(full)) == message_bytes(proto) else None


def _decode_type_tree(proto: Any) -> FullType:
    kinds = full_type_pb2.FullTypeId.DESCRIPTOR.values_by_number
    known = kinds.get(proto.type_id)
    kind = known.name.removeprefix(_TYPE_PREFIX).lower() if known else str(proto.type_id)
    arm = proto.WhichOneof("attr")
    return FullType(
        kind, tuple(map(_decode_type_tree, proto.args)), getattr(proto, arm) if arm else None
    )


def encode_full_type(full: FullType) -> Any:
    """Encode a full type as FullTypeDef. Raises ValueError for an unknown kind."""
    proto: Any = full_type_pb2.FullTypeDef()
    known = full_type_pb2.FullTypeId.DESCRIPTOR.values_by_name.get(_TYPE_PREFIX + full.kind.upper())
    proto.type_id = known.number if known else int(full.kind)
    for arg in full.args:
        proto.args.add().CopyFrom(encode_full_type(arg))
    if isinstance(full.value, str):
        proto.s = full.value
    elif full.value is not None:
        proto.i = full.value
    return proto


# protobuf parses 100 levels of messages; an attribute of a node is at the fourth
_MAX_NESTING: Final = 96
# a function, its attribute entry, and the value of that
_FUNC_NESTING: Final = 3


def _decode_func(proto: Any) -> Func:
    return Func(proto.name, decode_attrs(proto.attr))


def _decode_tensor_attr(proto: Any) -> TensorValue:
    return TensorValue(source=EncodedTensor(proto))


def _decode_bool(value: Any) -> bool:
    return bool(value)


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "type": DType.from_number,
    "shape": decode_shape,
    "tensor": _decode_tensor_attr,
    "func": _decode_func,
    "placeholder": AttrPlaceholder,
    "b": _decode_bool,
    "i": int,
    "f": float,
    "s": bytes,
}


def decode_attrs(protos: Mapping[str, Any]) -> dict[str, Any]:
    """Decode a map of AttrValues, sorted by name because the map has no stable order."""
    attrs: dict[str, Any] = {}
    from_number = DType.from_number
    for name in sorted(protos):
        proto = protos[name]
        # most attributes are types; the number is 0 if this is another
        number = proto.type
        attrs[name] = from_number(number) if number else decode_attr(proto)
    return attrs


def decode_attr(proto: Any) -> Any:
    """Decode an AttrValue; EncodedAttr if there is no Python form."""
    return _decode_arm(proto, proto.WhichOneof("value"))


def _decode_arm(proto: Any, arm: str | None) -> Any:
    """Decode an AttrValue whose content is in the field `arm`."""
    if arm in ("i", "s", "b", "f"):
        return getattr(proto, arm)
    if arm == "list":
        return _decode_list(proto)
    if arm is None:
        return EncodedAttr(proto.SerializeToString(deterministic=True))
    return _DECODERS[arm](getattr(proto, arm))


def _decode_list(proto: Any) -> Any:
    filled = proto.list.ListFields()
    if not filled:
        return ()
    if len(filled) > 1:
        return EncodedAttr(proto.SerializeToString(deterministic=True))
    field, values = filled[0]
    decode = _DECODERS[field.name]
    return tuple(decode(value) for value in values)


def encode_attr(value: Any, proto: Any, level: int = 0) -> None:
    """Write a Python value into an empty AttrValue at a nesting `level`.

    Raises InvalidInput for an unsupported value.
    """
    if isinstance(value, EncodedAttr):
        proto.MergeFromString(value.data)
    elif isinstance(value, tuple | list):
        _encode_list(value, proto.list, level + 1)
    elif isinstance(value, AttrPlaceholder):
        proto.placeholder = value.name
    elif isinstance(value, Shape):
        proto.shape.SetInParent()
        encode_shape(value, proto.shape)
    elif isinstance(value, TensorValue):
        proto.tensor.SetInParent()
        encode_tensor(value, proto.tensor)
    elif isinstance(value, Func):
        proto.func.SetInParent()
        _encode_func(value, proto.func, level)
    else:
        arm, plain = _scalar_field(value)
        setattr(proto, arm, plain)


def _encode_func(func: Func, proto: Any, level: int = 0) -> None:
    """Write a Func into an empty NameAttrList. Raises like `encode_attr`."""
    if level + _FUNC_NESTING > _MAX_NESTING:
        message = "attributes of functions are nested too deeply to be written"
        raise InvalidInput(message, code="CFG111")
    proto.name = func.name
    for name, value in func.attrs.items():
        encode_attr(value, proto.attr[name], level + _FUNC_NESTING)


def _encode_list(values: tuple[Any, ...] | list[Any], proto: Any, level: int) -> None:
    proto.SetInParent()
    for value in values:
        if isinstance(value, Shape):
            encode_shape(value, proto.shape.add())
        elif isinstance(value, TensorValue):
            encode_tensor(value, proto.tensor.add())
        elif isinstance(value, Func):
            _encode_func(value, proto.func.add(), level)
        else:
            arm, plain = _scalar_field(value)
            getattr(proto, arm).append(plain)


def _scalar_field(value: Any) -> tuple[str, Any]:
    """The field of an AttrValue for a scalar, and its value."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "b", value
    if isinstance(value, int):
        return "i", value
    if isinstance(value, float):
        return "f", value
    if isinstance(value, str):
        return "s", value.encode()
    if isinstance(value, bytes):
        return "s", value
    if isinstance(value, DType):
        return "type", value.number
    raise InvalidInput(f"{value!r} is not an attribute value", code="CFG111")


def write_attrs(attrs: Mapping[str, Any], loaded: Mapping[str, Any], protos: Any) -> None:
    """Update a map of AttrValues to `attrs`; entries whose value is still the `loaded` object
    stay.
    """
    for key in loaded.keys() - attrs.keys():
        del protos[key]
    for key, value in attrs.items():
        if key in loaded and loaded[key] is value:
            continue
        if key in protos:
            del protos[key]
        # most attributes of a large graph are types
        if type(value) is DType:
            protos[key].type = value.number
        else:
            encode_attr(value, protos[key])


# -- lossless text form --------------------------------------------------------------------------


def attr_to_bytes(value: Any) -> bytes:
    """Encode an attribute value."""
    proto = attr_value_pb2.AttrValue()
    encode_attr(value, proto)
    return message_bytes(proto)


def attr_from_bytes(data: bytes) -> Any:
    """Decode an attribute; EncodedAttr if encoding the value would give other bytes.

    Raises InvalidInput if the data is not an attribute.
    """
    return decode_exact(parse_message(attr_value_pb2.AttrValue(), data, "attribute value"))


def decode_exact(proto: Any) -> Any:
    """Decode an AttrValue; EncodedAttr if encoding the value would give other bytes."""
    value, data = decode_attr(proto), message_bytes(proto)
    return value if attr_to_bytes(value) == data else EncodedAttr(data)
