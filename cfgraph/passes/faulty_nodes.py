"""Replace faulty nodes by nodes that raise their errors where they run.

    Switch:1, a float32 ──▶ AssignSub        becomes        Switch:1 ──▶ FaultyNode

A frozen graph has such nodes where a branch assigns a variable that is a constant now. They do no
harm as long as the branch is removed, or never taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.analysis.feeds_and_fetches import expected_types
from cfgraph.analysis.findings import Finding, require_no_findings
from cfgraph.analysis.verify.verify import verify
from cfgraph.errors import CfgraphError
from cfgraph.ir.dtypes import DType, float32
from cfgraph.ir.function_graph import instantiate, is_polymorphic
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions, copy_graph, remove_uncalled_functions, with_body
from cfgraph.ir.traversal import ancestors
from cfgraph.limits import check_deadline
from cfgraph.ops.families.printing import FaultyNode
from cfgraph.ops.opdef.op import is_a, is_identity, lookup, role_of
from cfgraph.passes.optimize.optimize import prune

# errors in the inputs and the attributes of a node, which leave the edges as they are
_OF_ONE_NODE = frozenset({"CFG107", "CFG110", "CFG113", "CFG114", "CFG115", "CFG301", "CFG302"})
_REFERENCE = "Ref"
# a node that is replaced may make its readers faulty; some faults never end
_MAX_ROUNDS: Final = 32


def defer_faults(graph: Graph, needed: Iterable[Node], fetches: Collection[Output] = ()) -> bool:
    """Replace the faulty nodes of an invalid graph, and remove what `needed` does not depend on.

    A node that is replaced has the outputs that nodes and `fetches` read. Returns true if there is
    one. Raises InvalidInput for errors of other kinds. A valid graph stays unchanged.
    """
    if not _errors(graph):
        return False
    prune(graph, needed)
    remove_uncalled_functions(graph)
    deferred = False
    for left in reversed(range(_MAX_ROUNDS)):
        check_deadline()
        if not (errors := _errors(graph)):
            break
        if not left:
            require_no_findings(errors)
        deferred = True
        first = {error.node: error for error in reversed(errors)}.values()
        are_of_one_node = all(finding.code in _OF_ONE_NODE for finding in first)
        if not (are_of_one_node and all(_defer(graph, finding, fetches) for finding in first)):
            require_no_findings(errors)
    return deferred


def _errors(graph: Graph) -> list[Finding]:
    return [finding for finding in verify(graph) if finding.level == "error"]


def _defer(graph: Graph, finding: Finding, fetches: Collection[Output]) -> bool:
    """Replace the node of a finding, in the graph or in a function; false if it is not found."""
    name = finding.node or ""
    if name in graph:
        _replace(graph, graph[name], finding, fetches)
        return True
    first, _, inner = name.partition("/")
    function = graph.functions.get(first)
    if function is None or is_polymorphic(function):
        return False
    try:
        body = instantiate(function, {}, graph.functions)
    except CfgraphError:
        return False
    if inner not in body.graph:
        return False
    _replace(body.graph, body.graph[inner], finding)
    graph.functions[first] = with_body(function, body, graph.functions)
    return True


def _replace(graph: Graph, node: Node, finding: Finding, fetches: Collection[Output] = ()) -> None:
    """Replace a node; one that only forwards a reference forwards the value that it receives."""
    if _forwards_value_as_reference(node):
        graph.set_op(node, node.op.removeprefix(_REFERENCE), node.attrs)
        return
    read = [use.node.inputs[use.slot] for use in node.uses if use.slot >= 0]
    read += [tensor for tensor in fetches if tensor.node is node]
    count = max(node.output_count or 0, *(tensor.port + 1 for tensor in read), 0)
    inputs = [tensor.dtype or float32 for tensor in node.inputs]
    outputs = [_output_type(node.output(port)) for port in range(count)]
    attrs: dict[str, Any] = {"Tin": tuple(inputs), "Tout": tuple(outputs)}
    texts = {"code": finding.code, "message": finding.message, "hint": finding.hint or ""}
    attrs |= {name: text.encode(errors="replace") for name, text in texts.items()}
    graph.set_op(node, FaultyNode.name, attrs)


def _forwards_value_as_reference(node: Node) -> bool:
    op = lookup(node.op)
    if op is None or not op.parsed().has_references:
        return False
    first = node.inputs[0].dtype if node.inputs else None
    forwards = role_of(node) is not None or is_identity(node)
    return forwards and first is not None and not first.is_ref and first is node.attrs.get("T")


def _output_type(tensor: Output) -> DType:
    """The type of an output, no reference: a reader that needs one is faulty, too."""
    dtype = tensor.dtype or next(iter(expected_types(tensor)), float32)
    return dtype.base


def encodable_graph(graph: Graph) -> tuple[Graph, list[str]]:
    """A graph whose faulty nodes have an op that can be encoded, and their names."""
    names = [node.name for node in graph if is_a(node, FaultyNode)]
    if not names:
        return graph, names
    copy = copy_graph(graph)
    for name in names:
        copy.set_op(copy[name], FaultyNode.__name__, copy[name].attrs)
    return copy, names


def restore_faulty_nodes(graph: Graph, names: Iterable[str]) -> None:
    """Make these nodes of an encodable graph faulty again."""
    for name in names:
        graph.set_op(graph[name], FaultyNode.name, graph[name].attrs)


def has_faulty_nodes(graph: Graph) -> bool:
    """True if a faulty node is in a graph, or in a function that it calls."""
    return any(True for _ in _found(graph))


def require_no_faulty_nodes(graph: Graph) -> None:
    """Raise the errors of the faulty nodes in a graph, and in the functions that it calls."""
    require_no_findings([*_found(graph)])


def require_conditional_faults(graph: Graph, needed: Iterable[Node]) -> None:
    """Raise the errors of the faulty nodes of a graph that are live in each run of `needed`."""
    liveness = deadness(graph)
    faulty = [node for node in ancestors(graph, [*needed]) if is_a(node, FaultyNode)]
    errors = [FaultyNode.error(x, x.name) for x in faulty if liveness.always_live(x)]
    require_no_findings([*map(Finding.of_error, errors)])


def _found(graph: Graph) -> Iterator[Finding]:
    nodes: list[tuple[str, Node | BodyNode]] = [(node.name, node) for node in graph]
    for name in sorted(called_functions(graph)):
        nodes += [(f"{name}/{x.name}", x) for x in graph.functions[name].definition.nodes]
    for name, node in nodes:
        if is_a(node, FaultyNode):
            yield Finding.of_error(FaultyNode.error(node, name))
