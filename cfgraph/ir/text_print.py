"""Graphs as the readable form writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from cfgraph.ir import serde
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Definition, Function
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.serde_functions import extra_of_function, function_to_bytes
from cfgraph.ir.signature import Arg, Attr
from cfgraph.ir.text_infer import attrs_from_inputs, lacks_attrs
from cfgraph.ir.text_infer_bodies import Names, attrs_from_types
from cfgraph.ir.text_lex import name_text, string_text
from cfgraph.ir.text_print_values import AttrPrinter, raw_text
from cfgraph.ir.text_types import type_text

_TENSOR: Final = re.compile(r"\^?[A-Za-z0-9._][A-Za-z0-9_./>-]*(?::[A-Za-z0-9_]+)*").fullmatch
_KIND: Final = re.compile(r"\w+|list\(\w+\)").fullmatch


def lines_of(graph: Graph) -> Iterator[str]:
    """The lines of a graph, without their ends."""
    printer = AttrPrinter()
    yield from _versions(graph)
    for node in graph:
        line = _node_line(node, serde.written_inputs(node), printer)
        yield line + " exact" if lacks_attrs(node) and attrs_from_inputs(node) else line
    for function in graph.functions.values():
        yield ""
        yield from _function_lines(function, printer)
    for name, gradient in graph.gradient_functions.items():
        yield f"gradient {name_text(name)} = {name_text(gradient)}"
    extra = serde.extra_of_graph(graph)
    if extra:
        yield f"extra {raw_text(extra)}"


def _versions(graph: Graph) -> Iterator[str]:
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


def _node_line(node: Node | BodyNode, inputs: Iterable[str], printer: AttrPrinter) -> str:
    texts = ", ".join(map(_tensor_text, inputs))
    line = f"{name_text(node.name)} = {name_text(node.op)}({texts})"
    attrs = serde.encoded_attrs(node)
    if attrs:
        line += " {" + ", ".join([printer.pair(key, data) for key, data in attrs]) + "}"
    if node.device:
        line += " @" + string_text(node.device.encode())
    full, extra = serde.extra_of_node(node)
    if full is not None:
        line += f" type {type_text(full)}"
    return f"{line} extra {raw_text(extra)}" if extra else line


def _tensor_text(text: str) -> str:
    return text if _TENSOR(text) else string_text(text.encode())


# -- functions -----------------------------------------------------------------------------------


def _function_lines(function: Function, printer: AttrPrinter) -> Iterator[str]:
    extra = extra_of_function(function)
    definition = function.definition
    if extra is None or not _has_words(definition):
        yield f"function {name_text(function.name)} {raw_text(function_to_bytes(function))}"
        return
    notes = definition.arg_attrs
    inputs = [
        arg_text(arg) + (" " + printer.attrs_text(notes[place]) if place in notes else "")
        for place, arg in enumerate(definition.inputs)
    ]
    outputs = map(arg_text, definition.outputs)
    name = name_text(function.name)
    yield f"function {name}({', '.join(inputs)}) -> ({', '.join(outputs)}) {{"
    for line in _body_lines(definition, printer):
        yield "  " + line
    if extra:
        yield f"  extra {raw_text(extra)}"
    yield "}"


def _has_words(definition: Definition) -> bool:
    """True if the block says everything: what it leaves unsaid follows from what it says."""
    controls = definition.control_outputs
    return (
        len(set(controls)) == len(controls)
        and definition.control_returns.keys() <= set(controls)
        and all(0 <= place < len(definition.inputs) for place in definition.arg_attrs)
        and all(_has_type(arg) for arg in (*definition.inputs, *definition.outputs))
    )


def _has_type(arg: Arg) -> bool:
    """True if the name of the type means this type, and not a reference to another one."""
    if arg.dtype is None:
        return bool(arg.type_attr)
    return not arg.dtype.is_ref and arg.dtype.number >= 0


def _body_lines(definition: Definition, printer: AttrPrinter) -> Iterator[str]:
    for attr in definition.attr_defs.values():
        yield attr_def_text(attr, printer)
    if definition.attrs:
        yield f"attrs {printer.attrs_text(definition.attrs)}"
    if definition.stateful:
        yield "stateful"
    names = Names(definition.inputs, {node.name: node.op for node in definition.nodes})
    told = attrs_from_types(names, definition.nodes)
    for node in definition.nodes:
        line = _node_line(node, node.inputs, printer)
        exact = node.name in told or any(names.full(text) != text for text in node.inputs)
        yield line + " exact" if exact else line
    for output, tensor in definition.returns.items():
        exact = names.full(tensor) != tensor
        text = string_text(tensor.encode()) if exact else _tensor_text(tensor)
        yield f"return {name_text(output)} = {text}"
    for output in definition.control_outputs:
        if output in definition.control_returns:
            returned = definition.control_returns[output]
            yield f"control_return {name_text(output)} = {name_text(returned)}"
        else:
            yield f"control_return {name_text(output)}"


def arg_text(arg: Arg) -> str:
    """An argument of a function: its name, and its type or the attribute that names it."""
    kind = str(arg.dtype) if arg.dtype is not None else _type_attr_text(arg.type_attr or "")
    kind = f"Ref({kind})" if arg.is_ref else kind
    count = f"{name_text(arg.count)}*" if arg.count else ""
    return f"{name_text(arg.name)}: {count}{kind}"


def _type_attr_text(name: str) -> str:
    """The name of a type attribute; in quotes where it could be taken for a type."""
    try:
        DType.named(name)
    except KeyError:
        return name_text(name)
    return string_text(name.encode())


def attr_def_text(attr: Attr, printer: AttrPrinter) -> str:
    """An attribute that a function declares: its kind, bounds and default."""
    kind = attr.kind if _KIND(attr.kind) else string_text(attr.kind.encode())
    text = f"attr {name_text(attr.name)}: {kind}"
    if attr.minimum is not None:
        text += f" >= {attr.minimum}"
    if attr.has_default:
        text += f" = {printer.value_text(attr.default)}"
    if attr.allowed is not None:
        text += f" in {printer.value_text(attr.allowed)}"
    return text
