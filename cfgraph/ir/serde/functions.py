"""Conversion of library functions to and from FunctionDef messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.serde.attrs import decode_attrs, decode_exact, encode_attr, write_attrs
from cfgraph.ir.serde.file_contents import open_files
from cfgraph.ir.serde.wire import message_bytes, parse_message
from cfgraph.ir.signature import ArgDef, AttrDef
from cfgraph.proto import function_pb2


class EncodedFunction:
    """A FunctionDef, decoded on demand and written back unchanged."""

    __slots__ = ("_files", "proto")

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self._files = open_files(proto)

    def decode(self) -> FunctionDefinition:
        """The definition."""
        proto = self.proto
        signature = proto.signature
        return replace(
            decode_signature(signature),
            nodes=tuple(_decode_body_node(node) for node in proto.node_def),
            returns=_in_signature_order(proto.ret, [arg.name for arg in signature.output_arg]),
            control_outputs=tuple(signature.control_output),
            control_returns=_in_signature_order(proto.control_ret, signature.control_output),
            attrs={key: decode_exact(value) for key, value in sorted(proto.attr.items())},
            arg_attrs=_ArgAttrs(proto.arg_attr),
        )


def decode_signature(op_def: Any) -> FunctionDefinition:
    """The signature in an OpDef, of an op or of a function, as a definition without a body."""
    return FunctionDefinition(
        inputs=tuple(_decode_arg(arg) for arg in op_def.input_arg),
        outputs=tuple(_decode_arg(arg) for arg in op_def.output_arg),
        attr_defs={attr.name: _decode_attr_def(attr) for attr in op_def.attr},
        stateful=op_def.is_stateful,
    )


class _ArgAttrs(Mapping[int, Mapping[str, Any]]):
    """Attributes of arguments by index, decoded when they are first read: no run needs them."""

    def __init__(self, protos: Mapping[int, Any]) -> None:
        self._protos = protos

    @cached_property
    def _decoded(self) -> dict[int, dict[str, Any]]:
        return {
            index: {key: decode_exact(value) for key, value in sorted(attrs.attr.items())}
            for index, attrs in sorted(self._protos.items())
        }

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        return self._decoded[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._decoded)

    def __len__(self) -> int:
        return len(self._decoded)


def _in_signature_order(mapping: Mapping[str, str], order: Any) -> dict[str, str]:
    """Entries of a map in the order of the signature, then others by name."""
    index = {name: index for index, name in enumerate(order)}
    names = sorted(mapping, key=lambda name: (index.get(name, len(index)), name))
    return {name: mapping[name] for name in names}


def _decode_body_node(proto: Any) -> BodyNode:
    attrs = decode_attrs(proto.attr)
    inputs = tuple(proto.input)
    return BodyNode(proto.name, proto.op, inputs, proto.device, attrs, (proto, attrs))


def _decode_arg(proto: Any) -> ArgDef:
    kind = proto.type_list_attr or proto.type_attr or None
    dtype = DType.from_number(proto.type) if kind is None else None
    return ArgDef(proto.name, dtype, kind, proto.number_attr or None, proto.is_ref)


def _decode_attr_def(proto: Any) -> AttrDef:
    has_default = proto.HasField("default_value")
    default = decode_exact(proto.default_value) if has_default else None
    minimum = proto.minimum if proto.has_minimum else None
    allowed = decode_exact(proto.allowed_values) if proto.HasField("allowed_values") else None
    return AttrDef(proto.name, proto.type, default, has_default, minimum, allowed)


def write_function(function: Function, proto: Any) -> None:
    """Write a function into an empty FunctionDef."""
    if isinstance(function.source, EncodedFunction):
        proto.CopyFrom(function.source.proto)
        if proto.signature.name != function.name:
            proto.signature.name = function.name
    else:
        _write_definition(function.name, function.definition, proto)


def _write_definition(name: str, definition: FunctionDefinition, proto: Any) -> None:
    proto.signature.name = name
    proto.signature.is_stateful = definition.stateful
    proto.signature.control_output.extend(definition.control_outputs)
    for arg in definition.inputs:
        _write_arg(arg, definition.attr_defs, proto.signature.input_arg.add())
    for arg in definition.outputs:
        _write_arg(arg, definition.attr_defs, proto.signature.output_arg.add())
    for attr in definition.attr_defs.values():
        _write_attr_def(attr, proto.signature.attr.add())
    for node in definition.nodes:
        _write_body_node(node, proto.node_def.add())
    for output, tensor in definition.returns.items():
        proto.ret[output] = tensor
    for output, node_name in definition.control_returns.items():
        proto.control_ret[output] = node_name
    write_attrs(definition.attrs, {}, proto.attr)
    for index, attrs in definition.arg_attrs.items():
        write_attrs(attrs, {}, proto.arg_attr[index].attr)


def _write_body_node(node: BodyNode, proto: Any) -> None:
    """Write a body node into an empty NodeDef; a node from a file keeps its unknown fields."""
    loaded: Mapping[str, Any] = {}
    if node.origin is not None:
        origin, loaded = node.origin
        proto.CopyFrom(origin)
    proto.name, proto.op, proto.device = node.name, node.op, node.device
    proto.ClearField("input")
    proto.input.extend(node.inputs)
    write_attrs(node.attrs, loaded, proto.attr)


def _write_arg(arg: ArgDef, attr_defs: Mapping[str, AttrDef], proto: Any) -> None:
    proto.name = arg.name
    proto.is_ref = arg.is_ref
    if arg.dtype is not None:
        proto.type = arg.dtype.number
    elif arg.type_attr:
        declared = attr_defs.get(arg.type_attr)
        listed = declared is not None and declared.kind == "list(type)" and not arg.count
        setattr(proto, "type_list_attr" if listed else "type_attr", arg.type_attr)
    if arg.count:
        proto.number_attr = arg.count


def _write_attr_def(attr: AttrDef, proto: Any) -> None:
    proto.name, proto.type = attr.name, attr.kind
    if attr.has_default:
        proto.default_value.SetInParent()
        encode_attr(attr.default, proto.default_value)
    if attr.minimum is not None:
        proto.has_minimum, proto.minimum = True, attr.minimum
    if attr.allowed is not None:
        proto.allowed_values.SetInParent()
        encode_attr(attr.allowed, proto.allowed_values)


# -- lossless text form --------------------------------------------------------------------------

_KNOWN_FIELDS: Final = (
    ("input_arg", ("name", "type", "type_attr", "number_attr", "type_list_attr", "is_ref")),
    ("output_arg", ("name", "type", "type_attr", "number_attr", "type_list_attr", "is_ref")),
    ("attr", ("name", "type", "default_value", "has_minimum", "minimum", "allowed_values")),
)


def extra_of_function(function: Function) -> bytes | None:
    """Content of an encoded function beyond its FunctionDefinition.

    None if definition and extra together would not reproduce the function.
    """
    whole = function_pb2.FunctionDef()
    write_function(function, whole)
    parts = function_pb2.FunctionDef()
    _write_definition(function.name, function.definition, parts)
    if message_bytes(parts) == message_bytes(whole):
        return b""
    extra = _without_known_fields(whole)
    _merge_extra(extra, parts)
    return message_bytes(extra) if message_bytes(parts) == message_bytes(whole) else None


def function_from_definition(name: str, definition: FunctionDefinition, extra: bytes) -> Function:
    """A function, as loaded from a file, from its definition and extra.

    Raises InvalidInput if the extra is invalid.
    """
    proto = function_pb2.FunctionDef()
    _write_definition(name, definition, proto)
    if extra:
        _merge_extra(parse_message(function_pb2.FunctionDef(), extra, "FunctionDef"), proto)
    return Function(name, source=EncodedFunction(proto))


def _without_known_fields(whole: Any) -> Any:
    extra = function_pb2.FunctionDef()
    extra.CopyFrom(whole)
    for name in ("node_def", "ret", "control_ret", "attr", "arg_attr"):
        extra.ClearField(name)
    for name in ("name", "is_stateful", "control_output"):
        extra.signature.ClearField(name)
    for name, known in _KNOWN_FIELDS:
        parts = getattr(extra.signature, name)
        for definition in parts:
            for field in known:
                definition.ClearField(field)
        if not any(map(message_bytes, parts)):
            extra.signature.ClearField(name)
    return extra


def _merge_extra(extra: Any, target: Any) -> None:
    """Merge the fields that a definition lacks; arguments and attributes are matched by index."""
    rest = function_pb2.FunctionDef()
    rest.CopyFrom(extra)
    for name, _ in _KNOWN_FIELDS:
        for field, more in zip(
            getattr(target.signature, name), getattr(rest.signature, name), strict=False
        ):
            field.MergeFrom(more)
        rest.signature.ClearField(name)
    target.MergeFrom(rest)


def function_from_bytes(name: str, data: bytes) -> Function:
    """A function from its encoded FunctionDef."""
    return Function(
        name, source=EncodedFunction(parse_message(function_pb2.FunctionDef(), data, name))
    )


def function_to_bytes(function: Function) -> bytes:
    """A function's encoded FunctionDef."""
    proto = function_pb2.FunctionDef()
    write_function(function, proto)
    return message_bytes(proto)
