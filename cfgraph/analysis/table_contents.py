"""The rows of lookup tables, as far as a graph and its files determine them without a run.

The node that fills a table is one of the graph, or of a function that the graph calls with the
handle, as SavedModels do. Its keys and values are constants, or lines of an asset of the model. No
other file is read, whatever path the graph has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

from cfgraph.analysis.resource_handles import handle_uses
from cfgraph.analysis.tables import StaticTable, static_tables
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.file_io import read_file
from cfgraph.ir.functions import BodyNode, FunctionDefinition
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import function_calls, is_a, lookup, strip_identities
from cfgraph.reports import Column, Count, Maybe, Record

# late imports: few graphs have tables

# of a table: as examples, and with --full or in JSON
FEW_ROWS: Final = 3
MANY_ROWS: Final = 1024
_MAX_TEXT: Final = 24
# a tensor of the graph, or the value of a constant in a function; None for any other tensor
_Operand = Output | TensorValue | None


class TableContents(Record):
    """A lookup table that is filled once."""

    table: Annotated[str, Column(style="cyan", scoped=True)]
    type: str  #: Of a key and of its value.
    rows: Annotated[Count | None, Column(optional=True)]  #: None if only a run knows them.
    first: Annotated[Sequence[str], Column(title="first rows", optional=True)]
    #: The node of the graph that fills it, possibly by a function; None if there is none.
    filled_by: Annotated[str | None, Column(title="filled by", scoped=True)]
    #: The file of its lines.
    file: Annotated[Maybe[str], Column(title="from", optional=True)] = None


class _Initializer(NamedTuple):
    """A node that fills a table, or its call, and the tensors that the filling node reads."""

    node: Node
    filling: Node | BodyNode
    operands: Sequence[_Operand]


def table_contents(
    graph: Graph, assets: Mapping[str, str], limit: int = FEW_ROWS
) -> list[TableContents]:
    """The tables that are filled once; `assets` are paths of files, by input node."""
    return [_contents(graph, table, assets, limit) for table in static_tables(graph).values()]


def contents_of_node(
    graph: Graph, node: Node, assets: Mapping[str, str], limit: int = FEW_ROWS
) -> TableContents | None:
    """The table that a node is the handle of, or uses; None for a node without a single one."""
    handles = {node, *(strip_identities(tensor).node for tensor in node.inputs)}
    tables = [x for x in static_tables(graph).values() if not handles.isdisjoint(x.handles)]
    table = tables[0] if len(tables) == 1 else None
    return None if table is None else _contents(graph, table, assets, limit)


def _contents(
    graph: Graph, table: StaticTable, assets: Mapping[str, str], limit: int
) -> TableContents:
    handle = table.handles[0]
    types = f"{handle.attrs.get('key_dtype')} → {handle.attrs.get('value_dtype')}"
    found = next(_initializers(graph, table), None)
    if found is None:
        return TableContents(table.name, types, None, (), None)
    count, rows, file = _rows(graph, found, assets, limit)
    shown = tuple(f"{_shown(key)} → {_shown(value)}" for key, value in rows)
    return TableContents(table.name, types, count, shown, found.node.name, file)


def _shown(element: Any) -> str:
    text = decode_text(element) if isinstance(element, bytes) else str(element)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _initializers(graph: Graph, table: StaticTable) -> Iterator[_Initializer]:
    """The nodes that fill a table, and the calls that do."""
    for handle in table.handles:
        for use in handle_uses(handle.output())[0]:
            operands = use.node.inputs
            for filling, values in _filling_nodes(graph, use.node, use.slot, operands, ()):
                yield _Initializer(use.node, filling, values)


def _filling_nodes(
    graph: Graph,
    node: Node | BodyNode,
    slot: int,
    operands: Sequence[_Operand],
    callers: tuple[str, ...],
) -> Iterator[tuple[Node | BodyNode, Sequence[_Operand]]]:
    """A node that fills the table at an input, or those of the functions that it calls."""
    op, calls = lookup(node.op), function_calls(node.op)
    if op is not None and op.effects.initializes and slot == 0:
        yield node, operands
    for func in calls.named_in(node.attrs):
        function = graph.functions.get(func.name)
        position = slot - calls.first_argument
        if function is None or func.name in callers or position < 0:
            continue
        body, actual = function.definition, operands[calls.first_argument :]
        names = [argument.name for argument in body.inputs]
        values = dict(zip(names, actual, strict=False))
        for inner in body.nodes if position < len(names) else ():
            inputs = [text for text in inner.inputs if not text.startswith("^")]
            for inner_slot, text in enumerate(inputs):
                if text == names[position]:
                    read = [values.get(item) or _constant(body, item) for item in inputs]
                    deeper = (*callers, func.name)
                    yield from _filling_nodes(graph, inner, inner_slot, read, deeper)


def _constant(body: FunctionDefinition, text: str) -> TensorValue | None:
    """The value of a constant of a function."""
    name = text.partition(":")[0]
    value = next((node.attrs.get("value") for node in body.nodes if node.name == name), None)
    return value if isinstance(value, TensorValue) else None


def _rows(
    graph: Graph, found: _Initializer, assets: Mapping[str, str], limit: int
) -> tuple[int | None, list[tuple[Any, Any]], str | None]:
    """The number of rows, the first ones, and the file that has them."""
    from cfgraph.ops.families.lookup_table_files import InitializeTableFromTextFileV2

    filling = found.filling
    if is_a(filling, InitializeTableFromTextFileV2):
        path = _path(graph, found.operands[1], assets)
        known = path in assets.values()
        return (*_file_rows(filling, path, limit), path) if path and known else (None, [], path)
    keys, values = map(_array, found.operands[1:3])
    if keys is None or values is None or keys.size != values.size:
        return None, [], None
    pairs = zip(keys.ravel()[:limit], values.ravel()[:limit], strict=True)
    return keys.size, list(pairs), None


def _array(operand: _Operand) -> Any:
    """The value of a constant, or None."""
    if isinstance(operand, Output):
        operand = strip_identities(operand).node.attrs.get("value")
    return operand.array if isinstance(operand, TensorValue) else None


def _path(graph: Graph, operand: _Operand, assets: Mapping[str, str]) -> str | None:
    """The path that a tensor has: a constant, or that of an asset that is assigned to it."""
    constant = _array(operand)
    if constant is not None:
        return decode_text(constant.ravel()[0]) if constant.size else None
    if not isinstance(operand, Output):
        return None
    sources = [node.name for node in ancestors(graph, [operand.node])]
    return next((assets[name] for name in sources if name in assets), None)


def _file_rows(
    node: Node | BodyNode, path: str, limit: int
) -> tuple[int | None, list[tuple[Any, Any]]]:
    """The number of lines of a file, and the first rows that a node reads from it."""
    from cfgraph.ops.families.lookup_table_files import LINE_NUMBER, WHOLE_LINE

    try:
        lines = read_file(path).replace(b"\r", b"").removesuffix(b"\n").split(b"\n")
    except CfgraphError:
        return None, []
    delimiter = node.attrs.get("delimiter", b"\t")
    columns = [node.attrs.get(name, LINE_NUMBER) for name in ("key_index", "value_index")]
    rows = []
    for number, line in enumerate(islice(lines, limit)):
        fields = {WHOLE_LINE: line, LINE_NUMBER: number + node.attrs.get("offset", 0)}
        fields |= dict(enumerate(line.split(delimiter)))
        rows.append(tuple(fields.get(column, b"") for column in columns))
    return len(lines), [(key, value) for key, value in rows]
