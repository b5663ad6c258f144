"""Parser of the text format: statements of a graph, nodes, and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import EncodedAttr
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.serde import graph_def
from cfgraph.ir.serde.functions import function_from_bytes, function_from_definition
from cfgraph.ir.signature import ArgDef, AttrDef
from cfgraph.ir.source_lines import source_lines
from cfgraph.ir.text.inferred_attrs import BodyTensors, complete_node_attrs, infer_body_attrs
from cfgraph.ir.text.lexer import INT64_RANGE, LineReader, parse_full_type, parse_int, parse_raw
from cfgraph.ir.text.values import parse_attrs, parse_dtype, parse_value

_UTF8_BOM: Final = b"\xef\xbb\xbf"
_INT32: Final = range(-(1 << 31), 1 << 31)


def parse_graph(text: str | bytes) -> Graph:
    """Parse a graph in the text format; bytes are decoded line by line.

    Raises InvalidInput, with line, column, and the expected token, for a syntax error; with all
    findings for invalid edges.
    """
    graph = Graph()
    nodes: list[BodyNode] = []
    inferable: list[str] = []
    lines = _token_lines(text)
    with paused_gc():
        for line in lines:
            if is_node_line(line):
                nodes.append(parse_node(line))
                if not _is_exact(line):
                    inferable.append(nodes[-1].name)
            else:
                _parse_statement(line, lines, graph)
        graph.load(
            (node.name, node.op, node.inputs, node.device, dict(node.attrs), node.origin)
            for node in nodes
        )
    complete_node_attrs(graph[name] for name in inferable)
    return graph


def _token_lines(text: str | bytes) -> Iterator[LineReader]:
    # the reader of a string rejects surrogates
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    for number, content in source_lines(data.removeprefix(_UTF8_BOM), "surrogatepass"):
        line = LineReader(content, number)
        if line.token:
            yield line


def _parse_statement(line: LineReader, lines: Iterator[LineReader], graph: Graph) -> None:
    if line.token == "function":
        function = parse_function(line, lines)
        if function.name in graph.functions:
            line.index = 1
            raise line.error(f"function {function.name!r} is defined twice")
        graph.functions[function.name] = function
        return
    statement = _STATEMENT_PARSERS.get(line.token)
    if statement is None:
        raise line.error("a node such as 'z = Mul(x, y)', or a function, was expected")
    line.next()
    statement(line, graph)
    line.expect("")


def _parse_versions(line: LineReader, graph: Graph) -> None:
    producer, min_consumer, bad = graph.versions
    while line.token:
        if line.accept("producer"):
            line.expect("=")
            producer = parse_int(line, _INT32)
        elif line.accept("min_consumer"):
            line.expect("=")
            min_consumer = parse_int(line, _INT32)
        elif line.accept("bad_consumers"):
            line.expect("=")
            bad = _parse_int32_list(line)
        else:
            raise line.error("'producer', 'min_consumer' or 'bad_consumers' was expected")
    graph.versions = Versions(producer, min_consumer, bad)


def _parse_int32_list(line: LineReader) -> tuple[int, ...]:
    start = line.index
    numbers = parse_value(line)
    if not isinstance(numbers, tuple) or not all(
        type(number) is int and number in _INT32 for number in numbers
    ):
        line.index = start
        raise line.error("numbers such as (1, 2) were expected")
    return numbers


def _parse_gradient(line: LineReader, graph: Graph) -> None:
    name = line.name("the name of a function")
    if name in graph.gradient_functions:
        raise line.error(f"the gradient of {name!r} is defined twice")
    line.expect("=")
    graph.gradient_functions[name] = line.name("the name of a function")


def _parse_extra(line: LineReader, graph: Graph) -> None:
    with line.expecting("an extra that can be decoded was", 0):
        graph.origin = graph_def.graph_origin(parse_raw(line))


_STATEMENT_PARSERS: Final[dict[str, Callable[[LineReader, Graph], None]]] = {
    "versions": _parse_versions,
    "gradient": _parse_gradient,
    "extra": _parse_extra,
}


def is_node_line(line: LineReader) -> bool:
    """True if the line assigns to a name, as only nodes do."""
    return line.tokens[1:2] == ["="]


def _is_exact(line: LineReader) -> bool:
    """True if the line is marked `exact`: attributes must not be inferred."""
    return line.tokens[-2] == "exact"


def parse_node(line: LineReader, name_of: Callable[[str], str] | None = None) -> BodyNode:
    """Read a line as a node; `name_of` completes its input names unless it is exact.

    Raises InvalidInput if it is not a node.
    """
    name = line.name("the name of a node")
    line.expect("=")
    op, inputs = line.name("the op of the node"), _parse_inputs(line)
    if name_of is not None and not _is_exact(line):
        inputs = [text if text[:1] == "^" else name_of(text) for text in inputs]
    attrs = parse_attrs(line) if line.token == "{" else {}
    device = line.string("a device in quotes") if line.accept("@") else ""
    full = parse_full_type(line) if line.accept("type") else None
    extra = parse_raw(line) if line.accept("extra") else b""
    line.accept("exact")
    line.expect("")
    raws = {key: value.data for key, value in attrs.items() if type(value) is EncodedAttr}
    unusual = inputs if _has_unusual_inputs(inputs) else ()
    origin = None
    if full or extra or raws or unusual:
        with line.expecting("a node whose base64 can be decoded was", 0):
            origin = graph_def.node_origin(extra, full, unusual, raws)
        attrs |= origin[1]
    return BodyNode(name, op, tuple(inputs), device, attrs, origin)


def _parse_inputs(line: LineReader) -> list[str]:
    return [_parse_tensor_name(line) for _ in line.items("(", ")")]


def _parse_tensor_name(line: LineReader) -> str:
    """Read an input: `x`, `x:1`, `^x`, in functions `x:output:1`."""
    if line.token[:1] == '"':
        return line.string("an input")
    prefix = "^" if line.accept("^") else ""
    text = prefix + line.name("an input")
    while line.accept(":"):
        text += ":" + line.name("the number of an output")
    return text


def _has_unusual_inputs(inputs: list[str]) -> bool:
    """True if inputs are not in the canonical form: `x:0`, or `^c` twice."""
    if not inputs:
        return False
    controls = [text for text in inputs if text[0:1] == "^"]
    return len(set(controls)) < len(controls) or any(text.endswith(":0") for text in inputs)


@dataclass(slots=True)
class _FunctionBlock:
    """Statements of a function block parsed so far."""

    names: BodyTensors
    outputs: tuple[ArgDef, ...]
    attr_defs: dict[str, AttrDef] = field(default_factory=dict)
    nodes: list[BodyNode] = field(default_factory=list)
    inferable: list[BodyNode] = field(default_factory=list)
    returns: dict[str, str] = field(default_factory=dict)
    control_outputs: list[str] = field(default_factory=list)
    control_returns: dict[str, str] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    stateful: bool = False
    extra: bytes = b""


def parse_function(header: LineReader, lines: Iterator[LineReader]) -> Function:
    """Read a function: its header, and lines up to the end of the block."""
    header.expect("function")
    name = header.name("the name of a function")
    if header.token == "raw":
        return _function_from_raw(header, name)
    notes: dict[int, dict[str, Any]] = {}
    inputs = _parse_args(header, notes)
    header.expect("->")
    outputs = _parse_args(header, None)
    header.expect("{")
    header.expect("")
    body = list(_parse_body(header, name, lines))
    ops = {line.tokens[0]: line.tokens[2] for line in body if is_node_line(line)}
    block = _FunctionBlock(BodyTensors(inputs, ops), outputs)
    for line in body:
        _parse_block_statement(line, block)
    inferred = infer_body_attrs(block.names, block.inferable)
    definition = FunctionDefinition(
        inputs=inputs,
        outputs=outputs,
        attr_defs=block.attr_defs,
        nodes=tuple(
            replace(node, attrs={**node.attrs, **inferred[node.name]})
            if node.name in inferred
            else node
            for node in block.nodes
        ),
        returns=block.returns,
        control_outputs=tuple(block.control_outputs),
        control_returns=block.control_returns,
        attrs=block.attrs,
        stateful=block.stateful,
        arg_attrs=notes,
    )
    with header.expecting("a function that can be encoded was", 0):
        return function_from_definition(name, definition, block.extra)


def _parse_body(header: LineReader, name: str, lines: Iterator[LineReader]) -> Iterator[LineReader]:
    """Lines up to the end of a block."""
    for line in lines:
        if line.accept("}"):
            line.expect("")
            return
        yield line
    raise header.error(f"function {name!r} is not closed: a line '}}' was expected")


def _function_from_raw(line: LineReader, name: str) -> Function:
    data = parse_raw(line)
    line.expect("")
    with line.expecting("a function that can be encoded was", 0):
        return function_from_bytes(name, data)


def _parse_args(line: LineReader, notes: dict[int, dict[str, Any]] | None) -> tuple[ArgDef, ...]:
    args: list[ArgDef] = []
    for index in line.items("(", ")"):
        args.append(_parse_arg(line))
        if notes is not None and line.token == "{":
            notes[index] = parse_attrs(line)
    return tuple(args)


def _parse_arg(line: LineReader) -> ArgDef:
    name = line.name("the name of an argument")
    line.expect(":")
    count = None
    if line.tokens[line.index + 1 : line.index + 2] == ["*"]:
        count = line.name("the name of a count")
        line.expect("*")
    is_ref = line.tokens[line.index : line.index + 2] == ["Ref", "("]
    if is_ref:
        line.next()
        line.expect("(")
    dtype, type_attr = _parse_arg_type(line)
    if is_ref:
        line.expect(")")
    return ArgDef(name, dtype, type_attr, count, is_ref)


def _parse_arg_type(line: LineReader) -> tuple[DType | None, str | None]:
    if line.token[:1] != '"':
        try:
            return parse_dtype(line), None
        except InvalidInput:
            pass
    return None, line.name("a type, or the attribute that holds it")


def _parse_block_statement(line: LineReader, block: _FunctionBlock) -> None:
    if is_node_line(line):
        block.nodes.append(parse_node(line, block.names.full))
        if not _is_exact(line):
            block.inferable.append(block.nodes[-1])
        return
    statement = _BLOCK_PARSERS.get(line.token)
    if statement is None:
        raise line.error("a node, 'return', or '}' was expected")
    line.next()
    statement(line, block)
    line.expect("")


def _parse_attr_def(line: LineReader, block: _FunctionBlock) -> None:
    name = line.name("the name of an attribute")
    if name in block.attr_defs:
        raise line.error(f"the attribute {name!r} is declared twice")
    line.expect(":")
    kind = line.name("the kind of the attribute")
    if kind == "list" and line.accept("("):
        kind = f"list({line.name('the kind of the elements')})"
        line.expect(")")
    minimum = parse_int(line, INT64_RANGE) if line.accept(">=") else None
    has_default = line.accept("=")
    default = parse_value(line) if has_default else None
    allowed = parse_value(line) if line.accept("in") else None
    block.attr_defs[name] = AttrDef(name, kind, default, has_default, minimum, allowed)


def _parse_function_attrs(line: LineReader, block: _FunctionBlock) -> None:
    block.attrs |= parse_attrs(line)


def _parse_stateful(line: LineReader, block: _FunctionBlock) -> None:
    block.stateful = True


def _parse_return(line: LineReader, block: _FunctionBlock) -> None:
    if "=" not in line.tokens:
        _parse_return_list(line, block)
        return
    name = line.name("the name of an output")
    if name in block.returns:
        raise line.error(f"the output {name!r} is returned twice")
    line.expect("=")
    block.returns[name] = _parse_returned(line, block)


def _parse_return_list(line: LineReader, block: _FunctionBlock) -> None:
    """Read one tensor per output, in order: `return sum:z:0, x`."""
    if block.returns:
        raise line.error("the name of an output and '=' was expected, as before")
    for index, output in enumerate(block.outputs):
        if index and not line.accept(","):
            raise line.error(f"',' and a tensor for the output {output.name!r} was expected")
        block.returns[output.name] = _parse_returned(line, block)


def _parse_returned(line: LineReader, block: _FunctionBlock) -> str:
    exact = line.token[:1] == '"'
    text = _parse_tensor_name(line)
    return text if exact else block.names.full(text)


def _parse_control_return(line: LineReader, block: _FunctionBlock) -> None:
    name = line.name("the name of a control output")
    if name in block.control_outputs:
        raise line.error(f"the control output {name!r} is returned twice")
    block.control_outputs.append(name)
    if line.accept("="):
        block.control_returns[name] = line.name("the name of a node")


def _parse_function_extra(line: LineReader, block: _FunctionBlock) -> None:
    block.extra = parse_raw(line)


_BLOCK_PARSERS: Final[dict[str, Callable[[LineReader, _FunctionBlock], None]]] = {
    "attr": _parse_attr_def,
    "attrs": _parse_function_attrs,
    "stateful": _parse_stateful,
    "return": _parse_return,
    "control_return": _parse_control_return,
    "extra": _parse_function_extra,
}
