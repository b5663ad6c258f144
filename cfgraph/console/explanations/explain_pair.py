"""The `explain` command for a pair of nodes: frames, gradient, and cluster between them.

The frame path lists the Enters and Exits between the frame of a tensor and the frame of its reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cfgraph.analysis.findings import Finding, require_no_findings
from cfgraph.analysis.gradient_paths import (
    GradientCut,
    find_gradient_cut,
    format_path,
    gradient_path_through,
)
from cfgraph.analysis.loops.frame import Frames
from cfgraph.analysis.loops.frame_crossings import FramePath, crossings_into, frame_path
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.verify import structural_errors
from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, Page
from cfgraph.console.explanations.answers import PairReport
from cfgraph.console.explanations.explain import print_explanation, require_outside_functions
from cfgraph.console.explanations.explain_crossings import FRAME_CODES
from cfgraph.console.graph_files import read_graph
from cfgraph.console.signatures import signature_names
from cfgraph.errors import CfgraphError, Unsupported, UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.names import first_names
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import NEXT_ITERATION
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.cluster.cluster import cluster
from cfgraph.passes.derivatives import gradient_with_flow
from cfgraph.reports import Column

# nodes of a path that are listed
_MAX_PATH_NODES: Final = 8
# outputs of a loop that are listed
_NODES_AT_EACH_END: Final = 4


class PairExplanation(PairReport):
    """The relation of a tensor and a node, which prints itself."""

    def report(self) -> PairReport:
        """Return the member `pair` of the document."""
        return self

    def print(self, out: Page) -> None:
        """Print the explanation as text."""
        out.heading(f"{self.source} → {self.target}", "from the first to the second")
        columns = [Column("what", style="dim"), Column("said")]
        rows = [(name, getattr(self, name)) for name in ("frames", "gradient", "cluster")]
        out.table(OutputTable(columns, [*rows], headings=False))


def explain_pair(
    path: str,
    subject: str,
    target: str,
    *,
    signature: str | None = None,
    ran: bool,
    has_source: bool = False,
    json: bool,
    color: Color,
) -> None:
    """Explain how one node reaches another. Raises UsageError if a run or a line is requested."""
    if ran:
        hint = "remove --feed and --run"
        raise UsageError("--run and --feed explain one node or loop, not a pair", hint=hint)
    if has_source:
        hint = "remove --source, or one of the nodes"
        raise UsageError("--source names the line of one node, not of a pair", hint=hint)
    source = read_graph(path, quiet=json)
    errors = structural_errors(source.graph)
    if any(error.code not in FRAME_CODES for error in errors):
        require_no_findings(errors)
    names = signature_names(source, signature)
    ends = [_tensor(source.graph, names.tensor(name)) for name in (subject, target)]
    explanation = _explain_nodes(source.graph, ends[0], ends[1], errors)
    print_explanation(source, "pair", explanation, json=json, color=color)


def _tensor(graph: Graph, name: str) -> Output:
    require_outside_functions(graph, name)
    try:
        return graph.tensor(name.removeprefix("^"))
    except UsageError as error:
        if error.node in graph:
            error.hint = f"explain it alone: cfgraph explain GRAPH {error.node}"
        raise


def _explain_nodes(
    graph: Graph, source: Output, target: Output, errors: Sequence[Finding]
) -> PairExplanation:
    """Explain the frames, the gradient, and the clusters between a tensor and a node.

    With `errors`, edges between frames, only the frames are known.
    """
    frames_of_graph = frames(graph)
    crossings = crossings_into(frames_of_graph, target.node) if errors else ()
    inner = frames_of_graph.of[target.node]
    reader_frame = crossings[0].reader_frame if crossings else inner
    path = frame_path(frames_of_graph.of_outputs[source.node], reader_frame, source)
    frames_text = " ".join(_frame_path_text(path, source, target.node))
    if errors:
        unknown = f"unknown: the graph is invalid at {errors[0].node} ({errors[0].code})"
        return PairExplanation(source.name, target.name, frames_text, unknown, unknown)
    return PairExplanation(
        source.name,
        target.name,
        _cycle_text(graph, frames_of_graph, source, target.node) or frames_text,
        _gradient_text(graph, frames_of_graph, source, target),
        _cluster_text(graph, source.node, target.node),
    )


def _frame_path_text(path: FramePath, source: Output, target: Node) -> Iterator[str]:
    if not path.leaves and not path.enters:
        yield f"same frame: {target.name} can read {source.name} directly"
        return
    if path.leaves:
        inner = path.leaves[0].path
        yield f"{source.name} is in the loop {inner}, and {target.name} is not;"
    else:
        yield f"{target.name} is in the loop {path.enters[-1].path}, and {source.name} is not;"
    if path.ready is not None:
        yield f"read {path.ready.name} instead, which forwards its value"
        return
    steps = [f"an Exit of {frame.path}" for frame in path.leaves]
    steps += [f"a constant Enter into {frame.path}" for frame in path.enters]
    yield f"route it through {', then '.join(steps)}"
    if path.near:
        names = first_names([f"{node.name}:0" for node in path.near], _NODES_AT_EACH_END)
        yield f"(current outputs of the loop: {names})"


def _cycle_text(graph: Graph, graph_frames: Frames, source: Output, target: Node) -> str | None:
    """Describe the cycle that an edge between two nodes would close, None if it closes none."""
    if source in target.inputs:
        return None
    back_edges = {node.output() for node in graph if ROLES[node.op] is NEXT_ITERATION}
    if target not in ancestors(graph, [source.node], fed=back_edges):
        return None
    frame = graph_frames.of[target]
    is_inner = frame is not graph_frames.root and graph_frames.of_outputs[source.node] is frame
    if not is_inner:
        return f"{source.name} depends on {target.name}: an edge back would close a cycle"
    merges = source.node.readers(source.port) if source in back_edges else []
    way = f"read {merges[0].node.name}:0" if merges else "add a NextIteration and a Merge"
    return (
        f"same frame, but {source.name} depends on {target.name} in the same iteration; "
        f"{way} for its value in the next one"
    )


def _gradient_text(graph: Graph, graph_frames: Frames, x: Output, y: Output) -> str:
    """Describe the gradient that `grad` adds, or the reason why there is none.

    In a loop, where tensors have many values, a path is a gradient.
    """
    what = f"gradient of {y.name} with respect to {x.name}"
    cut = find_gradient_cut([y], x)
    exists = cut is None
    if all(graph_frames.of_outputs.get(end.node) is graph_frames.root for end in (x, y)):
        copy = copy_graph(graph)
        try:
            name, flow = gradient_with_flow(copy, y.name, x.name)
        except Unsupported as error:
            return f"no {what}: {_unsupported_text(copy, error, x, y)}"
        except CfgraphError as error:
            # an invalid pair, such as a y without a gradient; a cut explains it better
            if exists:
                return f"no {what}: {error.message}"
        else:
            exists = not flow.without_gradient
            if not exists:
                # in the lowered graph, where the bodies of functions are nodes like all others
                cut = find_gradient_cut([copy.tensor(y.name)], copy.tensor(x.name), flow=flow)
            if name is not None and not exists:
                return f"the {what} is zero: {_cut_text(cut)}"
    if not exists:
        return f"no {what}: {_cut_text(cut)}"
    path = gradient_path_through([x], x.node, [y])
    names = [node.name for node in path[1:-1]]
    if len(names) > _MAX_PATH_NODES:
        names[_MAX_PATH_NODES // 2 : -_MAX_PATH_NODES // 2] = [
            f"… {len(names) - _MAX_PATH_NODES} more …"
        ]
    over = f", via {' → '.join(names)}" if names else ""
    return f"{what} exists{over}"


def _cut_text(cut: GradientCut | None) -> str:
    return cut.reason if cut else "the control flow passes none on"


def _unsupported_text(graph: Graph, error: Unsupported, x: Output, y: Output) -> str:
    """The message, with the path on which the rejected node lies."""
    node = graph.nodes.get(error.node or "")
    ends = ([tensor.name] for tensor in (x, y))
    starts, targets = ([graph.tensor(name) for name in names] for names in ends)
    path = () if node is None else gradient_path_through(starts, node, targets)
    where = f"; it is on the path {format_path(path)}" if len(path) > 1 else ""
    return f"{error.message}{where}"


def _cluster_text(graph: Graph, source: Node, target: Node) -> str:
    report = cluster(copy_graph(graph), explain=True, gains=False)
    cluster_of = {name: formed.name for formed in report.clusters for name in formed.nodes}
    first, second = cluster_of.get(source.name), cluster_of.get(target.name)
    if first is not None and first == second:
        return f"both are in {first}"
    for edge in report.edges:
        if (edge.source, edge.target) == (source.name, target.name):
            return f"not clustered together: {edge.reason.text}"
    reasons = [
        f"{name} is in no cluster: {report.outside[name].text}"
        for name in (source.name, target.name)
        if name in report.outside
    ]
    if reasons:
        return "; ".join(reasons)
    if first is None or second is None:
        return "not in the same cluster"
    return f"{source.name} is in {first}, {target.name} in {second}; no edge joins them directly"
