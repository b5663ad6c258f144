"""Is this a valid graph? Every fault is a finding with a code, and is looked for once a state.

The rules are in the files `verify_*`, by what they look at; the bodies of functions are held to
the same rules as the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from cfgraph.analysis import (
    verify_control_flow,
    verify_edges,
    verify_functions,
    verify_nodes,
    verify_places,
)
from cfgraph.analysis.bodies import body_of
from cfgraph.analysis.findings import Finding, require_none
from cfgraph.analysis.signatures import Signatures
from cfgraph.analysis.subject import Rule, Subject
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph

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
_RULES_OF_GRAPHS: Final[tuple[Rule, ...]] = (verify_places.colocation, verify_places.versions)

_known: WeakKeyDictionary[Graph, tuple[Any, tuple[Finding, ...]]] = WeakKeyDictionary()


def verify(graph: Graph) -> tuple[Finding, ...]:
    """All findings on a graph, errors, warnings and notes; kept until the graph changes."""
    state = _state(graph)
    known = _known.get(graph)
    if known is None or known[0] != state:
        known = _known[graph] = (state, tuple(_findings(graph)))
    return known[1]


def require_valid(graph: Graph) -> None:
    """Raise InvalidInput if a graph has errors: the first as its message, all as its findings."""
    require_none([finding for finding in verify(graph) if finding.level == "error"])


def _state(graph: Graph) -> Any:
    """What findings depend on; two equal states have equal findings."""
    library = tuple(graph.functions.items())
    return graph.edits, graph.versions, library, tuple(graph.gradient_functions.items())


def _findings(graph: Graph) -> Iterator[Finding]:
    signatures = Signatures(graph.functions)
    subject = Subject(graph, signatures)
    for rule in (*_RULES, *_RULES_OF_GRAPHS):
        yield from rule(subject)
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
