"""What liveness says about a graph: races at Merges, nodes that can never run, dead outputs.

Predicates are taken as free, so what is found may need values that never come together; the
witness tells which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from cfgraph.analysis.check_effects import effect_findings
from cfgraph.analysis.check_words import place_of, under
from cfgraph.analysis.deadness.deadness import Deadness, Place, Predicate, deadness
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.frames import frames
from cfgraph.analysis.summary import sinks
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.walk import Roles

_ONCE: Final = ("enter", "next_iteration")
_SHOWN: Final = 4


def liveness_findings(
    graph: Graph, bodies: Mapping[str, Graph], fetches: Collection[Place] = ()
) -> Iterator[Finding]:
    """Findings on a graph that verifies, and on the bodies of its functions by name.

    `fetches` are known to be fetched; without any, what nothing reads may be.
    """
    yield from _findings(graph, fetches)
    for name, body in bodies.items():
        for finding in _findings(body, (), is_body=True):
            yield replace(finding, node=f"{name}/{finding.node}" if finding.node else name)


def _findings(
    graph: Graph, fetches: Collection[Place], *, is_body: bool = False
) -> Iterator[Finding]:
    """Findings on one graph; those on liveness only where something is switched or may race."""
    roles = Roles()
    found: Deadness | None = None
    if any(_may_matter(node, roles) for node in graph):
        found = deadness(graph)
        for node in graph:
            if roles[node.op] == "merge":
                yield from _race(found, node, roles)
        yield from _never(found, graph)
        yield from _dead_fetches(found, graph, fetches, roles)
    wanted = list(dict.fromkeys(map(_node, fetches)))
    all_frames = found.frames if found else frames(graph)
    yield from effect_findings(graph, all_frames, found, wanted, all_run=is_body)
    if found and found.limits:
        message = "not all could be said about what is dead: " + "; ".join(found.limits)
        yield Finding("CFG222", "note", message)


def _may_matter(node: Node, roles: Roles) -> bool:
    """True for a Switch, and for a Merge of more than what loops bring and what brings it there."""
    role = roles[node.op]
    return role == "switch" or (
        role == "merge" and any(len(meeting) > 1 for meeting in _meetings(node, roles))
    )


def _race(found: Deadness, merge: Node, roles: Roles) -> Iterator[Finding]:
    """The first input that may be live together with one before it, if there is one."""
    for meeting in _meetings(merge, roles):
        formulas, before = found.formulas, found.formulas.any_of([])
        for place, item in enumerate(meeting):
            mine = _offered(found, item, roles)
            if found.prover.can_hold(formulas.all_of([before, mine])):
                yield _both(found, merge, meeting[:place], item, roles)
                return
            before = formulas.any_of([before, mine])


def _meetings(merge: Node, roles: Roles) -> tuple[list[Output], list[Output]]:
    """The inputs of a Merge that meet: in every iteration, and those that enter, in the first."""
    sources = dict.fromkeys(merge.inputs)
    always = [item for item in sources if roles[item.node.op] not in _ONCE]
    return always, [item for item in sources if roles[item.node.op] == "enter"]


def _offered(found: Deadness, item: Output, roles: Roles) -> Predicate:
    """When an input of a Merge is live; for what enters, in the frame that it comes from."""
    return found.runs(item.node) if roles[item.node.op] == "enter" else found.offered(item)


def _both(
    found: Deadness, merge: Node, before: list[Output], item: Output, roles: Roles
) -> Finding:
    mine, both = _offered(found, item, roles), found.formulas.all_of
    other, formula = next(
        (source, formula)
        for source in before
        if found.prover.can_hold(formula := both([_offered(found, source, roles), mine]))
    )
    message = f"two inputs of the Merge may be live at once, {other.name!r} and {item.name!r}"
    witness = found.example(formula)
    message += ": they always are" if witness == {} else under(witness)
    hint = "which one it takes depends on timing; let one predicate choose between them"
    where = place_of(found.frames, merge)
    return Finding("CFG220", "warning", message, merge.name, hint, (other.name, item.name), where)


def _never(found: Deadness, graph: Graph) -> Iterator[Finding]:
    """The nodes that nothing can make run, those of them that others wait for."""
    dead = {node for node in graph if found.never_live(node)}
    for node in graph:
        sources = [*(item.node for item in node.inputs), *node.controls]
        if node in dead and not any(source in dead for source in sources):
            yield _idle(found, node)


def _idle(found: Deadness, node: Node) -> Finding:
    where = place_of(found.frames, node)
    never = [item.name for item in node.inputs if found.never_live(item)]
    if never:
        message = f"the node never runs, for {never[0]!r} is on a side that is never taken"
        return Finding("CFG223", "note", message, node.name, None, (never[0],), where)
    names = [item.name for item in node.inputs] + [f"^{item.name}" for item in node.controls]
    shown = ", ".join(repr(name) for name in names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
    message = f"the node never runs: its inputs {shown} are never live at once"
    hint = "it waits for several sides of a conditional; a Merge would take the one that is live"
    return Finding("CFG221", "warning", message, node.name, hint, tuple(names), where)


def _dead_fetches(
    found: Deadness, graph: Graph, fetches: Collection[Place], roles: Roles
) -> Iterator[Finding]:
    """What is fetched, or may be, and has no value in some runs."""
    for item in fetches or _likely(found, graph, roles):
        if found.always_live(item) or found.never_live(item):
            continue
        witness = found.witness(dead=[item])
        if witness is None:
            continue
        message = f"{item.name!r}, which is fetched, may be dead{under(witness)}"
        hint = "fetch the Merge behind all sides of the conditional"
        if not fetches:
            message = f"{item.name!r}, which nothing reads, is dead in some runs{under(witness)}"
            hint = f"if it is to be fetched, {hint.replace('fetch the', 'fetch a')}"
        level = "warning" if fetches else "note"
        related = (item.name,)
        node = _node(item)
        where = place_of(found.frames, node)
        yield Finding("CFG224", level, message, node.name, hint, related, where)


def _node(place: Place) -> Node:
    return place.node if isinstance(place, Output) else place


def _likely(found: Deadness, graph: Graph, roles: Roles) -> Iterable[Output]:
    """What nothing reads and is made of something: no start of a branch, no end of a loop."""
    for item in sinks(graph, found.frames):
        inputs = item.node.inputs
        if inputs and not roles[item.node.op] and roles[inputs[0].node.op] != "switch":
            yield item
