"""The `explain` command for a pair of nodes: frames, gradient, and cluster between them.

The frame path lists the Enters and Exits between the frame of a tensor and the frame of its reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.gradient_paths import find_gradient_cut, gradient_path_through
from cfgraph.analysis.loops.frames import Frame, Frames, frames
from cfgraph.analysis.verify.verify import require_analyzable
from cfgraph.console.explain import print_explanation, require_outside_functions
from cfgraph.console.graph_files import read_graph
from cfgraph.console.output import Column, OutputTable, Page
from cfgraph.console.signatures import signature_names
from cfgraph.errors import CfgraphError, Unsupported, UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.names import first_names
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of, strip_identities
from cfgraph.options import Color
from cfgraph.passes.cluster.cluster import cluster
from cfgraph.passes.derivatives import derivatives

# nodes of a path that are listed
_MAX_PATH_NODES: Final = 8
# outputs of a loop that are listed
_NODES_AT_EACH_END: Final = 4


@dataclass(frozen=True, slots=True)
class PairExplanation:
    """Relation of a tensor and a node: frames, gradient, and cluster, each described in words."""

    source: Output
    target: Output
    frames: str
    gradient: str
    cluster: str

    def to_json(self) -> dict[str, Any]:
        """Return the member `pair` of the document."""
        return {
            "source": self.source.name,
            "target": self.target.name,
            "frames": self.frames,
            "gradient": self.gradient,
            "cluster": self.cluster,
        }

    def print(self, out: Page) -> None:
        """Print the explanation as text."""
        out.heading(f"{self.source.name} → {self.target.name}", "from the first to the second")
        columns = [Column("what", style="dim"), Column("said")]
        rows: list[Sequence[Any]] = [
            ("frames", self.frames),
            ("gradient", self.gradient),
            ("cluster", self.cluster),
        ]
        out.table(OutputTable(columns, rows, headings=False))


def explain_pair(
    path: str, subject: str, target: str, *, ran: bool, json: bool, color: Color
) -> None:
    """Explain how one node reaches another. Raises UsageError if a run is also requested."""
    if ran:
        hint = "remove --feed and --run"
        raise UsageError("--run and --feed explain one node or loop, not a pair", hint=hint)
    source = read_graph(path, quiet=json)
    require_analyzable(source.graph)
    names = signature_names(source)
    ends = [_tensor(source.graph, names.tensor(name)) for name in (subject, target)]
    print_explanation(source, "pair", _explain_nodes(source.graph, *ends), json=json, color=color)


def _tensor(graph: Graph, name: str) -> Output:
    require_outside_functions(graph, name)
    return graph.tensor(name.removeprefix("^"))


def _explain_nodes(graph: Graph, source: Output, target: Output) -> PairExplanation:
    """Explain the frames, the gradient, and the clusters between a tensor and a node."""
    frames_of_graph = frames(graph)
    path = frame_path(frames_of_graph, source, target.node)
    return PairExplanation(
        source,
        target,
        " ".join(_frame_path_text(path, source, target.node)),
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


def _gradient_text(graph: Graph, graph_frames: Frames, x: Output, y: Output) -> str:
    """Describe the gradient that `grad` adds, or the reason why there is none.

    In a loop, where tensors have many values, a path is a gradient.
    """
    what = f"gradient of {y.name} with respect to {x.name}"
    cut = find_gradient_cut([y], x)
    exists = cut is None
    if all(graph_frames.of_outputs.get(end.node) is graph_frames.root for end in (x, y)):
        try:
            (added,) = derivatives(copy_graph(graph), [y.name], [x.name])
            exists = added.names[0] is not None
        except Unsupported as error:
            return f"no {what}: {error.message}"
        except CfgraphError:
            pass  # an invalid pair, such as a y without a gradient: the cut explains it
    if not exists:
        return f"no {what}: {cut.reason if cut else 'the control flow passes none on'}"
    path = gradient_path_through([x], x.node, [y])
    names = [node.name for node in path[1:-1]]
    if len(names) > _MAX_PATH_NODES:
        names[_MAX_PATH_NODES // 2 : -_MAX_PATH_NODES // 2] = [
            f"… {len(names) - _MAX_PATH_NODES} more …"
        ]
    over = f", via {' → '.join(names)}" if names else ""
    return f"{what} exists{over}"


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


@dataclass(frozen=True, slots=True)
class FramePath:
    """The loops between a tensor and a node that shall read it.

    `leaves` are the frames to exit, innermost first, `enters` those to enter then. `ready` is the
    tensor in the reader's frame if the graph already forwards it; otherwise `near` are Exits of the
    first frame to leave, which forward other variables.
    """

    leaves: tuple[Frame, ...]
    enters: tuple[Frame, ...]
    ready: Output | None
    near: tuple[Node, ...]


def frame_path(graph_frames: Frames, x: Output, reader: Node) -> FramePath:
    """The frames to leave and to enter from a tensor to a node."""
    target, current = graph_frames.of_outputs[x.node], graph_frames.of[reader]
    leaves, enters = [], list[Frame]()
    while current is not target:
        if target.depth >= current.depth and target.parent is not None:
            leaves.append(target)
            target = target.parent
        else:
            enters.insert(0, current)
            current = current.parent or current
    ready: Output | None = x
    for frame in leaves:
        ready = ready and next((e.output() for e in frame.exits if _exit_carries(e, ready)), None)
    for frame in enters:
        ready = ready and next((e.output() for e in frame.enters if _enter_carries(e, ready)), None)
    return FramePath(tuple(leaves), tuple(enters), ready, tuple(leaves[0].exits) if leaves else ())


def _enter_carries(enter: Node, x: Output) -> bool:
    """True if an Enter forwards a tensor to every iteration of its loop."""
    return x in enter.inputs and bool(enter.attr("is_constant"))


def _exit_carries(exit_node: Node, x: Output) -> bool:
    """True if an Exit forwards the final value of a tensor of its loop."""
    return strip_identities(x) in map(strip_identities, _final_values(exit_node))


def _final_values(exit_node: Node) -> Iterator[Output]:
    """The tensors of a loop whose final value an Exit forwards.

    The branch of the Switch that enters the body is excluded: it ends one iteration earlier.
    """
    switch = exit_node.inputs[0].node
    yield exit_node.inputs[0]
    if role_of(switch) is not Role.SWITCH:
        return
    merge = strip_identities(switch.inputs[0]).node
    if role_of(merge) is not Role.MERGE:
        return
    yield merge.output()
    for tensor in merge.inputs:
        if role_of(tensor.node) is Role.NEXT_ITERATION:
            yield tensor.node.inputs[0]
