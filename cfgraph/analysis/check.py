"""Checks of a graph: validity, shapes, races, dead nodes and fetches, loops that do not end.

Predicates are treated as free variables, so a finding may need values that never occur together;
its witness lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from cfgraph.analysis.check_effects import effect_findings
from cfgraph.analysis.check_gradient_arrays import gradient_array_findings
from cfgraph.analysis.check_late_enters import late_enter_findings
from cfgraph.analysis.deadness.deadness import Deadness, Predicate, TokenSource, deadness
from cfgraph.analysis.deadness.pretty import AssignedValue, frame_location, witness_clause
from cfgraph.analysis.endless_loops import endless_loop_findings
from cfgraph.analysis.findings import LEVELS, PARTITION_HINT, Finding
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.while_loop import is_loop_switch
from cfgraph.analysis.summary import sinks
from cfgraph.analysis.tables import table_findings
from cfgraph.analysis.verify.context import Signatures
from cfgraph.analysis.verify.function_rules import BodyGraph, body_graph
from cfgraph.analysis.verify.verify import verify
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import name_list
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import dependents, is_partitioned, unsent_recvs
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.rich_display import DisplayedReport

# late imports: few graphs have a fetch that may be dead

_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class CheckReport(DisplayedReport):
    """The findings on a graph, errors first, otherwise in the order in which they were found."""

    findings: tuple[Finding, ...]

    def count(self, level: str) -> int:
        """Number of findings of one level."""
        return sum(finding.level == level for finding in self.findings)

    def reaches(self, level: str) -> bool:
        """True if a finding has this level or a worse one."""
        bad = LEVELS[: LEVELS.index(level) + 1]
        return any(finding.level in bad for finding in self.findings)

    def only(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> CheckReport:
        """A report of the findings whose codes match a pattern of `select` (`CFG2*`) and none of
        `ignore`.
        """
        selected, ignored = tuple(select) or ("*",), tuple(ignore)
        return CheckReport(
            tuple(
                finding
                for finding in self.findings
                if _matches(finding.code, selected) and not _matches(finding.code, ignored)
            )
        )


def check(graph: Graph, fetches: str | Iterable[str] = ()) -> CheckReport:
    """Check a graph without changing it.

    `fetches` name tensors or nodes that a run fetches together. Raises UsageError for an unknown
    name.
    """
    endpoints = [_fetched_endpoint(graph, name) for name in name_list(fetches)]
    findings = list(verify(graph))
    if all(finding.level != "error" for finding in findings):
        functions = _function_bodies(graph)
        bodies = {name: body.subject.graph for name, body in functions.items()}
        findings.extend(_shape_findings(graph, bodies))
        findings.extend(_liveness_findings(graph, bodies, endpoints))
        findings.extend(_endless_loops(graph, functions))
        findings.extend(table_findings(graph))
    return CheckReport(tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level))))


def _fetched_endpoint(graph: Graph, name: str) -> Output | Node:
    """The tensor of a name, or the node if it has no outputs, or is a target: `^node`."""
    base, port = split_tensor_name(name.removeprefix("^"))
    node = graph[base]
    if name.startswith("^"):
        return node
    return node if not port and node.output_count == 0 else graph.tensor(name)


def report_load_error(error: InvalidInput) -> CheckReport:
    """A report of the errors that `load` raised for an invalid file."""
    parts = error.findings or (error,)
    return CheckReport(
        tuple(
            error_or_finding
            if isinstance(error_or_finding, Finding)
            else Finding.of_error(error_or_finding)
            for error_or_finding in parts
        )
    )


def _matches(code: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(code, pattern.upper()) for pattern in patterns)


def _liveness_findings(
    graph: Graph, bodies: Mapping[str, Graph], fetches: Collection[TokenSource] = ()
) -> Iterator[Finding]:
    """Findings on a valid graph and on the bodies of its functions.

    `fetches` are the endpoints of a run; without any, every output that has no reader may be one.
    """
    yield from _graph_findings(graph, fetches)
    for name, body in bodies.items():
        for finding in _graph_findings(body, (), is_body=True):
            yield replace(finding, node=f"{name}/{finding.node}" if finding.node else name)


def _graph_findings(
    graph: Graph, fetches: Collection[TokenSource], *, is_body: bool = False
) -> Iterator[Finding]:
    """Findings on one graph; deadness is analyzed only if the graph has a conditional or a race."""
    analysis: Deadness | None = None
    if any(_needs_deadness(node) for node in graph):
        analysis = deadness(graph)
        for node in graph:
            if ROLES[node.op] is Role.MERGE:
                yield from _race(analysis, node)
        yield from _never_runs(analysis, graph)
        yield from _dead_fetches(analysis, graph, fetches)
    targets = list(dict.fromkeys(map(_node, fetches)))
    all_frames = analysis.frames if analysis else frames(graph)
    yield from late_enter_findings(all_frames)
    yield from gradient_array_findings(all_frames)
    yield from effect_findings(graph, all_frames, analysis, targets, all_run=is_body)
    if analysis and analysis.limits:
        message = "the deadness analysis is incomplete: " + "; ".join(analysis.limits)
        yield Finding("CFG222", "note", message)


def _needs_deadness(node: Node) -> bool:
    """True for a Switch, and for a Merge with two inputs that may arrive in one iteration."""
    role = ROLES[node.op]
    return role is Role.SWITCH or (
        role is Role.MERGE and any(len(meeting) > 1 for meeting in _concurrent_inputs(node))
    )


def _race(analysis: Deadness, merge: Node) -> Iterator[Finding]:
    """The first input of a Merge that may be live together with an earlier one."""
    for meeting in _concurrent_conditions(analysis, merge):
        formulas, before = analysis.formulas, analysis.formulas.any_of([])
        for tensor, mine in meeting.items():
            if analysis.solver.is_satisfiable(formulas.all_of([before, mine])):
                yield _race_finding(analysis, merge, meeting, tensor)
                return
            before = formulas.any_of([before, mine])


def _concurrent_inputs(merge: Node) -> tuple[list[Output], list[Output]]:
    """Groups of Merge inputs that arrive together: in a later iteration, and in the first one."""
    sources = dict.fromkeys(merge.inputs)
    later = [tensor for tensor in sources if ROLES[tensor.node.op] is not Role.ENTER]
    return later, [tensor for tensor in sources if ROLES[tensor.node.op] is Role.ENTER]


def _concurrent_conditions(analysis: Deadness, merge: Node) -> Iterator[dict[Output, Predicate]]:
    """The liveness conditions of inputs that arrive together, each group in terms of one iteration.

    These are the iteration itself, the one before it if a NextIteration arrives, and the outer
    frame for Enters.
    """
    later, first = _concurrent_inputs(merge)
    back = {tensor for tensor in later if ROLES[tensor.node.op] is Role.NEXT_ITERATION}
    current = {tensor: analysis.merge_input_condition(tensor) for tensor in later}
    yield {tensor: current[tensor] for tensor in later if tensor not in back}
    if back:
        frame = analysis.frames.of[merge]
        yield {
            tensor: condition if tensor in back else analysis.in_next_iteration(condition, frame)
            for tensor, condition in current.items()
        }
    yield {tensor: analysis.runs(tensor.node) for tensor in first}


def _race_finding(
    analysis: Deadness, merge: Node, meeting: Mapping[Output, Predicate], tensor: Output
) -> Finding:
    rival, formula = next(
        (source, formula)
        for source, condition in meeting.items()
        if analysis.solver.is_satisfiable(
            formula := analysis.formulas.all_of([condition, meeting[tensor]])
        )
    )
    message = f"two inputs of the Merge may be live at once, {rival.name!r} and {tensor.name!r}"
    witness = analysis.example(formula)
    message += ": they always are" if witness == {} else witness_clause(witness)
    hint = "the result depends on timing; guard both inputs by one predicate"
    where = frame_location(analysis.frames, merge)
    return Finding("CFG220", "warning", message, merge.name, hint, (rival.name, tensor.name), where)


def _never_runs(analysis: Deadness, graph: Graph) -> Iterator[Finding]:
    """Findings on nodes that never run although all their sources may."""
    dead = {node for node in graph if analysis.never_live(node)}
    hint = "it waits for several branches of a conditional; use a Merge to select the live one"
    if is_partitioned(graph):
        hint = PARTITION_HINT
    for node in graph:
        sources = node.predecessors
        if node in dead and not any(source in dead for source in sources):
            yield _never_runs_finding(analysis, node, hint)


def _never_runs_finding(analysis: Deadness, node: Node, hint: str) -> Finding:
    where = frame_location(analysis.frames, node)
    never = [tensor.name for tensor in node.inputs if analysis.never_live(tensor)]
    if never:
        message = f"the node never runs: {never[0]!r} is on a branch that is never taken"
        return Finding("CFG223", "note", message, node.name, None, (never[0],), where)
    names = [tensor.name for tensor in node.inputs] + [
        f"^{tensor.name}" for tensor in node.controls
    ]
    shown = ", ".join(repr(name) for name in names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
    message = f"the node never runs: its inputs {shown} are never live at once"
    return Finding("CFG221", "warning", message, node.name, hint, tuple(names), where)


def _dead_fetches(
    analysis: Deadness, graph: Graph, fetches: Collection[TokenSource]
) -> Iterator[Finding]:
    """Fetched tensors that are dead in some runs; without fetches, tensors that have no reader."""
    lacking = dependents(graph, unsent_recvs(graph))
    # which tensors are live is not known without the missing part
    likely = () if lacking else _likely_fetches(analysis, graph)
    for tensor in fetches or likely:
        if _node(tensor) in lacking:
            continue
        if analysis.always_live(tensor) or analysis.never_live(tensor):
            continue
        path = [*_conditional_path(analysis, tensor)]
        witness = _innermost_witness(analysis, tensor, path[-1])
        if witness is None:
            continue
        clause = witness_clause(witness)
        message = f"{tensor.name!r} has no reader and is dead in some runs{clause}"
        hint = "if it will be fetched, add a Merge of the conditional's branches"
        if fetches:
            message = f"{tensor.name!r} is fetched and may be dead{clause}"
            hint = _dead_fetch_hint(analysis, tensor, path)
        level = "warning" if fetches else "note"
        node = _node(tensor)
        where = frame_location(analysis.frames, node)
        yield Finding("CFG224", level, message, node.name, hint, (tensor.name,), where)


def _dead_fetch_hint(analysis: Deadness, tensor: TokenSource, path: Sequence[Node]) -> str:
    """The tensor to fetch instead of one that may be dead; `path` leads to the Switch of that."""
    from cfgraph.analysis.fetch_hints import fetch_hint, merge_hint

    frame = analysis.frames.of_outputs[path[0]]
    switch = path[-1] if ROLES[path[-1].op] is Role.SWITCH else None
    ends_loop = switch is not None and is_loop_switch(switch, frame.loop_cond)
    if not ends_loop and (hint := merge_hint(path, analysis.frames)):
        return hint
    if frame.parent is not None and isinstance(tensor, Output):
        return fetch_hint(tensor, frame)
    return "no Merge joins it with the other branch: a run that takes that has no value"


def _innermost_witness(
    analysis: Deadness, tensor: TokenSource, switch: Node
) -> Mapping[str, AssignedValue] | None:
    """Values for which a tensor is dead: of the Switch that it depends on if that runs, else any.

    None if there are none. Values that let the Switch run are not among them.
    """
    innermost = analysis.witness(switch, dead=[tensor])
    if innermost is None:
        return analysis.witness(dead=[tensor])
    outer = analysis.witness(switch) or {}
    return {name: value for name, value in innermost.items() if name not in outer} or innermost


def _conditional_path(analysis: Deadness, source: TokenSource) -> Iterator[Node]:
    """The nodes that are not always live, from a source to the branch that it depends on."""
    reached = set[Node]()
    while (node := _node(source)) not in reached:
        reached.add(node)
        yield node
        if ROLES[node.op] is Role.SWITCH:
            return
        source = next((item for item in node.inputs if not analysis.always_live(item)), source)


def _node(source: TokenSource) -> Node:
    return source.node if isinstance(source, Output) else source


def _likely_fetches(analysis: Deadness, graph: Graph) -> Iterable[Output]:
    """Outputs without a reader, except for inputs of the graph, Switch outputs, and loop ends."""
    for tensor in sinks(graph, analysis.frames):
        inputs = tensor.node.inputs
        if inputs and not ROLES[tensor.node.op] and ROLES[inputs[0].node.op] is not Role.SWITCH:
            yield tensor


def _function_bodies(graph: Graph) -> dict[str, BodyGraph]:
    """The bodies of the functions, by name."""
    signatures = Signatures(graph.functions)
    return {
        function.name: body_graph(function, signatures) for function in graph.functions.values()
    }


def _endless_loops(graph: Graph, functions: Mapping[str, BodyGraph]) -> Iterator[Finding]:
    """Loops that cannot end, in the graph and in its functions."""
    yield from endless_loop_findings(graph, frames(graph), functions)
    for name, function in functions.items():
        body = function.subject.graph
        for finding in endless_loop_findings(body, frames(body), functions):
            yield replace(finding, node=f"{name}/{finding.node}")


def _shape_findings(graph: Graph, bodies: Mapping[str, Graph]) -> Iterator[Finding]:
    """Static shapes fit each other, in the graph and in its functions."""
    yield from _shape_errors(graph)
    for name, body in bodies.items():
        for finding in _shape_errors(body):
            yield replace(finding, node=f"{name}/{finding.node}")


def _shape_errors(graph: Graph) -> Iterator[Finding]:
    for node, message in infer_shapes(graph).errors:
        text = f"input shapes are incompatible: {message}"
        yield Finding("CFG303", "warning", text, node.name)
