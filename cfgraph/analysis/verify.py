"""Is this a valid graph? Every fault is a finding with a code, and is looked for once a state.

The rules are in the files `verify_*`, by what they look at; the bodies of functions are held to
the same rules as the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from cfgraph.analysis import (
    verify_control_flow,
    verify_edges,
    verify_functions,
    verify_nodes,
    verify_places,
    verify_transfers,
)
from cfgraph.analysis.bodies import body_of
from cfgraph.analysis.findings import Finding, require_none
from cfgraph.analysis.signatures import Signatures
from cfgraph.analysis.subject import Rule, Subject
from cfgraph.ir.collector import without_collector
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, require_graph

_RULES: Final[tuple[Rule, ...]] = (
    verify_nodes.names,
    verify_nodes.unknown_ops,
    verify_nodes.attributes,
    verify_nodes.constants,
    verify_edges.edges,
    verify_control_flow.cycles,
    verify_control_flow.loops,
    verify_control_flow.parallel_iterations,
    verify_control_flow.next_iterations,
    verify_control_flow.frame_shapes,
    verify_functions.named_functions,
    verify_functions.calls,
    verify_places.devices,
)
# the names in a body's `loc:@` may be those of the graph that it was taken from
_RULES_OF_GRAPHS: Final[tuple[Rule, ...]] = (
    verify_places.colocation,
    verify_places.versions,
    verify_transfers.transfers,
)
# the others find the same when only devices have changed
_ON_DEVICES: Final = frozenset(
    {verify_control_flow.frame_shapes, verify_places.devices, verify_transfers.transfers}
)

_known: WeakKeyDictionary[Graph, _Known] = WeakKeyDictionary()


class _Known(NamedTuple):
    """The findings on a graph, also by rule, and what they were derived from."""

    state: Any
    moves: int
    by_rule: dict[Rule, tuple[Finding, ...]]
    on_library: tuple[Finding, ...]
    all: tuple[Finding, ...]


def verify(graph: Graph) -> tuple[Finding, ...]:
    """All findings on a graph, errors, warnings and notes; kept until the graph changes."""
    require_graph(graph)
    state, known = _state(graph), _known.get(graph)
    if known is not None and known.state != state:
        known = None
    if known is None or known.moves != graph.moves:
        with without_collector():
            known = _known[graph] = _look(graph, state, known)
    return known.all


def require_valid(graph: Graph) -> None:
    """Raise InvalidInput if a graph has errors: the first as its message, all as its findings."""
    require_none([finding for finding in verify(graph) if finding.level == "error"])


def _state(graph: Graph) -> Any:
    """What findings depend on, but for devices; two equal states have equal findings."""
    library = tuple(graph.functions.items())
    edits = graph.edits - graph.moves
    return edits, graph.versions, library, tuple(graph.gradient_functions.items())


def _look(graph: Graph, state: Any, before: _Known | None) -> _Known:
    """The findings on a graph; `before` are those on one that differs in devices alone."""
    signatures = Signatures(graph.functions)
    subject = Subject(graph, signatures)
    by_rule: dict[Rule, tuple[Finding, ...]] = {}
    for rule in (*_RULES, *_RULES_OF_GRAPHS):
        if before is None or rule in _ON_DEVICES:
            by_rule[rule] = tuple(rule(subject))
        else:
            by_rule[rule] = before.by_rule[rule]
    library = tuple(_on_library(graph, signatures)) if before is None else before.on_library
    found = (*chain.from_iterable(by_rule.values()), *library)
    return _Known(state, graph.moves, by_rule, library, found)


def _on_library(graph: Graph, signatures: Signatures) -> Iterator[Finding]:
    for function in graph.functions.values():
        yield from _in_function(function, signatures)
    yield from verify_functions.gradients(graph)
    yield from verify_functions.recursion(graph)


def _in_function(function: Function, signatures: Signatures) -> Iterator[Finding]:
    """The findings on a function's body, its nodes named `function/node`."""
    body = body_of(function, signatures)
    unresolved = {finding.node for finding in body.faults}
    found = [*body.faults, *verify_functions.returned_types(body)]
    for rule in _RULES:
        found.extend(rule(body.subject))
    for finding in found:
        if finding.code == "CFG107" and finding.node in unresolved:
            continue  # it reads too few inputs only because one of them names nothing
        node = f"{function.name}/{finding.node}" if finding.node else function.name
        related = tuple(f"{function.name}/{name}" for name in finding.related)
        yield replace(finding, node=node, related=related)
