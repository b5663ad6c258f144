"""Tables that are filled once, by a node of their own that no fetch depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from cfgraph.analysis.feeds_and_fetches import must_be_fed
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.resource_handles import handle_uses, variable_key
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import is_a, is_stateful, lookup

# late imports: few graphs have state

Key = tuple[str, str]


@dataclass(slots=True)
class StaticTable:
    """A table by its key and the name of its first handle, all handles, and the nodes that fill it.

    It `may_be_filled_elsewhere` if a function takes a handle.
    """

    key: Key
    name: str
    handles: list[Node] = field(default_factory=list)
    initializers: list[Node] = field(default_factory=list)
    may_be_filled_elsewhere: bool = False


def static_tables(graph: Graph) -> dict[Key, StaticTable]:
    """The tables of a graph that are filled once, by container and name."""
    tables: dict[Key, StaticTable] = {}
    stateful = [node for node in graph if is_stateful(node)]
    if not stateful:
        return tables
    from cfgraph.ops.families.lookup_tables import HashTableV2

    for node in stateful:
        if not is_a(node, HashTableV2):
            continue
        container, name = variable_key(node)
        key = container, name or node.name
        table = tables.setdefault(key, StaticTable(key, node.name))
        table.handles.append(node)
        for use in handle_uses(node.output())[0]:
            op = lookup(use.node.op)
            if op is not None and op.effects.initializes:
                table.initializers.append(use.node)
            elif op is None or not op.effects.reads_only:
                table.may_be_filled_elsewhere = True
    return tables


def required_tables(
    graph: Graph, nodes: Collection[Node], inits: Collection[Node], filled: Collection[Key]
) -> list[StaticTable]:
    """The tables that nodes need, and that neither they nor `inits` fill; those in `filled` are."""
    tables = static_tables(graph)
    if not tables:
        return []
    needed = set(ancestors(graph, nodes))
    running = needed | set(ancestors(graph, inits))
    return [
        table
        for key, table in tables.items()
        if key not in filled
        and not needed.isdisjoint(table.handles)
        and running.isdisjoint(table.initializers)
    ]


def table_initializers(
    graph: Graph, tables: Collection[StaticTable], fed: Collection[Output]
) -> dict[Node, StaticTable]:
    """The first node that fills each table, and needs no input but those that are `fed`."""
    found: dict[Node, StaticTable] = {}
    for table in tables:
        for node in table.initializers:
            sources = ancestors(graph, [node])
            if all(not must_be_fed(source) or source.output() in fed for source in sources):
                found[node] = table
                break
    return found


def table_findings(graph: Graph) -> Iterator[Finding]:
    """The tables that no node fills."""
    for table in static_tables(graph).values():
        if not table.initializers and not table.may_be_filled_elsewhere:
            message = f"no node fills the table {table.name}, so that each lookup fails"
            hint = "keep its initializer when the graph is frozen; `cfgraph freeze` does"
            yield Finding("CFG228", "warning", message, table.name, hint)
