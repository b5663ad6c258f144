"""Nodes read from the readable form: `z = Mul(x, y:1, ^c) {T=float32} @"/device:CPU:0"`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cfgraph.errors import InvalidInput
from cfgraph.ir import serde
from cfgraph.ir.attrs import Raw
from cfgraph.ir.serde_types import FullType
from cfgraph.ir.text_lex import Line
from cfgraph.ir.text_parse_scalars import parse_raw
from cfgraph.ir.text_parse_values import parse_attrs
from cfgraph.ir.text_types import parse_type


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


def is_node(line: Line) -> bool:
    """True if the line assigns to a name, as nodes do and no other statement does."""
    return line.tokens[1:2] == ["="]


def parse_node(line: Line, name_of: Callable[[str], str] | None = None) -> ParsedNode:
    """Read a whole line as a node, its inputs by the names that `name_of` gives unless it is exact.

    Raises InvalidInput where it is none.
    """
    name = line.name("the name of a node")
    line.expect("=")
    node = ParsedNode(name, line.name("the op of the node"), _inputs(line), {})
    if name_of is not None and line.tokens[-2] != "exact":
        node.inputs = [text if text[:1] == "^" else name_of(text) for text in node.inputs]
    if line.token == "{":
        node.attrs = parse_attrs(line)
    if line.take("@"):
        node.device = line.string("a device in quotes")
    full = parse_type(line) if line.take("type") else None
    extra = parse_raw(line) if line.take("extra") else b""
    node.exact = line.take("exact")
    line.expect("")
    raws = {key: value.data for key, value in node.attrs.items() if type(value) is Raw}
    unusual = node.inputs if _is_unusual(node.inputs) else ()
    if full or extra or raws or unusual:
        node.origin = _origin(line, extra, full, unusual, raws)
        node.attrs |= node.origin[1]
    return node


def _inputs(line: Line) -> list[str]:
    line.expect("(")
    inputs: list[str] = []
    while not line.take(")"):
        if inputs and not line.take(","):
            raise line.error("',' or ')' was expected")
        inputs.append(parse_tensor(line))
    return inputs


def parse_tensor(line: Line) -> str:
    """Read an input: `x`, `x:1`, `^x`, in functions `x:output:1`."""
    if line.token[:1] == '"':
        return line.string("an input")
    prefix = "^" if line.take("^") else ""
    text = prefix + line.name("an input")
    while line.take(":"):
        text += ":" + line.name("the number of an output")
    return text


def _is_unusual(inputs: list[str]) -> bool:
    """True if the words differ from those that we would choose: `x:0`, `^c` twice."""
    if not inputs:
        return False
    controls = [text for text in inputs if text[0:1] == "^"]
    return len(set(controls)) < len(controls) or any(text.endswith(":0") for text in inputs)


def _origin(
    line: Line, extra: bytes, full: FullType | None, inputs: Iterable[str], raws: dict[str, bytes]
) -> Any:
    try:
        return serde.node_origin(extra, full, inputs, raws)
    except InvalidInput as error:
        line.place = 0
        raise line.error(f"a node whose base64 can be decoded was expected ({error})") from None
