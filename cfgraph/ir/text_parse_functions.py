"""Functions read from the readable form: a block of a signature, a body and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Definition, Function
from cfgraph.ir.serde_functions import function_from_bytes, function_from_definition
from cfgraph.ir.signature import Arg, Attr
from cfgraph.ir.text_infer_bodies import Names, attrs_from_types
from cfgraph.ir.text_lex import Line
from cfgraph.ir.text_parse_nodes import ParsedNode, is_node, parse_node, parse_tensor
from cfgraph.ir.text_parse_scalars import INT64, parse_int, parse_raw
from cfgraph.ir.text_parse_values import parse_attrs, parse_dtype, parse_value


@dataclass(slots=True)
class _Block:
    """What the lines of a block have said so far."""

    names: Names
    outputs: tuple[Arg, ...]
    attr_defs: dict[str, Attr] = field(default_factory=dict)
    nodes: list[ParsedNode] = field(default_factory=list)
    returns: dict[str, str] = field(default_factory=dict)
    control_outputs: list[str] = field(default_factory=list)
    control_returns: dict[str, str] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    stateful: bool = False
    extra: bytes = b""


def parse_function(header: Line, lines: Iterator[Line]) -> Function:
    """Read a function: its header, and lines up to the end of its block."""
    header.expect("function")
    name = header.name("the name of a function")
    if header.token == "raw":
        return _from_raw(header, name)
    notes: dict[int, dict[str, Any]] = {}
    inputs = _args(header, notes)
    header.expect("->")
    outputs = _args(header, None)
    header.expect("{")
    header.expect("")
    body = list(_body(header, name, lines))
    ops = {line.tokens[0]: line.tokens[2] for line in body if is_node(line)}
    block = _Block(Names(inputs, ops), outputs)
    for line in body:
        _statement(line, block)
    told = attrs_from_types(block.names, [node for node in block.nodes if not node.exact])
    definition = Definition(
        inputs=inputs,
        outputs=outputs,
        attr_defs=block.attr_defs,
        nodes=tuple(_body_node(node, told.get(node.name, {})) for node in block.nodes),
        returns=block.returns,
        control_outputs=tuple(block.control_outputs),
        control_returns=block.control_returns,
        attrs=block.attrs,
        stateful=block.stateful,
        arg_attrs=notes,
    )
    return _encoded(header, lambda: function_from_definition(name, definition, block.extra))


def _body(header: Line, name: str, lines: Iterator[Line]) -> Iterator[Line]:
    """The lines up to the end of a block."""
    for line in lines:
        if line.take("}"):
            line.expect("")
            return
        yield line
    raise header.error(f"function {name!r} has no end: a line '}}' was expected")


def _body_node(node: ParsedNode, told: Mapping[str, Any]) -> BodyNode:
    attrs = {**node.attrs, **told}
    return BodyNode(node.name, node.op, tuple(node.inputs), node.device, attrs, node.origin)


def _from_raw(line: Line, name: str) -> Function:
    data = parse_raw(line)
    line.expect("")
    return _encoded(line, lambda: function_from_bytes(name, data))


def _encoded(line: Line, make: Callable[[], Function]) -> Function:
    try:
        return make()
    except InvalidInput as error:
        line.place = 0
        raise line.error(f"a function that can be encoded was expected ({error})") from None


def _args(line: Line, notes: dict[int, dict[str, Any]] | None) -> tuple[Arg, ...]:
    line.expect("(")
    args: list[Arg] = []
    while not line.take(")"):
        if args and not line.take(","):
            raise line.error("',' or ')' was expected")
        args.append(_arg(line))
        if notes is not None and line.token == "{":
            notes[len(args) - 1] = parse_attrs(line)
    return tuple(args)


def _arg(line: Line) -> Arg:
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
    dtype, type_attr = _arg_type(line)
    if is_ref:
        line.expect(")")
    return Arg(name, dtype, type_attr, count, is_ref)


def _arg_type(line: Line) -> tuple[DType | None, str | None]:
    if line.token[:1] != '"':
        try:
            return parse_dtype(line), None
        except InvalidInput:
            pass
    return None, line.name("a type, or the attribute that holds it")


def _statement(line: Line, block: _Block) -> None:
    if is_node(line):
        block.nodes.append(parse_node(line, block.names.full))
        return
    statement = _STATEMENTS.get(line.token)
    if statement is None:
        raise line.error("a node, 'return', or '}' was expected")
    line.next()
    statement(line, block)
    line.expect("")


def _attr(line: Line, block: _Block) -> None:
    name = line.name("the name of an attribute")
    if name in block.attr_defs:
        raise line.error(f"the attribute {name!r} is declared twice")
    line.expect(":")
    kind = line.name("the kind of the attribute")
    if kind == "list" and line.take("("):
        kind = f"list({line.name('the kind of the elements')})"
        line.expect(")")
    minimum = parse_int(line, INT64) if line.take(">=") else None
    has_default = line.take("=")
    default = parse_value(line) if has_default else None
    allowed = parse_value(line) if line.take("in") else None
    block.attr_defs[name] = Attr(name, kind, default, has_default, minimum, allowed)


def _attrs(line: Line, block: _Block) -> None:
    block.attrs |= parse_attrs(line)


def _stateful(line: Line, block: _Block) -> None:
    block.stateful = True


def _return(line: Line, block: _Block) -> None:
    if "=" not in line.tokens:
        _return_all(line, block)
        return
    name = line.name("the name of an output")
    if name in block.returns:
        raise line.error(f"the output {name!r} is returned twice")
    line.expect("=")
    block.returns[name] = _returned(line, block)


def _return_all(line: Line, block: _Block) -> None:
    """Read a tensor for each output, in their order: `return sum:z:0, x`."""
    if block.returns:
        raise line.error("the name of an output and '=' was expected, as before")
    for place, output in enumerate(block.outputs):
        if place and not line.take(","):
            raise line.error(f"',' and a tensor for the output {output.name!r} was expected")
        block.returns[output.name] = _returned(line, block)


def _returned(line: Line, block: _Block) -> str:
    exact = line.token[:1] == '"'
    text = parse_tensor(line)
    return text if exact else block.names.full(text)


def _control_return(line: Line, block: _Block) -> None:
    name = line.name("the name of a control output")
    if name in block.control_outputs:
        raise line.error(f"the control output {name!r} is returned twice")
    block.control_outputs.append(name)
    if line.take("="):
        block.control_returns[name] = line.name("the name of a node")


def _extra(line: Line, block: _Block) -> None:
    block.extra = parse_raw(line)


_STATEMENTS: Final[dict[str, Callable[[Line, _Block], None]]] = {
    "attr": _attr,
    "attrs": _attrs,
    "stateful": _stateful,
    "return": _return,
    "control_return": _control_return,
    "extra": _extra,
}
