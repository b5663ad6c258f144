"""Parser of nodes and functions in the text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import EncodedAttr
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.serde import graph_def
from cfgraph.ir.serde.attrs import FullType
from cfgraph.ir.serde.functions import function_from_bytes, function_from_definition
from cfgraph.ir.signature import ArgDef, AttrDef
from cfgraph.ir.text.inferred_attrs import BodyTensors, infer_body_attrs
from cfgraph.ir.text.lexer import INT64_RANGE, LineReader, parse_full_type, parse_int, parse_raw
from cfgraph.ir.text.values import parse_attrs, parse_dtype, parse_value


@dataclass(slots=True)
class ParsedNode:
    """A node as a line gives it; `exact` forbids to infer the attributes that it lacks."""

    name: str
    op: str
    inputs: list[str]
    attrs: dict[str, Any]
    device: str = ""
    origin: Any = None
    exact: bool = False


def is_node_line(line: LineReader) -> bool:
    """True if the line assigns to a name, as nodes do and no other statement does."""
    return line.tokens[1:2] == ["="]


def parse_node(line: LineReader, name_of: Callable[[str], str] | None = None) -> ParsedNode:
    """Read a whole line as a node, its inputs by the names that `name_of` gives unless it is exact.

    Raises InvalidInput where it is none.
    """
    name = line.name("the name of a node")
    line.expect("=")
    node = ParsedNode(name, line.name("the op of the node"), _parse_inputs(line), {})
    if name_of is not None and line.tokens[-2] != "exact":
        node.inputs = [text if text[:1] == "^" else name_of(text) for text in node.inputs]
    if line.token == "{":
        node.attrs = parse_attrs(line)
    if line.take("@"):
        node.device = line.string("a device in quotes")
    full = parse_full_type(line) if line.take("type") else None
    extra = parse_raw(line) if line.take("extra") else b""
    node.exact = line.take("exact")
    line.expect("")
    raws = {key: value.data for key, value in node.attrs.items() if type(value) is EncodedAttr}
    unusual = node.inputs if _has_unusual_inputs(node.inputs) else ()
    if full or extra or raws or unusual:
        node.origin = _parse_origin(line, extra, full, unusual, raws)
        node.attrs |= node.origin[1]
    return node


def _parse_inputs(line: LineReader) -> list[str]:
    line.expect("(")
    inputs: list[str] = []
    while not line.take(")"):
        if inputs and not line.take(","):
            raise line.error("',' or ')' was expected")
        inputs.append(parse_tensor_name(line))
    return inputs


def parse_tensor_name(line: LineReader) -> str:
    """Read an input: `x`, `x:1`, `^x`, in functions `x:output:1`."""
    if line.token[:1] == '"':
        return line.string("an input")
    prefix = "^" if line.take("^") else ""
    text = prefix + line.name("an input")
    while line.take(":"):
        text += ":" + line.name("the number of an output")
    return text


def _has_unusual_inputs(inputs: list[str]) -> bool:
    """True if the words differ from those that we would choose: `x:0`, `^c` twice."""
    if not inputs:
        return False
    controls = [text for text in inputs if text[0:1] == "^"]
    return len(set(controls)) < len(controls) or any(text.endswith(":0") for text in inputs)


def _parse_origin(
    line: LineReader,
    extra: bytes,
    full: FullType | None,
    inputs: Iterable[str],
    raws: dict[str, bytes],
) -> Any:
    try:
        return graph_def.node_origin(extra, full, inputs, raws)
    except InvalidInput as error:
        line.place = 0
        raise line.error(f"a node whose base64 can be decoded was expected ({error})") from None


@dataclass(slots=True)
class _FunctionBlock:
    """What the lines of a block have said so far."""

    names: BodyTensors
    outputs: tuple[ArgDef, ...]
    attr_defs: dict[str, AttrDef] = field(default_factory=dict)
    nodes: list[ParsedNode] = field(default_factory=list)
    returns: dict[str, str] = field(default_factory=dict)
    control_outputs: list[str] = field(default_factory=list)
    control_returns: dict[str, str] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    stateful: bool = False
    extra: bytes = b""


def parse_function(header: LineReader, lines: Iterator[LineReader]) -> Function:
    """Read a function: its header, and lines up to the end of its block."""
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
    told = infer_body_attrs(block.names, [node for node in block.nodes if not node.exact])
    definition = FunctionDefinition(
        inputs=inputs,
        outputs=outputs,
        attr_defs=block.attr_defs,
        nodes=tuple(_make_body_node(node, told.get(node.name, {})) for node in block.nodes),
        returns=block.returns,
        control_outputs=tuple(block.control_outputs),
        control_returns=block.control_returns,
        attrs=block.attrs,
        stateful=block.stateful,
        arg_attrs=notes,
    )
    return _make_function(header, lambda: function_from_definition(name, definition, block.extra))


def _parse_body(header: LineReader, name: str, lines: Iterator[LineReader]) -> Iterator[LineReader]:
    """The lines up to the end of a block."""
    for line in lines:
        if line.take("}"):
            line.expect("")
            return
        yield line
    raise header.error(f"function {name!r} has no end: a line '}}' was expected")


def _make_body_node(node: ParsedNode, told: Mapping[str, Any]) -> BodyNode:
    attrs = {**node.attrs, **told}
    return BodyNode(node.name, node.op, tuple(node.inputs), node.device, attrs, node.origin)


def _function_from_raw(line: LineReader, name: str) -> Function:
    data = parse_raw(line)
    line.expect("")
    return _make_function(line, lambda: function_from_bytes(name, data))


def _make_function(line: LineReader, make: Callable[[], Function]) -> Function:
    try:
        return make()
    except InvalidInput as error:
        line.place = 0
        raise line.error(f"a function that can be encoded was expected ({error})") from None


def _parse_args(line: LineReader, notes: dict[int, dict[str, Any]] | None) -> tuple[ArgDef, ...]:
    line.expect("(")
    args: list[ArgDef] = []
    while not line.take(")"):
        if args and not line.take(","):
            raise line.error("',' or ')' was expected")
        args.append(_parse_arg(line))
        if notes is not None and line.token == "{":
            notes[len(args) - 1] = parse_attrs(line)
    return tuple(args)


def _parse_arg(line: LineReader) -> ArgDef:
    name = line.name("the name of an argument")
    line.expect(":")
    count = None
    if line.tokens[line.place + 1 : line.place + 2] == ["*"]:
        count = line.name("the name of a count")
        line.expect("*")
    is_ref = line.tokens[line.place : line.place + 2] == ["Ref", "("]
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
    if kind == "list" and line.take("("):
        kind = f"list({line.name('the kind of the elements')})"
        line.expect(")")
    minimum = parse_int(line, INT64_RANGE) if line.take(">=") else None
    has_default = line.take("=")
    default = parse_value(line) if has_default else None
    allowed = parse_value(line) if line.take("in") else None
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
    """Read a tensor for each output, in their order: `return sum:z:0, x`."""
    if block.returns:
        raise line.error("the name of an output and '=' was expected, as before")
    for place, output in enumerate(block.outputs):
        if place and not line.take(","):
            raise line.error(f"',' and a tensor for the output {output.name!r} was expected")
        block.returns[output.name] = _parse_returned(line, block)


def _parse_returned(line: LineReader, block: _FunctionBlock) -> str:
    exact = line.token[:1] == '"'
    text = parse_tensor_name(line)
    return text if exact else block.names.full(text)


def _parse_control_return(line: LineReader, block: _FunctionBlock) -> None:
    name = line.name("the name of a control output")
    if name in block.control_outputs:
        raise line.error(f"the control output {name!r} is returned twice")
    block.control_outputs.append(name)
    if line.take("="):
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
