"""Printer of graphs, functions, and attribute values in the text format."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import AttrPlaceholder, EncodedAttr, Func, TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import NODE_NAME
from cfgraph.ir.serde import graph_def
from cfgraph.ir.serde.attrs import FullType, attr_from_bytes, attr_to_bytes
from cfgraph.ir.serde.functions import extra_of_function, function_to_bytes
from cfgraph.ir.serde.node_writer import original_inputs
from cfgraph.ir.serde.tensor import TensorLayout, tensor_layout
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import ArgDef, AttrDef
from cfgraph.ir.text.inferred_attrs import (
    BodyTensors,
    infer_body_attrs,
    infer_node_attrs,
    lacks_inferable_attrs,
)
from cfgraph.limits import check_deadline

# longer encoded attributes rarely repeat
_MAX_CACHED_BYTES = 256


def format_name(name: str) -> str:
    """Format a name: quoted unless it is plain."""
    return name if NODE_NAME(name) else format_string(name.encode())


def format_string(data: bytes) -> str:
    """Format bytes as a quoted string; unprintable characters are escaped."""
    text = data.decode(errors="surrogateescape")
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escape_char, text)) + '"'


def _escape_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    known = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(char)
    data = char.encode(errors="surrogateescape")
    return known or "".join(f"\\x{byte:02x}" for byte in data)


class _InexactTextError(Exception):
    """A value has no text form that reproduces its encoding."""


class AttrPrinter:
    """Prints encoded attributes, caching short ones."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._keys: dict[str, str] = {}

    def pair(self, key: str, data: bytes) -> str:
        """Format an attribute with its name."""
        name = self._keys.get(key)
        if name is None:
            name = self._keys[key] = format_name(key)
        return f"{name}={self._known.get(data) or self.text(data)}"

    def text(self, data: bytes) -> str:
        """Format an encoded attribute."""
        known = self._known.get(data)
        if known is None:
            known = _format_encoded_attr(data)
            if len(data) <= _MAX_CACHED_BYTES:
                self._known[data] = known
        return known

    def value_text(self, value: Any) -> str:
        """Format a value."""
        return self.text(value.data if isinstance(value, EncodedAttr) else attr_to_bytes(value))

    def attrs_text(self, attrs: Mapping[str, Any]) -> str:
        """Format attributes in braces, sorted by name."""
        items = (f"{format_name(key)}={self.value_text(attrs[key])}" for key in sorted(attrs))
        return "{" + ", ".join(items) + "}"


def _format_raw(data: bytes) -> str:
    """Format bytes in base64."""
    return f'raw"{base64.b64encode(data).decode()}"'


def _format_encoded_attr(data: bytes) -> str:
    try:
        return _format_value(attr_from_bytes(data))
    except _InexactTextError:
        return _format_raw(data)


def _format_value(value: Any) -> str:
    return _FORMATTERS[type(value)](value)


def _format_tuple(values: tuple[Any, ...]) -> str:
    return "(" + ", ".join(map(_format_value, values)) + ")"


def _format_func(func: Func) -> str:
    name = "@" + format_name(func.name)
    if not func.attrs:
        return name
    items = (f"{format_name(key)}={_format_value(func.attrs[key])}" for key in sorted(func.attrs))
    return f"{name}{{{', '.join(items)}}}"


def _format_float(value: float) -> str:
    return _format_exact_floats(np.array([value], np.float32))[0]


def _format_dtype(dtype: DType) -> str:
    try:
        known = DType.from_name(dtype.name)
    except KeyError:
        raise _InexactTextError from None
    if known is not dtype:
        raise _InexactTextError
    return dtype.name


def _format_shape(shape: Shape) -> str:
    if not shape.names or shape.dims is None:
        return str(shape)
    pairs = zip(shape.names, shape.dims, strict=True)
    dims = [
        (name and f"{format_name(name)}=") + ("?" if dim is None else str(dim))
        for name, dim in pairs
    ]
    return "[" + ",".join(dims) + "]"


def _format_tensor_value(tensor: TensorValue) -> str:
    layout = tensor_layout(tensor)
    if layout is None:
        raise _InexactTextError
    head = f"{layout.dtype}[{','.join(map(str, layout.dims))}]:"
    if layout.form == "content":
        return head + _format_raw(layout.values)
    try:
        texts = _format_elements(layout)
    except _InexactTextError:
        if layout.form != "dense" or layout.values.size == 1 or layout.dtype.is_object:
            raise
        return head + _format_raw(layout.values.tobytes())
    if layout.form == "list":
        return f"{head}({', '.join(texts)})"
    return head + _format_nested(texts, layout.dims)


def _format_elements(layout: TensorLayout) -> list[str]:
    flat = layout.values.reshape(-1)
    kind = layout.dtype.kind
    if kind == "string":
        return [format_string(item) for item in flat.tolist()]
    if kind in ("bool", "int", "uint"):
        # the bytes of a bool or a 4-bit integer may have bits that are not part of the number
        if flat.astype(np.int64).astype(flat.dtype).tobytes() != flat.tobytes():
            raise _InexactTextError
        if kind == "bool":
            return ["true" if item else "false" for item in flat.tolist()]
        return [str(int(item)) for item in flat.tolist()]
    if kind == "complex":
        return _format_complex_elements(flat)
    return _format_exact_floats(flat)


def _format_complex_elements(flat: Any) -> list[str]:
    parts = _format_exact_floats(flat.view(flat.real.dtype))
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [f"{real}{'' if imag[0] == '-' else '+'}{imag}j" for real, imag in pairs]


def _format_exact_floats(flat: Any) -> list[str]:
    """Format floats with the fewest digits that reproduce their bits."""
    signs = np.signbit(flat) & np.isnan(flat)
    texts = ["-nan" if negative else str(item) for item, negative in zip(flat, signs, strict=True)]
    with np.errstate(all="ignore"):
        again = np.array([float(text) for text in texts], np.float64).astype(flat.dtype)
    if again.tobytes() != flat.tobytes():
        raise _InexactTextError
    return texts


def _format_nested(texts: list[str], dims: tuple[int, ...]) -> str:
    for dim in reversed(dims):
        texts = [
            "[" + ",".join(texts[start : start + dim]) + "]" for start in range(0, len(texts), dim)
        ]
    return texts[0]


_FORMATTERS: Final[dict[type, Callable[[Any], str]]] = {
    bool: lambda value: "true" if value else "false",
    int: str,
    float: _format_float,
    bytes: format_string,
    DType: _format_dtype,
    Shape: _format_shape,
    tuple: _format_tuple,
    Func: _format_func,
    AttrPlaceholder: lambda placeholder: "$" + format_name(placeholder.name),
    TensorValue: _format_tensor_value,
    EncodedAttr: lambda attr: _format_raw(attr.data),
}


def format_full_type(full: FullType) -> str:
    """Format a full type."""
    text = full.kind
    if isinstance(full.value, str):
        text += format_string(full.value.encode())
    elif full.value is not None:
        text += f"={full.value}"
    return f"{text}[{', '.join(map(format_full_type, full.args))}]" if full.args else text


_PLAIN_TENSOR_NAME: Final = re.compile(
    r"\^?[A-Za-z0-9._][A-Za-z0-9_./>-]*(?::[A-Za-z0-9_]+)*"
).fullmatch
_PLAIN_KIND: Final = re.compile(r"\w+|list\(\w+\)").fullmatch


def print_graph(graph: Graph) -> str:
    """Print a graph in the text format; equal graphs give equal texts."""
    with paused_gc():
        return "".join([f"{line}\n" for line in _graph_lines(graph)])


def _graph_lines(graph: Graph) -> Iterator[str]:
    """Lines of a graph without line ends."""
    printer = AttrPrinter()
    yield from _version_lines(graph)
    for node in graph:
        check_deadline()
        line = _format_node(node, original_inputs(node), printer)
        yield line + " exact" if lacks_inferable_attrs(node) and infer_node_attrs(node) else line
    for function in graph.functions.values():
        yield ""
        yield from _format_function(function, printer)
    for name, gradient in graph.gradient_functions.items():
        yield f"gradient {format_name(name)} = {format_name(gradient)}"
    extra = graph_def.extra_of_graph(graph)
    if extra:
        yield f"extra {_format_raw(extra)}"


def _version_lines(graph: Graph) -> Iterator[str]:
    producer, min_consumer, bad = graph.versions
    words = []
    if producer:
        words.append(f"producer={producer}")
    if min_consumer:
        words.append(f"min_consumer={min_consumer}")
    if bad:
        words.append(f"bad_consumers=({', '.join(map(str, bad))})")
    if words:
        yield "versions " + " ".join(words)


def _format_node(node: Node | BodyNode, inputs: Iterable[str], printer: AttrPrinter) -> str:
    texts = ", ".join(map(_format_tensor_name, inputs))
    line = f"{format_name(node.name)} = {format_name(node.op)}({texts})"
    attrs = graph_def.encoded_attrs(node)
    if attrs:
        line += " {" + ", ".join([printer.pair(key, data) for key, data in attrs]) + "}"
    if node.device:
        line += " @" + format_string(node.device.encode())
    full, extra = graph_def.extra_of_node(node)
    if full is not None:
        line += f" type {format_full_type(full)}"
    return f"{line} extra {_format_raw(extra)}" if extra else line


def _format_tensor_name(text: str) -> str:
    return text if _PLAIN_TENSOR_NAME(text) else format_string(text.encode())


def _format_function(function: Function, printer: AttrPrinter) -> Iterator[str]:
    extra = extra_of_function(function)
    definition = function.definition
    if extra is None or not _has_text_form(definition):
        yield f"function {format_name(function.name)} {_format_raw(function_to_bytes(function))}"
        return
    notes = definition.arg_attrs
    inputs = [
        format_arg(arg) + (" " + printer.attrs_text(notes[index]) if index in notes else "")
        for index, arg in enumerate(definition.inputs)
    ]
    outputs = map(format_arg, definition.outputs)
    name = format_name(function.name)
    yield f"function {name}({', '.join(inputs)}) -> ({', '.join(outputs)}) {{"
    for line in _format_body(definition, printer):
        yield "  " + line
    if extra:
        yield f"  extra {_format_raw(extra)}"
    yield "}"


def _has_text_form(definition: FunctionDefinition) -> bool:
    """True if the text block reproduces the definition."""
    controls = definition.control_outputs
    return (
        len(set(controls)) == len(controls)
        and definition.control_returns.keys() <= set(controls)
        and all(0 <= index < len(definition.inputs) for index in definition.arg_attrs)
        and all(_has_type_name(arg) for arg in (*definition.inputs, *definition.outputs))
    )


def _has_type_name(arg: ArgDef) -> bool:
    """True if the name of the type is unambiguous."""
    if arg.dtype is None:
        return bool(arg.type_attr)
    return not arg.dtype.is_ref and arg.dtype.number >= 0


def _format_body(definition: FunctionDefinition, printer: AttrPrinter) -> Iterator[str]:
    for attr in definition.attr_defs.values():
        yield format_attr_def(attr, printer)
    if definition.attrs:
        yield f"attrs {printer.attrs_text(definition.attrs)}"
    if definition.stateful:
        yield "stateful"
    names = BodyTensors(definition.inputs, {node.name: node.op for node in definition.nodes})
    inferred = infer_body_attrs(names, definition.nodes)
    for node in definition.nodes:
        check_deadline()
        line = _format_node(node, node.inputs, printer)
        exact = node.name in inferred or any(names.full(text) != text for text in node.inputs)
        yield line + " exact" if exact else line
    for output, tensor in definition.returns.items():
        exact = names.full(tensor) != tensor
        text = format_string(tensor.encode()) if exact else _format_tensor_name(tensor)
        yield f"return {format_name(output)} = {text}"
    for output in definition.control_outputs:
        if output in definition.control_returns:
            returned = definition.control_returns[output]
            yield f"control_return {format_name(output)} = {format_name(returned)}"
        else:
            yield f"control_return {format_name(output)}"


def format_arg(arg: ArgDef) -> str:
    """Format a function argument: its name, and its type or type attribute."""
    kind = str(arg.dtype) if arg.dtype is not None else _format_type_attr(arg.type_attr or "")
    kind = f"Ref({kind})" if arg.is_ref else kind
    count = f"{format_name(arg.count)}*" if arg.count else ""
    return f"{format_name(arg.name)}: {count}{kind}"


def _format_type_attr(name: str) -> str:
    """Format the name of a type attribute; quoted if it is also the name of a type."""
    try:
        DType.from_name(name)
    except KeyError:
        return format_name(name)
    return format_string(name.encode())


def format_attr_def(attr: AttrDef, printer: AttrPrinter) -> str:
    """Format an attribute declaration: its kind, bounds, and default."""
    kind = attr.kind if _PLAIN_KIND(attr.kind) else format_string(attr.kind.encode())
    text = f"attr {format_name(attr.name)}: {kind}"
    if attr.minimum is not None:
        text += f" >= {attr.minimum}"
    if attr.has_default:
        text += f" = {printer.value_text(attr.default)}"
    if attr.allowed is not None:
        text += f" in {printer.value_text(attr.allowed)}"
    return text
