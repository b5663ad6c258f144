"""Graphs in the `.graph` text format: one line per node, functions in blocks.

    versions producer=1882
    x = Placeholder() {dtype=float32, shape=[2,?]}
    z = Mul(x, y:1, ^c) {T=float32} @"/device:CPU:0"
    function double(x: float32) -> (z: float32) {
      two = Const() {dtype=float32, value=float32[]:2.0}
      mul = Mul(x, two:output:0) {T=float32}
      return z = mul:z:0
    }

A full type may follow a node (`type product[tensor[float]]`).

The format is lossless. Data without a textual form are written in base64: `raw"..."`. Nodes may
appear in any order, and `#` starts a comment. Type and count attributes that follow from the inputs
of a node may be omitted if the op is known; a node that really lacks them is marked `exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.serde import graph_def
from cfgraph.ir.text.inferred_attrs import complete_node_attrs
from cfgraph.ir.text.lexer import LineReader, parse_int, parse_raw
from cfgraph.ir.text.printer import graph_lines
from cfgraph.ir.text.statements import ParsedNode, is_node_line, parse_function, parse_node
from cfgraph.ir.text.values import parse_value


def print_graph(graph: Graph) -> str:
    """The readable form of a graph; equal graphs give equal texts."""
    with paused_gc():
        return "".join([f"{line}\n" for line in graph_lines(graph)])


def parse_graph(text: str) -> Graph:
    """The graph of a readable form.

    Raises InvalidInput, with line, column and what was expected, where the text is none, and with
    all findings where its nodes do not make a graph.
    """
    return parse_statements(text)


_INT32: Final = range(-(1 << 31), 1 << 31)


def parse_statements(text: str) -> Graph:
    """The graph of a text. Raises InvalidInput where it is none."""
    graph = Graph()
    nodes: list[ParsedNode] = []
    lines = _token_lines(text)
    with paused_gc():
        for line in lines:
            if is_node_line(line):
                nodes.append(parse_node(line))
            else:
                _parse_statement(line, lines, graph)
        graph.load(
            (node.name, node.op, node.inputs, node.device, node.attrs, node.origin)
            for node in nodes
        )
    complete_node_attrs(graph[node.name] for node in nodes if not node.exact)
    return graph


def _token_lines(text: str) -> Iterator[LineReader]:
    for number, content in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = LineReader(content, number)
        if line.token:
            yield line


def _parse_statement(line: LineReader, lines: Iterator[LineReader], graph: Graph) -> None:
    if line.token == "function":
        function = parse_function(line, lines)
        if function.name in graph.functions:
            line.place = 1
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
        if line.take("producer"):
            line.expect("=")
            producer = parse_int(line, _INT32)
        elif line.take("min_consumer"):
            line.expect("=")
            min_consumer = parse_int(line, _INT32)
        elif line.take("bad_consumers"):
            line.expect("=")
            bad = _parse_int32_list(line)
        else:
            raise line.error("'producer', 'min_consumer' or 'bad_consumers' was expected")
    graph.versions = Versions(producer, min_consumer, bad)


def _parse_int32_list(line: LineReader) -> tuple[int, ...]:
    start = line.place
    numbers = parse_value(line)
    if not isinstance(numbers, tuple) or not all(
        type(number) is int and number in _INT32 for number in numbers
    ):
        line.place = start
        raise line.error("numbers such as (1, 2) were expected")
    return numbers


def _parse_gradient(line: LineReader, graph: Graph) -> None:
    name = line.name("the name of a function")
    if name in graph.gradient_functions:
        raise line.error(f"the gradient of {name!r} is given twice")
    line.expect("=")
    graph.gradient_functions[name] = line.name("the name of a function")


def _parse_extra(line: LineReader, graph: Graph) -> None:
    try:
        graph.origin = graph_def.graph_origin(parse_raw(line))
    except InvalidInput as error:
        if error.code == "CFG004":
            raise
        line.place = 0
        raise line.error(f"an extra that can be decoded was expected ({error})") from None


_STATEMENT_PARSERS: Final[dict[str, Callable[[LineReader, Graph], None]]] = {
    "versions": _parse_versions,
    "gradient": _parse_gradient,
    "extra": _parse_extra,
}
