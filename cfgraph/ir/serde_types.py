"""Full types, which newer graphs note on their nodes, between Python and the file."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from cfgraph.ir.serde_wire import encoded
from cfgraph.proto import full_type_pb2

_PREFIX: Final = "TFT_"


class FullType(NamedTuple):
    """A type such as `array[tensor[float]]`: its kind, its arguments, perhaps a name or a number.

    The kind is in small letters, or the number of one that nobody knows.
    """

    kind: str
    args: tuple[FullType, ...] = ()
    value: str | int | None = None


def decode_type(proto: Any) -> FullType | None:
    """The full type of a FullTypeDef; None where it would not give the same bytes again."""
    full = _decode(proto)
    return full if encoded(encode_type(full)) == encoded(proto) else None


def _decode(proto: Any) -> FullType:
    kinds = full_type_pb2.FullTypeId.DESCRIPTOR.values_by_number
    known = kinds.get(proto.type_id)
    kind = known.name.removeprefix(_PREFIX).lower() if known else str(proto.type_id)
    arm = proto.WhichOneof("attr")
    return FullType(kind, tuple(map(_decode, proto.args)), getattr(proto, arm) if arm else None)


def encode_type(full: FullType) -> Any:
    """The FullTypeDef of a full type. Raises ValueError for a kind that nobody knows."""
    proto: Any = full_type_pb2.FullTypeDef()
    known = full_type_pb2.FullTypeId.DESCRIPTOR.values_by_name.get(_PREFIX + full.kind.upper())
    proto.type_id = known.number if known else int(full.kind)
    for arg in full.args:
        proto.args.add().CopyFrom(encode_type(arg))
    if isinstance(full.value, str):
        proto.s = full.value
    elif full.value is not None:
        proto.i = full.value
    return proto
