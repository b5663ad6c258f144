"""Data per node as JSON of Model Explorer, by the identifiers of `graph_json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cfgraph.cli.output import note
from cfgraph.errors import UsageError
from cfgraph.integrations.model_explorer.identifiers import MAIN
from cfgraph.ir.file_io import write_atomically

# colors of the least and the greatest number
_GRADIENT: Final = [{"stop": 0, "bgColor": "#fff8e1"}, {"stop": 1, "bgColor": "#e64a19"}]
# colors of classes that have a meaning; others follow from their order
FIRST_DIFFERENCE: Final = "first difference"
_COLORS: Final = {"always": "#ceead6", "never": "#bdc1c6", FIRST_DIFFERENCE: "#f28b82"}
_PALETTE: Final = (
    *("#aecbfa", "#fdd663", "#d7aefb", "#a8dab5", "#fcad70", "#78d9ec"),
    *("#ff8bcb", "#c5e1a5", "#b0bec5", "#e6c9a8"),
)

Values = Mapping[str, float | str]
Members = Mapping[str, Mapping[str, str]]


class NodeDataFile:
    """The request for a file with data per node: `FILE`, or `KIND=FILE` for one of several kinds.

    Raises UsageError for an unknown kind.
    """

    def __init__(self, text: str, kinds: Iterable[str]) -> None:
        known = [*kinds]
        kind, sign, path = text.partition("=")
        if sign and kind not in known and kind.isidentifier():
            hint = f"write FILE, or KIND=FILE with one of {', '.join(known)}"
            raise UsageError(f"unknown kind of node data {kind!r}", hint=hint)
        self.kind, self.path = (kind, path) if kind in known and sign else (known[0], text)

    def write(self, members: Members, values: Values, title: str, quiet: bool = False) -> None:
        """Write the values of a graph's nodes, by name."""
        write_atomically(self.path, node_data_bytes(members, values, title))
        note(f"note: wrote {self.path}; open it in Model Explorer with the graph", quiet)


def node_data_bytes(members: Members, values: Values, title: str) -> bytes:
    """The file of values by name of the node."""
    return json.dumps(node_data(members, values, title), indent=1).encode() + b"\n"


def node_data(members: Members, values: Values, title: str) -> dict[str, Any]:
    """Data by identifier of a graph: the whole graph, and each loop in which a node has a value.

    A value of a node that the graph lacks, such as one of a lowered function, counts for the node
    that its name starts with.
    """
    named = _values_of_graph(values, members[MAIN])
    colors = _class_colors(named.values())
    data: dict[str, Any] = {}
    for graph, nodes in members.items():
        results = {
            nodes[name]: _result(value, colors) for name, value in named.items() if name in nodes
        }
        if results or graph == MAIN:
            data[graph] = {"name": title, "results": results, **_coloring(named.values())}
    return data


def _values_of_graph(values: Values, names: Mapping[str, str]) -> dict[str, float | str]:
    """Values by name of a node of the graph; numbers of nodes within one are added."""
    named: dict[str, float | str] = {}
    for name, value in values.items():
        owner = name
        while owner not in names and "/" in owner:
            owner = owner.rpartition("/")[0]
        if owner not in names:
            continue
        before = named.get(owner)
        if isinstance(before, int | float) and isinstance(value, int | float):
            named[owner] = before + value
        elif owner == name or before is None:
            named[owner] = value
    return named


def _class_colors(values: Iterable[float | str]) -> dict[str, str]:
    classes = dict.fromkeys(value for value in values if isinstance(value, str))
    free = [name for name in classes if name not in _COLORS]
    return _COLORS | {name: _PALETTE[index % len(_PALETTE)] for index, name in enumerate(free)}


def _result(value: float | str, colors: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(value, str):
        return {"value": value, "bgColor": colors[value]}
    return {"value": value}


def _coloring(values: Iterable[float | str]) -> dict[str, Any]:
    """The colors of numbers; classes have their own, and a summary per layer."""
    if any(isinstance(value, str) for value in values):
        return {"showExpandedSummaryOnGroupNode": True}
    return {"gradient": _GRADIENT}
