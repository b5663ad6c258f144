"""Graphs between memory and protobuf: with `serde_attrs` and `serde_tensor` the only door to it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import Raw
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Definition, Function
from cfgraph.ir.graph import Graph, Node, NodeRecord, Versions
from cfgraph.ir.serde_attrs import decode_attr, decode_attrs, encode_attr
from cfgraph.ir.signature import Arg, Attr
from cfgraph.proto import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2, op_def_pb2


def graph_from_bytes(data: bytes) -> Graph:
    """The graph of an encoded GraphDef. Raises InvalidInput where it is none."""
    return graph_from_proto(parse(graph_pb2.GraphDef(), data, "GraphDef"))


@contextmanager
def _without_collector() -> Iterator[None]:
    """A graph is built of many objects and no garbage; the collector would go over them in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def parse(message: Any, data: bytes, what: str) -> Any:
    """Decode bytes into an empty message. Raises InvalidInput where they are no such message."""
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        hint = "the file may be truncated, or not a graph"
        text = f"{len(data)} bytes do not parse as a {what}: {error}"
        raise InvalidInput(text, hint=hint, code="CFG003") from None
    return message


def graph_from_proto(proto: Any) -> Graph:
    """The graph of a GraphDef message, which must not be changed afterwards.

    Raises InvalidInput with all findings where nodes and edges do not make a graph.
    """
    graph = Graph()
    versions = proto.versions
    graph.versions = Versions(
        versions.producer, versions.min_consumer, tuple(versions.bad_consumers)
    )
    for function in proto.library.function:
        graph.functions[function.signature.name] = Function(
            function.signature.name, source=EncodedFunction(function)
        )
    for pair in proto.library.gradient:
        graph.gradient_functions[pair.function_name] = pair.gradient_func
    graph.origin = proto
    with _without_collector():
        graph.load(_records(proto.node))
    return graph


def _records(nodes: Any) -> Iterator[NodeRecord]:
    for proto in nodes:
        attrs = {key: decode_attr(value) for key, value in proto.attr.items()}
        yield proto.name, proto.op, proto.input, proto.device, attrs, (proto, attrs.copy())


def graph_to_bytes(graph: Graph) -> bytes:
    """The encoded GraphDef of a graph; equal graphs give equal bytes."""
    data: bytes = graph_to_proto(graph).SerializeToString(deterministic=True)
    return data


def graph_to_proto(graph: Graph) -> Any:
    """The GraphDef of a graph. What a file held of nodes and functions unchanged is copied."""
    proto = graph_pb2.GraphDef()
    if graph.origin is not None:
        for field, value in _rest(graph.origin, ("node", "library", "versions")):
            _set_field(proto, field, value)
        proto.MergeFromString(_unknown(graph.origin))
    _write_versions(graph, proto)
    _write_library(graph, proto)
    for node in graph:
        _write_node(node, proto.node.add())
    return proto


def _rest(message: Any, known: tuple[str, ...]) -> list[tuple[Any, Any]]:
    return [(f, v) for f, v in message.ListFields() if f.name not in known]


def _set_field(target: Any, field: Any, value: Any) -> None:
    if isinstance(value, Message):
        getattr(target, field.name).CopyFrom(value)
    else:
        setattr(target, field.name, value)


def _unknown(message: Any) -> bytes:
    """The unknown fields of a message, encoded: what stays when all known fields are cleared."""
    if not message.ListFields():
        data: bytes = message.SerializeToString(deterministic=True)
        return data
    return _extra(message, tuple(field.name for field, _ in message.ListFields()))


def _write_versions(graph: Graph, proto: Any) -> None:
    if graph.origin is not None and graph.origin.HasField("versions"):
        proto.versions.CopyFrom(graph.origin.versions)
    if graph.versions == Versions() and not proto.HasField("versions"):
        return
    producer, min_consumer, bad = graph.versions
    proto.versions.producer = producer
    proto.versions.min_consumer = min_consumer
    del proto.versions.bad_consumers[:]
    proto.versions.bad_consumers.extend(bad)


def _write_library(graph: Graph, proto: Any) -> None:
    if graph.origin is not None and graph.origin.HasField("library"):
        library = proto.library
        library.SetInParent()
        for pair in graph.origin.library.registered_gradients:
            library.registered_gradients.add().CopyFrom(pair)
        library.MergeFromString(_unknown(graph.origin.library))
    for function in graph.functions.values():
        write_function(function, proto.library.function.add())
    known = {}
    if graph.origin is not None:
        known = {pair.function_name: pair for pair in graph.origin.library.gradient}
    for name, gradient in graph.gradient_functions.items():
        pair = proto.library.gradient.add()
        if name in known:
            pair.CopyFrom(known[name])
        pair.function_name, pair.gradient_func = name, gradient


def input_texts(node: Node) -> list[str]:
    """The inputs of a node as the file writes them."""
    texts = [source.name if port == 0 else f"{source.name}:{port}" for source, port in node.inputs]
    texts.extend("^" + control.name for control in node.controls)
    return texts


def _write_node(node: Node, proto: Any) -> None:
    loaded: Mapping[str, Any] = {}
    if node.origin is not None:
        origin, loaded = node.origin
        proto.CopyFrom(origin)
    if proto.name != node.name:
        proto.name = node.name
    if proto.op != node.op:
        proto.op = node.op
    if proto.device != node.device:
        proto.device = node.device
    texts = input_texts(node)
    if not _same_inputs(proto.input, texts):
        proto.ClearField("input")
        proto.input.extend(texts)
    write_attrs(node.attrs, loaded, proto.attr)


def _same_inputs(written: Any, texts: list[str]) -> bool:
    """True if the file's own texts say the same (`a:0` is `a`, duplicate controls collapse)."""
    plain = [text.removesuffix(":0") if text[:1] != "^" else text for text in written]
    return list(dict.fromkeys(plain)) == list(dict.fromkeys(texts)) and _data(plain) == _data(texts)


def _data(texts: list[str]) -> list[str]:
    return [text for text in texts if text[:1] != "^"]


def write_attrs(attrs: Mapping[str, Any], loaded: Mapping[str, Any], protos: Any) -> None:
    """Bring a map of AttrValues to `attrs`; those that are still the `loaded` object stay."""
    for key in loaded.keys() - attrs.keys():
        del protos[key]
    for key, value in attrs.items():
        if key in loaded and loaded[key] is value:
            continue
        fresh = attr_value_pb2.AttrValue()
        encode_attr(value, fresh)
        protos[key].CopyFrom(fresh)


# -- functions -----------------------------------------------------------------------------------


class EncodedFunction:
    """A FunctionDef, decoded on demand and written back as it came."""

    __slots__ = ("proto",)

    def __init__(self, proto: Any) -> None:
        self.proto = proto

    def decode(self) -> Definition:
        """The definition."""
        proto = self.proto
        signature = proto.signature
        return Definition(
            inputs=tuple(_arg(arg) for arg in signature.input_arg),
            outputs=tuple(_arg(arg) for arg in signature.output_arg),
            attr_defs={attr.name: _attr_def(attr) for attr in signature.attr},
            nodes=tuple(_body_node(node) for node in proto.node_def),
            returns=_in_order(proto.ret, [arg.name for arg in signature.output_arg]),
            control_outputs=tuple(signature.control_output),
            control_returns=_in_order(proto.control_ret, signature.control_output),
            attrs=decode_attrs(proto.attr),
            stateful=signature.is_stateful,
        )


def _in_order(mapping: Mapping[str, str], order: Any) -> dict[str, str]:
    """A map's entries in the order of the signature, others after them by name."""
    place = {name: index for index, name in enumerate(order)}
    names = sorted(mapping, key=lambda name: (place.get(name, len(place)), name))
    return {name: mapping[name] for name in names}


def _body_node(proto: Any) -> BodyNode:
    attrs = decode_attrs(proto.attr)
    inputs = tuple(proto.input)
    return BodyNode(proto.name, proto.op, inputs, proto.device, attrs, (proto, dict(attrs)))


def _arg(proto: Any) -> Arg:
    kind = proto.type_list_attr or proto.type_attr or None
    dtype = DType.of(proto.type) if kind is None else None
    return Arg(proto.name, dtype, kind, proto.number_attr or None, proto.is_ref)


def _attr_def(proto: Any) -> Attr:
    has_default = proto.HasField("default_value")
    default = decode_attr(proto.default_value) if has_default else None
    minimum = proto.minimum if proto.has_minimum else None
    allowed = decode_attr(proto.allowed_values) if proto.HasField("allowed_values") else None
    return Attr(proto.name, proto.type, default, has_default, minimum, allowed)


def write_function(function: Function, proto: Any) -> None:
    """Write a function into an empty FunctionDef."""
    if isinstance(function.source, EncodedFunction):
        proto.CopyFrom(function.source.proto)
        proto.signature.name = function.name
        return
    definition = function.definition
    proto.signature.name = function.name
    proto.signature.is_stateful = definition.stateful
    proto.signature.control_output.extend(definition.control_outputs)
    for arg in definition.inputs:
        _write_arg(arg, definition.attr_defs, proto.signature.input_arg.add())
    for arg in definition.outputs:
        _write_arg(arg, definition.attr_defs, proto.signature.output_arg.add())
    for attr in definition.attr_defs.values():
        _write_attr_def(attr, proto.signature.attr.add())
    for node in definition.nodes:
        write_body_node(node, proto.node_def.add())
    for name, tensor in definition.returns.items():
        proto.ret[name] = tensor
    for name, node_name in definition.control_returns.items():
        proto.control_ret[name] = node_name
    write_attrs(definition.attrs, {}, proto.attr)


def write_body_node(node: BodyNode, proto: Any) -> None:
    """Write a body node into an empty NodeDef; one from a file with all that it held."""
    loaded: Mapping[str, Any] = {}
    if node.origin is not None:
        origin, loaded = node.origin
        proto.CopyFrom(origin)
    proto.name, proto.op, proto.device = node.name, node.op, node.device
    proto.ClearField("input")
    proto.input.extend(node.inputs)
    write_attrs(node.attrs, loaded, proto.attr)


def _write_arg(arg: Arg, attr_defs: Mapping[str, Attr], proto: Any) -> None:
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


def _write_attr_def(attr: Attr, proto: Any) -> None:
    proto.name, proto.type = attr.name, attr.kind
    if attr.has_default:
        proto.default_value.SetInParent()
        encode_attr(attr.default, proto.default_value)
    if attr.minimum is not None:
        proto.has_minimum, proto.minimum = True, attr.minimum
    if attr.allowed is not None:
        encode_attr(tuple(attr.allowed), proto.allowed_values)


# -- what the readable form needs to lose nothing ------------------------------------------------

_NODE_FIELDS: Final = ("name", "op", "input", "device", "attr")


def exact_attr(value: Any, proto: Any | None) -> Any:
    """`value`, or Raw with the file's own bytes where `value` would not give these bytes again."""
    if proto is None or isinstance(value, Raw):
        return value
    again = attr_value_pb2.AttrValue()
    encode_attr(value, again)
    data = proto.SerializeToString(deterministic=True)
    return value if again.SerializeToString(deterministic=True) == data else Raw(data)


def extra_of_node(node: Node | BodyNode) -> bytes:
    """What the file held of a node beyond name, op, inputs, device and attributes; encoded."""
    if node.origin is None:
        return b""
    return _extra(node.origin[0], _NODE_FIELDS)


def extra_of_graph(graph: Graph) -> bytes:
    """What the file held of a graph beyond nodes, functions, gradients and versions; encoded."""
    if graph.origin is None:
        return b""
    rest = graph_pb2.GraphDef()
    rest.ParseFromString(_extra(graph.origin, ("node", "library", "versions")))
    if graph.origin.HasField("library"):
        extra = _extra(graph.origin.library, ("function", "gradient"))
        if extra:
            rest.library.MergeFromString(extra)
    if graph.origin.HasField("versions"):
        extra = _extra(graph.origin.versions, ("producer", "min_consumer", "bad_consumers"))
        if extra:
            rest.versions.MergeFromString(extra)
    data: bytes = rest.SerializeToString(deterministic=True)
    return data


def _extra(message: Any, known: tuple[str, ...]) -> bytes:
    shell = type(message)()
    shell.CopyFrom(message)
    for name in known:
        shell.ClearField(name)
    data: bytes = shell.SerializeToString(deterministic=True)
    return data


def node_origin(extra: bytes) -> Any:
    """The `origin` of a node that is read from the readable form with this extra."""
    proto = node_def_pb2.NodeDef()
    proto.ParseFromString(extra)
    return proto, {}


def graph_origin(extra: bytes) -> Any:
    """The `origin` of a graph that is read from the readable form with this extra."""
    proto = graph_pb2.GraphDef()
    proto.ParseFromString(extra)
    return proto


def function_from_bytes(name: str, data: bytes) -> Function:
    """A function from its encoded FunctionDef."""
    return Function(name, source=EncodedFunction(parse(function_pb2.FunctionDef(), data, name)))


def function_to_bytes(function: Function) -> bytes:
    """A function's encoded FunctionDef."""
    proto = function_pb2.FunctionDef()
    write_function(function, proto)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def op_list(data: bytes) -> Any:
    """An encoded OpList as a message, for comparison with other registries."""
    return parse(op_def_pb2.OpList(), data, "OpList")
