"""Parser of the text format: statements of a graph, nodes, and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import EncodedAttr
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.serde import graph_def
from cfgraph.ir.serde.functions import function_from_bytes, function_from_definition
from cfgraph.ir.serde.node_reader import has_unusual_inputs
from cfgraph.ir.signature import ArgDef, AttrDef
from cfgraph.ir.source_lines import source_lines
from cfgraph.ir.text.inferred_attrs import BodyTensors, complete_node_attrs, infer_body_attrs
from cfgraph.ir.text.lexer import INT64_RANGE, LineReader
from cfgraph.ir.text.values import parse_attrs, parse_dtype, parse_full_type, parse_value
from cfgraph.limits import check_deadline

_KNOWN_FORMATS: Final = (
    "if the file is not a graph: the known formats are .graph (text), .pb, .pbtxt, .meta,"
    " and SavedModels (folders)"
)
_UTF8_BOM: Final = b"\xef\xbb\xbf"
_INT32: Final = range(-(1 << 31), 1 << 31)
# the fields of a BodyNode
_NodeFields = tuple[str, str, tuple[str, ...], str, dict[str, Any], Any]
# attributes by the tokens that they were read from; longer ones rarely repeat
_KnownAttrs = dict[tuple[str, ...], dict[str, Any]]
_MAX_CACHED_TOKENS: Final = 64


def parse_graph(text: str | bytes) -> Graph:
    """Parse a graph in the text format; bytes are decoded line by line.

    Raises InvalidInput, with line, column, and the expected token, for a syntax error; with all
    findings for invalid edges.
    """
    graph = Graph()
    nodes: list[_NodeFields] = []
    known_attrs: _KnownAttrs = {}
    inferable: list[str] = []
    lines = _token_lines(text)
    with paused_gc():
        for line in lines:
            check_deadline()
            if _is_node(line):
                nodes.append(_parse_node(line, known_attrs))
                if not _is_exact(line):
                    inferable.append(nodes[-1][0])
            else:
                _parse_statement(line, lines, graph, not (nodes or graph.functions))
        graph.load(nodes)
    complete_node_attrs(graph[name] for name in inferable)
    return graph


def _token_lines(text: str | bytes) -> Iterator[LineReader]:
    # the reader of a string rejects surrogates
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    for number, content in source_lines(data.removeprefix(_UTF8_BOM), "surrogatepass"):
        line = LineReader(content, number)
        if line.token:
            yield line


def _parse_statement(
    line: LineReader, lines: Iterator[LineReader], graph: Graph, is_first: bool
) -> None:
    """Read a line that is no node; if nothing precedes it, the text may be no graph at all."""
    if line.accept("function"):
        name = line.name("the name of a function")
        function = _parse_function(line, name, lines)
        if name in graph.functions:
            line.index = 1
            raise line.error(f"function {name!r} is defined twice")
        graph.functions[name] = function
        return
    if line.accept("versions"):
        graph.versions = _parse_versions(line, graph.versions)
    elif line.accept("gradient"):
        name = line.name("the name of a function")
        if name in graph.gradient_functions:
            raise line.error(f"the gradient of {name!r} is defined twice")
        line.expect("=")
        graph.gradient_functions[name] = line.name("the name of a function")
    elif line.accept("extra"):
        with line.expecting("an extra that can be decoded was", 0):
            graph.origin = graph_def.graph_origin(line.raw())
    else:
        error = line.error("a node such as 'z = Mul(x, y)', or a function, was expected")
        error.hint = _KNOWN_FORMATS if is_first else None
        raise error
    line.expect("")


def _parse_versions(line: LineReader, versions: Versions) -> Versions:
    while line.token:
        key = line.token
        if key not in Versions._fields:
            raise line.error("'producer', 'min_consumer' or 'bad_consumers' was expected")
        line.index += 1
        line.expect("=")
        if key == "bad_consumers":
            versions = versions._replace(bad_consumers=_parse_int32_list(line))
        else:
            versions = Versions(**{**versions._asdict(), key: line.integer(_INT32)})
    return versions


def _parse_int32_list(line: LineReader) -> tuple[int, ...]:
    start = line.index
    numbers = parse_value(line)
    if not isinstance(numbers, tuple) or not all(
        type(number) is int and number in _INT32 for number in numbers
    ):
        line.index = start
        raise line.error("numbers such as (1, 2) were expected")
    return numbers


def _is_node(line: LineReader) -> bool:
    """True if the line assigns to a name, as only nodes do."""
    return line.following == "="


def _is_exact(line: LineReader) -> bool:
    """True if the line is marked `exact`: attributes must not be inferred."""
    return line.tokens[-2] == "exact"


def _parse_node(
    line: LineReader, known_attrs: _KnownAttrs, name_of: Callable[[str], str] | None = None
) -> _NodeFields:
    """Read a line as a node; `name_of` completes its input names unless it is exact."""
    name = line.name("the name of a node")
    line.expect("=")
    op = line.name("the op of the node")
    inputs = [_parse_tensor_name(line) for _ in line.items("(", ")")]
    if name_of is not None and not _is_exact(line):
        inputs = [text if text[:1] == "^" else name_of(text) for text in inputs]
    attrs = _parse_node_attrs(line, known_attrs) if line.token == "{" else {}
    device = line.string("a device in quotes") if line.accept("@") else ""
    full = parse_full_type(line) if line.accept("type") else None
    extra = line.raw() if line.accept("extra") else b""
    line.accept("exact")
    line.expect("")
    unusual = inputs if has_unusual_inputs(inputs) else ()
    raws: dict[str, bytes] = {}
    if "raw" in line.tokens:
        raws = {key: value.data for key, value in attrs.items() if type(value) is EncodedAttr}
    origin = None
    if full or extra or raws or unusual:
        with line.expecting("a node whose base64 can be decoded was", 0):
            origin = graph_def.node_origin(extra, full, unusual, raws)
        attrs |= origin[1]
    return name, op, tuple(inputs), device, attrs, origin


def _parse_node_attrs(line: LineReader, known: _KnownAttrs) -> dict[str, Any]:
    """Read attributes in braces; equal texts are parsed once."""
    start = line.index
    if "}" not in line.tokens[start : start + _MAX_CACHED_TOKENS]:
        return parse_attrs(line)
    key = tuple(line.tokens[start : line.tokens.index("}", start) + 1])
    attrs = known.get(key)
    if attrs is None:
        attrs = parse_attrs(line)
        # otherwise the brace ends the attributes of a function, inside of these
        if line.index == start + len(key):
            known[key] = attrs
    else:
        line.index = start + len(key)
    return attrs.copy()


def _parse_tensor_name(line: LineReader) -> str:
    """Read an input: `x`, `x:1`, `^x`, in functions `x:output:1`."""
    if line.token[:1] == '"':
        return line.string("an input")
    prefix = "^" if line.accept("^") else ""
    text = prefix + line.name("an input")
    while line.accept(":"):
        text += ":" + line.name("the number of an output")
    return text


def _parse_function(header: LineReader, name: str, lines: Iterator[LineReader]) -> Function:
    """Read a function from its arguments to the end of its block."""
    if header.token == "raw":
        data = header.raw()
        header.expect("")
        with header.expecting("a function that can be encoded was", 0):
            return function_from_bytes(name, data)
    arg_attrs: dict[int, dict[str, Any]] = {}
    inputs = _parse_args(header, arg_attrs)
    header.expect("->")
    outputs = _parse_args(header, None)
    header.expect("{")
    header.expect("")
    body = list(_block_lines(header, name, lines))
    ops = {line.tokens[0]: line.tokens[2] for line in body if _is_node(line)}
    block = _BlockParser(BodyTensors(inputs, ops), outputs)
    for line in body:
        block.parse(line)
    definition = block.definition(inputs, arg_attrs)
    with header.expecting("a function that can be encoded was", 0):
        return function_from_definition(name, definition, block.extra)


def _block_lines(
    header: LineReader, name: str, lines: Iterator[LineReader]
) -> Iterator[LineReader]:
    """Lines up to the end of a block."""
    for line in lines:
        if line.accept("}"):
            line.expect("")
            return
        yield line
    raise header.error(f"function {name!r} is not closed: a line '}}' was expected")


def _parse_args(
    line: LineReader, arg_attrs: dict[int, dict[str, Any]] | None
) -> tuple[ArgDef, ...]:
    args: list[ArgDef] = []
    for index in line.items("(", ")"):
        args.append(_parse_arg(line))
        if arg_attrs is not None and line.token == "{":
            arg_attrs[index] = parse_attrs(line)
    return tuple(args)


def _parse_arg(line: LineReader) -> ArgDef:
    name = line.name("the name of an argument")
    line.expect(":")
    count = None
    if line.following == "*":
        count = line.name("the name of a count")
        line.expect("*")
    is_ref = line.token == "Ref" and line.following == "("
    line.index += 2 * is_ref
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


class _BlockParser:
    """Parser of the statements of a function's block."""

    def __init__(self, names: BodyTensors, outputs: tuple[ArgDef, ...]) -> None:
        self.names = names
        self.outputs = outputs
        self.known_attrs: _KnownAttrs = {}
        self.attr_defs: dict[str, AttrDef] = {}
        self.nodes: list[BodyNode] = []
        self.inferable: list[BodyNode] = []
        self.returns: dict[str, str] = {}
        self.control_outputs: list[str] = []
        self.control_returns: dict[str, str] = {}
        self.attrs: dict[str, Any] = {}
        self.stateful = False
        self.extra = b""

    def parse(self, line: LineReader) -> None:
        """Read one statement of a function's block."""
        if _is_node(line):
            self.nodes.append(BodyNode(*_parse_node(line, self.known_attrs, self.names.full)))
            if not _is_exact(line):
                self.inferable.append(self.nodes[-1])
            return
        if line.accept("attr"):
            self._parse_attr_def(line)
        elif line.accept("attrs"):
            self.attrs |= parse_attrs(line)
        elif line.accept("stateful"):
            self.stateful = True
        elif line.accept("return"):
            (self._parse_return if "=" in line.tokens else self._parse_return_list)(line)
        elif line.accept("control_return"):
            self._parse_control_return(line)
        elif line.accept("extra"):
            self.extra = line.raw()
        else:
            raise line.error("a node, 'return', or '}' was expected")
        line.expect("")

    def _parse_attr_def(self, line: LineReader) -> None:
        name = line.name("the name of an attribute")
        if name in self.attr_defs:
            raise line.error(f"the attribute {name!r} is declared twice")
        line.expect(":")
        kind = line.name("the kind of the attribute")
        if kind == "list" and line.accept("("):
            kind = f"list({line.name('the kind of the elements')})"
            line.expect(")")
        minimum = line.integer(INT64_RANGE) if line.accept(">=") else None
        has_default = line.accept("=")
        default = parse_value(line) if has_default else None
        allowed = parse_value(line) if line.accept("in") else None
        self.attr_defs[name] = AttrDef(name, kind, default, has_default, minimum, allowed)

    def _parse_return(self, line: LineReader) -> None:
        name = line.name("the name of an output")
        if name in self.returns:
            raise line.error(f"the output {name!r} is returned twice")
        line.expect("=")
        self.returns[name] = self._parse_returned(line)

    def _parse_return_list(self, line: LineReader) -> None:
        """Read one tensor per output, in order: `return sum:z:0, x`."""
        if self.returns:
            raise line.error("the name of an output and '=' was expected, as before")
        for index, output in enumerate(self.outputs):
            if index and not line.accept(","):
                raise line.error(f"',' and a tensor for the output {output.name!r} was expected")
            self.returns[output.name] = self._parse_returned(line)

    def _parse_returned(self, line: LineReader) -> str:
        exact = line.token[:1] == '"'
        text = _parse_tensor_name(line)
        return text if exact else self.names.full(text)

    def _parse_control_return(self, line: LineReader) -> None:
        name = line.name("the name of a control output")
        if name in self.control_outputs:
            raise line.error(f"the control output {name!r} is returned twice")
        self.control_outputs.append(name)
        if line.accept("="):
            self.control_returns[name] = line.name("the name of a node")

    def definition(
        self, inputs: tuple[ArgDef, ...], arg_attrs: dict[int, dict[str, Any]]
    ) -> FunctionDefinition:
        """The function, with inferred attributes."""
        inferred = infer_body_attrs(self.names, self.inferable)
        return FunctionDefinition(
            inputs=inputs,
            outputs=self.outputs,
            attr_defs=self.attr_defs,
            nodes=tuple(
                replace(node, attrs={**node.attrs, **inferred[node.name]})
                if node.name in inferred
                else node
                for node in self.nodes
            ),
            returns=self.returns,
            control_outputs=tuple(self.control_outputs),
            control_returns=self.control_returns,
            attrs=self.attrs,
            stateful=self.stateful,
            arg_attrs=arg_attrs,
        )
