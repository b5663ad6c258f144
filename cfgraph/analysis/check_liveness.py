"""What liveness says about a graph: races at Merges, and nodes that can never run.

Predicates are taken as free, so what is found may need values that never come together; the
witness tells which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.findings import Finding
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.walk import Roles

_ONCE: Final = ("enter", "next_iteration")
_SHOWN: Final = 4


def liveness_findings(graph: Graph, bodies: Mapping[str, Graph]) -> Iterator[Finding]:
    """Findings on a graph that verifies, and on the bodies of its functions by name."""
    yield from _findings(graph)
    for name, body in bodies.items():
        for finding in _findings(body):
            yield replace(finding, node=f"{name}/{finding.node}" if finding.node else name)


def _findings(graph: Graph) -> Iterator[Finding]:
    """Findings on one graph; none where nothing is switched."""
    roles = Roles()
    if not any(roles[node.op] == "switch" for node in graph):
        return
    found = deadness(graph)
    for node in graph:
        if roles[node.op] == "merge":
            yield from _race(found, node, roles)
    yield from _never(found, graph)
    if found.limits:
        message = "not all could be said about what is dead: " + "; ".join(found.limits)
        yield Finding("CFG222", "note", message)


def _race(found: Deadness, merge: Node, roles: Roles) -> Iterator[Finding]:
    """The first input that may be live together with one before it, if there is one."""
    # what comes in different iterations does not meet
    sources = [item for item in dict.fromkeys(merge.inputs) if roles[item.node.op] not in _ONCE]
    formulas, before = found.formulas, found.formulas.any_of([])
    for place, item in enumerate(sources):
        mine = found.offered(item)
        if found.prover.can_hold(formulas.all_of([before, mine])):
            yield _both(found, merge, sources[:place], item)
            return
        before = formulas.any_of([before, mine])


def _both(found: Deadness, merge: Node, before: list[Output], item: Output) -> Finding:
    mine, both = found.offered(item), found.formulas.all_of
    other = next(
        source for source in before if found.prover.can_hold(both([found.offered(source), mine]))
    )
    message = f"two inputs of the Merge may be live at once, {other.name!r} and {item.name!r}"
    witness = found.witness(other, item)
    if witness:
        message += f": with {assignment(witness)}"
    elif witness == {}:
        message += ": they always are"
    hint = "which one it takes depends on timing; let one predicate choose between them"
    frame = found.frames.of[merge]
    where = None if frame is found.frames.root else str(frame)
    return Finding("CFG220", "warning", message, merge.name, hint, (other.name, item.name), where)


def _never(found: Deadness, graph: Graph) -> Iterator[Finding]:
    """The nodes that nothing can make run, those of them that others wait for."""
    dead = {node for node in graph if found.never_live(node)}
    for node in graph:
        sources = [*(item.node for item in node.inputs), *node.controls]
        if node in dead and not any(source in dead for source in sources):
            yield _idle(found, node)


def _idle(found: Deadness, node: Node) -> Finding:
    frame = found.frames.of[node]
    where = None if frame is found.frames.root else str(frame)
    never = [item.name for item in node.inputs if found.never_live(item)]
    if never:
        message = f"the node never runs, for {never[0]!r} is on a side that is never taken"
        return Finding("CFG223", "note", message, node.name, None, (never[0],), where)
    names = [item.name for item in node.inputs] + [f"^{item.name}" for item in node.controls]
    shown = ", ".join(repr(name) for name in names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
    message = f"the node never runs: its inputs {shown} are never live at once"
    hint = "it waits for several sides of a conditional; a Merge would take the one that is live"
    return Finding("CFG221", "warning", message, node.name, hint, tuple(names), where)


def assignment(values: Mapping[str, Any]) -> str:
    """Values of predicates as a text: `p` true, `i` 2."""
    words = {True: "true", False: "false"}
    return ", ".join(
        f"`{name}` {words[value] if isinstance(value, bool) else value}"
        for name, value in values.items()
    )
