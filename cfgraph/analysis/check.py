"""Checks of a graph: validity, shapes, races at Merges, nodes that never run, dead fetches.

Predicates are treated as free variables, so a finding may need values that never occur together;
its witness lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from cfgraph.analysis.check_effects import effect_findings
from cfgraph.analysis.deadness.deadness import Deadness, Predicate, TokenSource, deadness
from cfgraph.analysis.deadness.pretty import frame_location, witness_clause
from cfgraph.analysis.findings import LEVELS, Finding
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.summary import sinks
from cfgraph.analysis.verify.body_graph import body_graph
from cfgraph.analysis.verify.context import Signatures
from cfgraph.analysis.verify.verify import verify
from cfgraph.errors import InvalidInput
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import split_tensor_name
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles
from cfgraph.ops.shape_inference import infer_shapes

_LOOP_INPUT_ROLES: Final = (Role.ENTER, Role.NEXT_ITERATION)
_SHOWN: Final = 4


def _liveness_findings(
    graph: Graph, bodies: Mapping[str, Graph], fetches: Collection[TokenSource] = ()
) -> Iterator[Finding]:
    """Findings on a graph that verifies, and on the bodies of its functions by name.

    `fetches` are known to be fetched; without any, what nothing reads may be.
    """
    yield from _graph_findings(graph, fetches)
    for name, body in bodies.items():
        for finding in _graph_findings(body, (), is_body=True):
            yield replace(finding, node=f"{name}/{finding.node}" if finding.node else name)


def _graph_findings(
    graph: Graph, fetches: Collection[TokenSource], *, is_body: bool = False
) -> Iterator[Finding]:
    """Findings on one graph; those on liveness only where something is switched or may race."""
    roles = OpRoles()
    found: Deadness | None = None
    if any(_needs_deadness(node, roles) for node in graph):
        found = deadness(graph)
        for node in graph:
            if roles[node.op] is Role.MERGE:
                yield from _race(found, node, roles)
        yield from _never_runs(found, graph)
        yield from _dead_fetches(found, graph, fetches, roles)
    wanted = list(dict.fromkeys(map(_node, fetches)))
    all_frames = found.frames if found else frames(graph)
    yield from effect_findings(graph, all_frames, found, wanted, all_run=is_body)
    if found and found.limits:
        message = "not all could be said about what is dead: " + "; ".join(found.limits)
        yield Finding("CFG222", "note", message)


def _needs_deadness(node: Node, roles: OpRoles) -> bool:
    """True for a Switch, and for a Merge of more than what loops bring and what brings it there."""
    role = roles[node.op]
    return role is Role.SWITCH or (
        role is Role.MERGE and any(len(meeting) > 1 for meeting in _concurrent_inputs(node, roles))
    )


def _race(found: Deadness, merge: Node, roles: OpRoles) -> Iterator[Finding]:
    """The first input that may be live together with one before it, if there is one."""
    for meeting in _concurrent_inputs(merge, roles):
        formulas, before = found.formulas, found.formulas.any_of([])
        for place, item in enumerate(meeting):
            mine = _merge_input_condition(found, item, roles)
            if found.solver.is_satisfiable(formulas.all_of([before, mine])):
                yield _race_finding(found, merge, meeting[:place], item, roles)
                return
            before = formulas.any_of([before, mine])


def _concurrent_inputs(merge: Node, roles: OpRoles) -> tuple[list[Output], list[Output]]:
    """The inputs of a Merge that meet: in every iteration, and those that enter, in the first."""
    sources = dict.fromkeys(merge.inputs)
    always = [item for item in sources if roles[item.node.op] not in _LOOP_INPUT_ROLES]
    return always, [item for item in sources if roles[item.node.op] is Role.ENTER]


def _merge_input_condition(found: Deadness, item: Output, roles: OpRoles) -> Predicate:
    """When an input of a Merge is live; for what enters, in the frame that it comes from."""
    return (
        found.runs(item.node)
        if roles[item.node.op] is Role.ENTER
        else found.merge_input_condition(item)
    )


def _race_finding(
    found: Deadness, merge: Node, before: list[Output], item: Output, roles: OpRoles
) -> Finding:
    mine, both = _merge_input_condition(found, item, roles), found.formulas.all_of
    other, formula = next(
        (source, formula)
        for source in before
        if found.solver.is_satisfiable(
            formula := both([_merge_input_condition(found, source, roles), mine])
        )
    )
    message = f"two inputs of the Merge may be live at once, {other.name!r} and {item.name!r}"
    witness = found.example(formula)
    message += ": they always are" if witness == {} else witness_clause(witness)
    hint = "which one it takes depends on timing; let one predicate choose between them"
    where = frame_location(found.frames, merge)
    return Finding("CFG220", "warning", message, merge.name, hint, (other.name, item.name), where)


def _never_runs(found: Deadness, graph: Graph) -> Iterator[Finding]:
    """The nodes that nothing can make run, those of them that others wait for."""
    dead = {node for node in graph if found.never_live(node)}
    for node in graph:
        sources = [*(item.node for item in node.inputs), *node.controls]
        if node in dead and not any(source in dead for source in sources):
            yield _never_runs_finding(found, node)


def _never_runs_finding(found: Deadness, node: Node) -> Finding:
    where = frame_location(found.frames, node)
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
    found: Deadness, graph: Graph, fetches: Collection[TokenSource], roles: OpRoles
) -> Iterator[Finding]:
    """What is fetched, or may be, and has no value in some runs."""
    for item in fetches or _likely_fetches(found, graph, roles):
        if found.always_live(item) or found.never_live(item):
            continue
        witness = found.witness(dead=[item])
        if witness is None:
            continue
        message = f"{item.name!r}, which is fetched, may be dead{witness_clause(witness)}"
        hint = "fetch the Merge behind all sides of the conditional"
        if not fetches:
            message = (
                f"{item.name!r}, which nothing reads, is dead in some runs{witness_clause(witness)}"
            )
            hint = f"if it is to be fetched, {hint.replace('fetch the', 'fetch a')}"
        level = "warning" if fetches else "note"
        related = (item.name,)
        node = _node(item)
        where = frame_location(found.frames, node)
        yield Finding("CFG224", level, message, node.name, hint, related, where)


def _node(place: TokenSource) -> Node:
    return place.node if isinstance(place, Output) else place


def _likely_fetches(found: Deadness, graph: Graph, roles: OpRoles) -> Iterable[Output]:
    """What nothing reads and is made of something: no start of a branch, no end of a loop."""
    for item in sinks(graph, found.frames):
        inputs = item.node.inputs
        if inputs and not roles[item.node.op] and roles[inputs[0].node.op] is not Role.SWITCH:
            yield item


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings on a graph, errors first, otherwise in the order in which they were found."""

    findings: tuple[Finding, ...]

    def count(self, level: str) -> int:
        """How many findings have this level."""
        return sum(finding.level == level for finding in self.findings)

    def reaches(self, level: str) -> bool:
        """True if there is a finding of this level, or of a worse one."""
        bad = LEVELS[: LEVELS.index(level) + 1]
        return any(finding.level in bad for finding in self.findings)

    def only(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> CheckReport:
        """The report on codes that match a pattern of `select` (`CFG2*`) and none of `ignore`."""
        wanted, unwanted = tuple(select) or ("*",), tuple(ignore)
        return CheckReport(
            tuple(
                finding
                for finding in self.findings
                if _matches(finding.code, wanted) and not _matches(finding.code, unwanted)
            )
        )


def _matches(code: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(code, pattern.upper()) for pattern in patterns)


def check(graph: Graph, fetches: Iterable[str] = ()) -> CheckReport:
    """Check a graph; it is not changed.

    `fetches` are tensors or nodes that are to be fetched together. Raises UsageError where one is
    none.
    """
    wanted = [_fetched_endpoint(graph, name) for name in fetches]
    found = list(verify(graph))
    if all(finding.level != "error" for finding in found):
        bodies = _body_graphs(graph)
        found.extend(_shape_findings(graph, bodies))
        found.extend(_liveness_findings(graph, bodies, wanted))
    return CheckReport(tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level))))


def _fetched_endpoint(graph: Graph, name: str) -> Output | Node:
    """A tensor, or a node that has none."""
    base, port = split_tensor_name(name)
    node = graph[base]
    return node if not port and registry.output_count(node) == 0 else graph.tensor(name)


def report_load_error(error: InvalidInput) -> CheckReport:
    """The report on a file that makes no graph: what `load` raised, as findings."""
    parts = error.findings or (error,)
    return CheckReport(
        tuple(part if isinstance(part, Finding) else Finding.of_error(part) for part in parts)
    )


def _body_graphs(graph: Graph) -> dict[str, Graph]:
    """The bodies of the functions, by name."""
    signatures = Signatures(graph.functions)
    return {
        function.name: body_graph(function, signatures).subject.graph
        for function in graph.functions.values()
    }


def _shape_findings(graph: Graph, bodies: Mapping[str, Graph]) -> Iterator[Finding]:
    """Static shapes fit each other, in the graph and in its functions."""
    yield from _shape_errors(graph)
    for name, body in bodies.items():
        for finding in _shape_errors(body):
            yield replace(finding, node=f"{name}/{finding.node}")


def _shape_errors(graph: Graph) -> Iterator[Finding]:
    for node, message in infer_shapes(graph).errors:
        text = f"the shapes of its inputs do not fit: {message}"
        yield Finding("CFG303", "warning", text, node.name)
