"""Which nodes of two functions' bodies belong together, whatever their names.

Arguments and results are known by name: they are what callers see. So a node that is returned is
looked for among those that are returned as the same result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from cfgraph.analysis.verify.body_graph import BodyGraph
from cfgraph.compare.match import Attrs, Pairs, match_by_structure
from cfgraph.ir.functions import Definition
from cfgraph.ir.graph import Node, Output


class Side(NamedTuple):
    """One of two functions that are compared: what of its definition counts, and its body."""

    definition: Definition
    body: BodyGraph


def match_bodies(a: Side, b: Side, attrs: Attrs, devices: bool) -> Pairs:
    """Pairs of nodes that play the same part; `attrs` gives those that matter of a node."""
    parts = _parts(a) | _parts(b)

    def marked(node: Node) -> Mapping[str, Any]:
        return {**attrs(node), "": parts[node]} if node in parts else attrs(node)

    return match_by_structure(a.body.subject.graph, b.body.subject.graph, marked, devices)


def _parts(side: Side) -> dict[Node, tuple[str, ...]]:
    """Which arguments and results nodes are, of those that are any."""
    found: dict[Node, list[str]] = defaultdict(list)
    for node in side.body.subject.arguments:
        found[node].append(f"argument {node.name}")
    for name, item in side.body.returns.items():
        found[item.node].append(f"result {name}:{item.port}")
    for name, text in side.definition.control_returns.items():
        if text in side.body.subject.graph:
            found[side.body.subject.graph[text]].append(f"control {name}")
    return {node: tuple(sorted(parts)) for node, parts in found.items()}


def in_names_of(b: Side, a: Side, pairs: Pairs) -> Definition:
    """The definition of `a`; what it returns has the names of `b` where it is the same."""
    returns, controls = dict(a.definition.returns), dict(a.definition.control_returns)
    for name, text in b.definition.returns.items():
        if _is_same(a.body.returns.get(name), b.body.returns.get(name), pairs):
            returns[name] = text
    nodes = a.body.subject.graph.nodes
    for name, text in controls.items():
        twin = pairs.get(nodes[text]) if text in nodes else None
        controls[name] = text if twin is None else twin.name
    return replace(a.definition, returns=returns, control_returns=controls)


def _is_same(one: Output | None, other: Output | None, pairs: Pairs) -> bool:
    """True for the same output of nodes that are paired."""
    if one is None or other is None:
        return False
    return pairs.get(one.node) is other.node and one.port == other.port
