"""Verification of graphs: applies all validity rules, once per state of the graph.

The rules are in the modules `*_rules`; function bodies obey the same rules as the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.analysis.findings import Finding, require_no_findings
from cfgraph.analysis.resource_handles import handle_uses
from cfgraph.analysis.verify import device_rules, function_rules, graph_rules
from cfgraph.analysis.verify.context import Signatures, VerifyContext, VerifyRule
from cfgraph.analysis.verify.function_rules import BodyGraph, body_graph, check_returned_types
from cfgraph.errors import CfgraphError, ExecutionError, InvalidResult
from cfgraph.ir.dtypes import bool_
from cfgraph.ir.function_graph import (
    FunctionGraph,
    FunctionGraphs,
    FunctionInstances,
    is_polymorphic,
)
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, require_graph
from cfgraph.ir.library import body_calls, called_functions, calls_of
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import function_calls, role_of

_RULES: Final[tuple[VerifyRule, ...]] = (
    graph_rules.check_names,
    graph_rules.check_ops,
    graph_rules.check_attributes,
    graph_rules.check_constants,
    graph_rules.check_edges,
    graph_rules.check_cycles,
    graph_rules.check_frames,
    graph_rules.check_parallel_iterations,
    graph_rules.check_next_iterations,
    graph_rules.check_loop_structure,
    function_rules.check_named_functions,
    function_rules.check_calls,
    device_rules.check_devices,
)
# the `loc:@` names in a body may be those of the graph that it was extracted from
_RULES_OF_GRAPHS: Final[tuple[VerifyRule, ...]] = (
    graph_rules.check_colocation,
    graph_rules.check_versions,
    device_rules.check_transfers,
)
# rules without errors; whoever needs only these applies the others
_ADVICE: Final[tuple[VerifyRule, ...]] = (device_rules.check_messages,)
_ERRORS: Final = (*_RULES, *_RULES_OF_GRAPHS)
# the property of the context with the part of a graph that a rule applies to, if it is not all
_SUBJECTS: Final[dict[VerifyRule, str]] = {
    graph_rules.check_frames: "loop_ops",
    graph_rules.check_next_iterations: "loop_ops",
    graph_rules.check_loop_structure: "loop_ops",
    function_rules.check_named_functions: "functional_nodes",
    function_rules.check_calls: "functional_nodes",
    device_rules.check_devices: "devices",
    graph_rules.check_colocation: "colocated",
    device_rules.check_transfers: "transfers",
    device_rules.check_messages: "transfers",
}
# the findings of other rules do not depend on devices
_ON_DEVICES: Final = frozenset(
    {
        graph_rules.check_loop_structure,
        device_rules.check_devices,
        device_rules.check_transfers,
        device_rules.check_messages,
    }
)

# of the errors of an assignment to a constant
_EXPECTED_VARIABLES: Final = ("expects Ref(", "expects resource")

# analyses do not depend on devices; the parts of a partitioned graph may be incomplete
_DEVICE_CODES: Final = "CFG4"

# of functions that are verified together
_MAX_BATCH_NODES: Final = 256
# bodies of polymorphic functions that are verified under different attributes
_MAX_INSTANCES: Final = 1000

_cache: WeakKeyDictionary[Graph, _CachedFindings] = WeakKeyDictionary()
# functions without findings, in libraries in which these names have these functions; copies of a
# graph share them
_Callees = tuple[tuple[str, "ReferenceType[Function]"], ...]
_faultless: WeakKeyDictionary[Function, _Callees] = WeakKeyDictionary()


class _CachedFindings(NamedTuple):
    """Cached findings on a graph, also by rule, and the state that they are valid for."""

    state: Any
    moves: int
    by_rule: dict[VerifyRule, tuple[Finding, ...]]
    on_library: tuple[Finding, ...]
    all: tuple[Finding, ...]


def verify(graph: Graph, bodies: FunctionGraphs | None = None) -> tuple[Finding, ...]:
    """All findings on a graph: errors, warnings, and notes; cached until the graph changes.

    `bodies` receives the graphs of functions that are verified now, and have no findings.
    """
    return _findings(graph, (*_ERRORS, *_ADVICE), bodies).all


def _findings(
    graph: Graph, rules: Sequence[VerifyRule] = _ERRORS, bodies: FunctionGraphs | None = None
) -> _CachedFindings:
    """Findings of these rules on a graph, or of more, cached until it changes."""
    require_graph(graph)
    state, known = _verified_state(graph), _cache.get(graph)
    if known is not None and known.state != state:
        known = None
    if known is None or known.moves != graph.moves or not known.by_rule.keys() >= {*rules}:
        with graph.paused_gc():
            known = _cache[graph] = _verify_graph(graph, state, known, rules, bodies)
    return known


def require_valid(graph: Graph, bodies: FunctionGraphs | None = None) -> None:
    """Raise InvalidInput for the first error of a graph, carrying all errors."""
    findings = _findings(graph, bodies=bodies).all
    if errors := [finding for finding in findings if finding.level == "error"]:
        require_no_findings(_with_branch_hint(graph, errors))


def unused_branch_hint(graph: Graph, errors: Sequence[Finding]) -> str | None:
    """The hint to remove a branch that assigns a constant, if an input of the graph selects it.

    A frozen graph has such a branch, of the training, where it read a variable.
    """
    if not errors or not any(sign in errors[0].message for sign in _EXPECTED_VARIABLES):
        return None
    for node in graph:
        if is_input(node) and node.attr("dtype") == bool_ and _selects_branch(node):
            branch = f"--set {node.name}=false"
            return f"keep one branch alone: cfgraph freeze GRAPH --fetch NAME {branch}"
    return None


def _selects_branch(node: Node) -> bool:
    """True for an input that is a predicate, or that a conditional or loop receives."""
    return any(
        role_of(use.node) is Role.SWITCH or function_calls(use.node.op).kind
        for use in handle_uses(node.output())[0]
    )


def _with_branch_hint(graph: Graph, errors: Sequence[Finding]) -> Sequence[Finding]:
    hint = unused_branch_hint(graph, errors)
    return errors if hint is None else [replace(errors[0], hint=hint), *errors[1:]]


def require_valid_result(
    graph: Graph, pass_name: str, bodies: FunctionGraphs | None = None
) -> None:
    """Raise InvalidResult if a pass made an invalid graph from a valid one; `bodies` as above."""
    findings = _findings(graph, bodies=bodies).all
    if errors := [finding for finding in findings if finding.level == "error"]:
        raise InvalidResult(pass_name, errors)


def require_valid_nodes(graph: Graph, nodes: Iterable[Node]) -> None:
    """Raise InvalidInput for errors on these nodes and their functions, or on the whole graph.

    Errors elsewhere do not affect a run of these.
    """
    known = _findings(graph)
    if all(finding.level != "error" for finding in known.all):
        return
    nodes = list(nodes)
    names = {node.name for node in nodes}
    errors = [
        finding
        for finding in chain.from_iterable(known.by_rule.values())
        if finding.level == "error" and (finding.node is None or finding.node in names)
    ]
    called = called_functions(graph, nodes=nodes)
    errors += [
        finding
        for finding in known.on_library
        if finding.level == "error" and _is_in(finding, called)
    ]
    require_no_findings(errors)


def _is_in(finding: Finding, functions: Collection[str]) -> bool:
    """True for a finding on one of these functions or a node in it."""
    subject = finding.node
    return subject is None or any(
        subject == name or subject.startswith(f"{name}/") for name in functions
    )


def structural_errors(graph: Graph) -> tuple[Finding, ...]:
    """The errors that make a graph unfit for analysis: all except device errors."""
    return tuple(
        finding
        for finding in _findings(graph).all
        if finding.level == "error" and not finding.code.startswith(_DEVICE_CODES)
    )


def require_analyzable(graph: Graph) -> None:
    """Raise InvalidInput for the first structural error, before an analysis of the graph."""
    require_no_findings(_with_branch_hint(graph, structural_errors(graph)))


def _verified_state(graph: Graph) -> Any:
    """The state that findings depend on, except devices; equal states have equal findings."""
    library = tuple(graph.functions.items())
    edits = graph.edits - graph.moves
    return edits, graph.versions, library, tuple(graph.gradient_functions.items())


def _verify_graph(
    graph: Graph,
    state: Any,
    before: _CachedFindings | None,
    rules: Sequence[VerifyRule],
    bodies: FunctionGraphs | None,
) -> _CachedFindings:
    """Findings on a graph; `before` are findings on a graph that differs at most in devices."""
    has_moved = before is not None and before.moves != graph.moves
    signatures = Signatures(graph.functions)
    subject = VerifyContext(graph, signatures)
    by_rule: dict[VerifyRule, tuple[Finding, ...]] = {}
    for rule in rules:
        known = None if before is None or (has_moved and rule in _ON_DEVICES) else before.by_rule
        by_rule[rule] = _apply(rule, subject) if known is None or rule not in known else known[rule]
    if before is None:
        is_sound = not any(
            finding.level == "error"
            for rule in by_rule.keys() - _ON_DEVICES
            for finding in by_rule[rule]
        )
        library = tuple(_verify_library(graph, signatures, is_sound, bodies))
    else:
        library = before.on_library
    findings = (*chain.from_iterable(by_rule.values()), *library)
    return _CachedFindings(state, graph.moves, by_rule, library, findings)


def _apply(rule: VerifyRule, subject: VerifyContext) -> tuple[Finding, ...]:
    """Findings of a rule, none if the graph has nothing that it applies to."""
    applies = rule not in _SUBJECTS or getattr(subject, _SUBJECTS[rule])
    return tuple(rule(subject)) if applies else ()


def _verify_library(
    graph: Graph, signatures: Signatures, is_sound: bool, bodies: FunctionGraphs | None
) -> Iterator[Finding]:
    """Findings on the library of a graph whose nodes are free of errors if `is_sound`."""
    for batch in _batches(f for f in graph.functions.values() if not _is_faultless(f, graph)):
        check_deadline()
        together = len(batch) > 1 and _are_faultless(batch, signatures, bodies)
        for function in batch:
            findings = () if together else tuple(_verify_function(function, signatures, bodies))
            is_sound &= all(finding.level != "error" for finding in findings)
            yield from findings
            if not findings:
                _faultless[function] = _callees_of(function, graph)
    if graph.functions or graph.gradient_functions:
        yield from function_rules.check_gradient_functions(graph, signatures)
        recursion = tuple(function_rules.check_recursion(graph))
        yield from recursion
        if is_sound and not recursion:
            yield from _verify_instances(graph, signatures)


def _verify_instances(graph: Graph, signatures: Signatures) -> Iterator[Finding]:
    """Errors in the bodies of polymorphic functions under the attributes of each call.

    The graph and the functions are free of errors by themselves, and of recursion. Attributes can
    ask for exponentially many bodies: beyond `_MAX_INSTANCES` the others are left to lowering.
    """
    functions = graph.functions
    polymorphic = {name for name, function in functions.items() if is_polymorphic(function)}
    if not polymorphic:
        return
    plain = [f.definition.nodes for name, f in functions.items() if name not in polymorphic]
    instances, seen = FunctionInstances(functions), set[FunctionGraph]()
    calls = [call for node in graph for call in calls_of(node)]
    calls += [call for nodes in plain for node in nodes for call in calls_of(node)]
    while calls and len(seen) < _MAX_INSTANCES:
        check_deadline()
        name, attrs = calls.pop()
        if name not in polymorphic:
            continue
        try:
            instance = instances.get(name, attrs)
        except CfgraphError as error:
            yield replace(Finding.of_error(error), node=_node_in(name, error.node))
            continue
        if instance not in seen:
            seen.add(instance)
            subject = VerifyContext(instance.graph, signatures)
            for finding in chain.from_iterable(_apply(rule, subject) for rule in _RULES):
                if finding.level == "error":
                    yield replace(finding, node=_node_in(name, finding.node))
            calls += [call for node in instance.graph for call in calls_of(node)]
    instances.clear()


def _node_in(function: str, node: str | None) -> str:
    return f"{function}/{node}" if node else function


def _callees_of(function: Function, graph: Graph) -> _Callees:
    """The library functions that the findings on a function depend on."""
    known = graph.functions
    return tuple([(name, ref(known[name])) for name in body_calls(function) if name in known])


def _is_faultless(function: Function, graph: Graph) -> bool:
    """True if a function had no findings when it was verified, and calls the same functions."""
    callees = _faultless.get(function)
    return callees is not None and all(graph.functions.get(name) is f() for name, f in callees)


def _batches(functions: Iterable[Function]) -> Iterator[list[Function]]:
    """Yield the functions in order; small ones together."""
    batch, size = list[Function](), 0
    for function in functions:
        size += len(function.definition.nodes)
        if batch and size > _MAX_BATCH_NODES:
            yield batch
            batch, size = [], len(function.definition.nodes)
        batch.append(function)
    if batch:
        yield batch


def _are_faultless(
    functions: Sequence[Function], signatures: Signatures, bodies: FunctionGraphs | None
) -> bool:
    """True if functions have no findings, by the rules applied to all bodies as one graph.

    It takes a fraction of the time of each alone. Loops of equal names would be one there.
    """
    with signatures.without_hints():
        read = [body_graph(function, signatures) for function in functions]
        union = function_rules.union_of_bodies(read, signatures)
        if union.loop_ops or not _is_clean(read, union):
            return False
    for function, body in zip(functions, read, strict=True):
        _keep_or_clear(function, body, bodies)
    return True


def _is_clean(read: Sequence[BodyGraph], union: VerifyContext) -> bool:
    if any(body.faults for body in read):
        return False
    try:
        returned = chain.from_iterable(check_returned_types(body, union.types) for body in read)
        on_nodes = chain.from_iterable(_apply(rule, union) for rule in _RULES)
        return next(chain(returned, on_nodes), None) is None
    except ExecutionError:  # too large together
        return False


def _keep_or_clear(function: Function, body: BodyGraph, bodies: FunctionGraphs | None) -> None:
    """Add a body without findings to `bodies`, if these are collected and it can be one."""
    instance = None if bodies is None else body.as_function(function)
    if instance is not None and bodies is not None:
        bodies[function] = instance
    else:
        body.subject.graph.clear()


def _verify_function(
    function: Function, signatures: Signatures, bodies: FunctionGraphs | None
) -> Iterator[Finding]:
    """Findings on a function's body; they name nodes `function/node`."""
    body = body_graph(function, signatures)
    unresolved = {finding.node for finding in body.faults}
    findings = [
        *body.faults,
        *check_returned_types(body, body.subject.types),
        *function_rules.check_returned_frames(body),
    ]
    for rule in _RULES:
        findings.extend(_apply(rule, body.subject))
    _keep_or_clear(function, body, None if findings else bodies)
    for finding in findings:
        if finding.code == "CFG107" and finding.node in unresolved:
            continue  # the node lacks inputs only because one of them does not resolve
        related = tuple(_node_in(function.name, name) for name in finding.related)
        yield replace(finding, node=_node_in(function.name, finding.node), related=related)
