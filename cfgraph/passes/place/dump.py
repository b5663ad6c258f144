"""A placement as a file of rules: a rule for each node, with what decided on its device."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cfgraph.ir.graph import Graph
from cfgraph.passes.place.place import Placement
from cfgraph.passes.place.rules import SCHEMA


def dumped(graph: Graph, placement: Placement) -> str:
    """The device of every node that was placed, as rules in TOML that place the graph alike."""
    return "".join(_lines(graph, placement))


def _lines(graph: Graph, placement: Placement) -> Iterator[str]:
    yield f"schema = {_text(SCHEMA)}\n"
    for node in graph:
        why = placement.decided.get(node.name)
        if why is not None:
            yield "\n[[rule]]\n"
            yield f"node = {_text(node.name)}\n"
            yield f"device = {_text(node.device)}\n"
            yield f"by = {_text(why)}\n"


def _text(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
