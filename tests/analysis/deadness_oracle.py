"""Oracle for deadness: the answers of an analysis compared with observed liveness.

A token source is an Output, or a Node for its control edges, as in `deadness`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from cfgraph.analysis.deadness.deadness import Deadness, TokenSource, deadness
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
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
            yield from node.outputs


def seen_in_tables(graph: Graph) -> ObservedLiveness:
    """All assignments of a graph without loops."""
    tables = Tables(graph)
    live = {source: tables.of[as_output(source)] for source in token_sources(graph)}
    return ObservedLiveness(graph, {frames(graph).root: live}, True, tables)


def seen_in_runs(graph: Graph, runs: int, seed: int = 0) -> ObservedLiveness:
    """Random assignments, without those under which a loop starves."""
    results = [Assignment(seed + number).run(graph) for number in range(runs)]
    assert not any(run.cut for run in results)
    # the analysis assumes that every loop ends
    return seen_in(graph, frames(graph), [run for run in results if not run.starved])


def seen_in(graph: Graph, graph_frames: Frames, runs: Sequence[Liveness]) -> ObservedLiveness:
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
    by_frame: dict[Frame, dict[TokenSource, int]] = {frame: {} for frame in graph_frames.all}
    for source in token_sources(graph):
        output = as_output(source)
        if output.node in graph_frames.of_outputs:
            by_frame[graph_frames.of_outputs[output.node]][source] = live.get(output, 0)
    return ObservedLiveness(graph, by_frame, False)


def as_output(source: TokenSource) -> Output:
    """A token source as an Output; control edges have port -1."""
    return Output(source, CONTROL) if isinstance(source, Node) else source


def faults(
    seen: ObservedLiveness, analysis: Deadness | None = None, most: int | None = None
) -> list[str]:
    """Wrong answers of an analysis, and missing ones within an iteration.

    Up to `most` sources per frame are compared with each other.
    """
    analysis = analysis or deadness(seen.graph)
    text: list[str] = []
    for frame, live in seen.by_frame.items():
        same = _classes(analysis, live)
        for members in same.values():
            first = members[0]
            text.extend(
                f"{frame}: {first} and {b} have one predicate, but differ"
                for b in members[1:]
                if live[b] != live[first]
            )
        firsts = [members[0] for members in same.values()]
        is_exact = seen.is_exact and not analysis.limits
        text.extend(
            fault for source in firsts for fault in _never(analysis, source, live, is_exact)
        )
        for a, b in combinations(firsts[:most], 2):
            text.extend(_faults(analysis, a, b, live, is_exact))
    return text


def _classes(analysis: Deadness, live: Mapping[TokenSource, Cases]) -> dict[int, list[TokenSource]]:
    """The token sources of a frame by condition."""
    classes: dict[int, list[TokenSource]] = {}
    for source in live:
        classes.setdefault(analysis.predicate(source), []).append(source)
    return classes


def _never(
    analysis: Deadness, source: TokenSource, live: Mapping[TokenSource, Cases], is_exact: bool
) -> Iterator[str]:
    never = analysis.never_live(source)
    if never and live[source]:
        yield f"{source} is said never to be live, but is"
    if is_exact and not never and not live[source]:
        yield f"{source} is never live, which is not said"


def _faults(
    analysis: Deadness,
    a: TokenSource,
    b: TokenSource,
    live: Mapping[TokenSource, Cases],
    is_exact: bool,
) -> Iterator[str]:
    here, there = live[a], live[b]
    claims = (
        ("are equal", analysis.equal(a, b), here == there),
        ("imply each other in this order", analysis.implies(a, b), not here & ~there),
        ("imply each other in reverse", analysis.implies(b, a), not there & ~here),
        ("exclude each other", not analysis.can_both_live(a, b), not here & there),
    )
    for what, said, so in claims:
        if said and not so:
            yield f"{a} and {b} are said to {what}, but do not"
        if is_exact and so and not said:
            yield f"{a} and {b} {what}, which is not said"
