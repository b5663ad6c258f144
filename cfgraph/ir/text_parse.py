"""Graphs read from the readable form: statements, one a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from cfgraph.errors import InvalidInput
from cfgraph.ir import serde
from cfgraph.ir.collector import without_collector
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.text_infer import complete_attrs
from cfgraph.ir.text_lex import Line
from cfgraph.ir.text_parse_functions import parse_function
from cfgraph.ir.text_parse_nodes import ParsedNode, is_node, parse_node
from cfgraph.ir.text_parse_scalars import parse_int, parse_raw
from cfgraph.ir.text_parse_values import parse_value

_INT32: Final = range(-(1 << 31), 1 << 31)


def read_graph(text: str) -> Graph:
    """The graph of a text. Raises InvalidInput where it is none."""
    graph = Graph()
    nodes: list[ParsedNode] = []
    lines = _lines(text)
    with without_collector():
        for line in lines:
            if is_node(line):
                nodes.append(parse_node(line))
            else:
                _statement(line, lines, graph)
        graph.load(
            (node.name, node.op, node.inputs, node.device, node.attrs, node.origin)
            for node in nodes
        )
    complete_attrs(graph[node.name] for node in nodes if not node.exact)
    return graph


def _lines(text: str) -> Iterator[Line]:
    for number, content in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = Line(content, number)
        if line.token:
            yield line


def _statement(line: Line, lines: Iterator[Line], graph: Graph) -> None:
    if line.token == "function":
        function = parse_function(line, lines)
        if function.name in graph.functions:
            line.place = 1
            raise line.error(f"function {function.name!r} is defined twice")
        graph.functions[function.name] = function
        return
    statement = _STATEMENTS.get(line.token)
    if statement is None:
        raise line.error("a node such as 'z = Mul(x, y)', or a function, was expected")
    line.next()
    statement(line, graph)
    line.expect("")


def _versions(line: Line, graph: Graph) -> None:
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
            bad = _numbers(line)
        else:
            raise line.error("'producer', 'min_consumer' or 'bad_consumers' was expected")
    graph.versions = Versions(producer, min_consumer, bad)


def _numbers(line: Line) -> tuple[int, ...]:
    start = line.place
    numbers = parse_value(line)
    if not isinstance(numbers, tuple) or not all(
        type(number) is int and number in _INT32 for number in numbers
    ):
        line.place = start
        raise line.error("numbers such as (1, 2) were expected")
    return numbers


def _gradient(line: Line, graph: Graph) -> None:
    name = line.name("the name of a function")
    if name in graph.gradient_functions:
        raise line.error(f"the gradient of {name!r} is given twice")
    line.expect("=")
    graph.gradient_functions[name] = line.name("the name of a function")


def _extra(line: Line, graph: Graph) -> None:
    try:
        graph.origin = serde.graph_origin(parse_raw(line))
    except InvalidInput as error:
        if error.code == "CFG004":
            raise
        line.place = 0
        raise line.error(f"an extra that can be decoded was expected ({error})") from None


_STATEMENTS: Final[dict[str, Callable[[Line, Graph], None]]] = {
    "versions": _versions,
    "gradient": _gradient,
    "extra": _extra,
}
