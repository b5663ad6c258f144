"""Oracle for deadness: the answers of an analysis compared with observed liveness.

A token source is an Output, or a Node for its control edges, as in `deadness`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from cfgraph.analysis.deadness.deadness import Deadness, TokenSource, deadness
from cfgraph.analysis.loops.frames import Frame, Frames, frames
from cfgraph.ir import registry
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from tests.analysis.assignments import Assignment, Tables
from tests.analysis.liveness_oracle import Liveness

# the cases in which a token source is live: bits of assignments and tags
Cases = int


@dataclass(frozen=True)
class ObservedLiveness:
    """The cases in which each token source was live, by frame; `is_exact` if all were tried.

    NextIterations are excluded: they run in one iteration and are read in another.
    """

    graph: Graph
    by_frame: Mapping[Frame, Mapping[TokenSource, Cases]]
    is_exact: bool
    tables: Tables | None = None


def token_sources(graph: Graph) -> Iterator[TokenSource]:
    """All outputs and control edges of a graph."""
    for node in graph:
        if role_of(node) is not Role.NEXT_ITERATION:
            yield node
            for port in range(registry.output_count(node) or 0):
                yield Output(node, port)


def seen_in_tables(graph: Graph) -> ObservedLiveness:
    """All assignments of a graph without loops."""
    tables = Tables(graph)
    live = {place: tables.of[as_output(place)] for place in token_sources(graph)}
    return ObservedLiveness(graph, {frames(graph).root: live}, True, tables)


def seen_in_runs(graph: Graph, runs: int, seed: int = 0) -> ObservedLiveness:
    """Random assignments, without those under which a loop starves."""
    results = [Assignment(seed + number).run(graph) for number in range(runs)]
    assert not any(run.cut for run in results)
    # the analysis assumes that every loop ends
    return seen_in(graph, frames(graph), [run for run in results if not run.starved])


def seen_in(graph: Graph, found: Frames, runs: Sequence[Liveness]) -> ObservedLiveness:
    """The observed liveness of nodes that have frames."""
    live: dict[Output, int] = {}
    bits: dict[Hashable, int] = {}
    for number, run in enumerate(runs):
        tokens = [*run.sent.items()]
        tokens.extend(
            ((Output(node, CONTROL), tag), on) for (node, tag), on in run.controls.items()
        )
        for (output, tag), is_live in tokens:
            if is_live:
                bit = bits.setdefault((number, tag), len(bits))
                live[output] = live.get(output, 0) | 1 << bit
    by_frame: dict[Frame, dict[TokenSource, int]] = {frame: {} for frame in found.all}
    for place in token_sources(graph):
        output = as_output(place)
        if output.node in found.of_outputs:
            by_frame[found.of_outputs[output.node]][place] = live.get(output, 0)
    return ObservedLiveness(graph, by_frame, False)


def as_output(place: TokenSource) -> Output:
    """A token source as an Output; control edges have port -1."""
    return Output(place, CONTROL) if isinstance(place, Node) else place


def faults(
    seen: ObservedLiveness, found: Deadness | None = None, most: int | None = None
) -> list[str]:
    """Wrong answers of an analysis, and missing ones within an iteration.

    Up to `most` sources per frame are compared with each other.
    """
    found = found or deadness(seen.graph)
    text: list[str] = []
    for frame, live in seen.by_frame.items():
        same = _classes(found, live)
        for members in same.values():
            first = members[0]
            text.extend(
                f"{frame}: {first} and {other} have one predicate, but differ"
                for other in members[1:]
                if live[other] != live[first]
            )
        firsts = [members[0] for members in same.values()]
        is_exact = seen.is_exact and not found.limits
        text.extend(fault for place in firsts for fault in _never(found, place, live, is_exact))
        for one, other in combinations(firsts[:most], 2):
            text.extend(_faults(found, one, other, live, is_exact))
    return text


def _classes(found: Deadness, live: Mapping[TokenSource, Cases]) -> dict[int, list[TokenSource]]:
    """The token sources of a frame by condition."""
    classes: dict[int, list[TokenSource]] = {}
    for place in live:
        classes.setdefault(found.predicate(place), []).append(place)
    return classes


def _never(
    found: Deadness, place: TokenSource, live: Mapping[TokenSource, Cases], is_exact: bool
) -> Iterator[str]:
    never = found.never_live(place)
    if never and live[place]:
        yield f"{place} is said never to be live, but is"
    if is_exact and not never and not live[place]:
        yield f"{place} is never live, which is not said"


def _faults(
    found: Deadness,
    one: TokenSource,
    other: TokenSource,
    live: Mapping[TokenSource, Cases],
    is_exact: bool,
) -> Iterator[str]:
    here, there = live[one], live[other]
    claims = (
        ("are equal", found.equal(one, other), here == there),
        ("imply each other in this order", found.implies(one, other), not here & ~there),
        ("imply each other in reverse", found.implies(other, one), not there & ~here),
        ("exclude each other", not found.can_both_live(one, other), not here & there),
    )
    for what, said, so in claims:
        if said and not so:
            yield f"{one} and {other} are said to {what}, but do not"
        if is_exact and so and not said:
            yield f"{one} and {other} {what}, which is not said"
