"""Selection of nodes by name and filter, in a graph or in function bodies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from cfgraph.analysis.deadness.deadness import HOW_OFTEN, LivenessCondition, liveness_conditions
from cfgraph.analysis.feeds_and_fetches import format_type
from cfgraph.analysis.loops.frame import Frames
from cfgraph.analysis.loops.frames import frames as find_frames
from cfgraph.analysis.node_filter import select_nodes, split_filter
from cfgraph.analysis.verify.context import NodeTypes, Signatures
from cfgraph.analysis.verify.function_rules import body_graph
from cfgraph.analysis.verify.verify import require_analyzable, structural_errors
from cfgraph.console.node_names import NodeNames, lowered_form
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import did_you_mean, first_names, known_names_hint
from cfgraph.ir.shapes import Shape
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes

SHOW_FILTERS: Final = ("op", "device", "frame", "live", "function")


@dataclass
class GraphView:
    """A graph or the body of the function `name`; costly properties are computed on first use.

    `arguments` are the nodes that stand for a function's arguments, with their types, `results` are
    the tensors that it returns, and `caller` is the graph whose library has the function. `feeds`
    are shapes of tensors by name, known from calls.
    """

    graph: Graph
    name: str = ""
    arguments: Mapping[Node, NodeTypes] = field(default_factory=dict)
    caller: Graph | None = None
    results: Sequence[Output | None] = ()
    feeds: Mapping[str, Shape] = field(default_factory=dict)

    @cached_property
    def is_analyzable(self) -> bool:
        """True if the graph, or the one whose library has the function, has no structural error."""
        return not structural_errors(self.caller or self.graph)

    @cached_property
    def frames(self) -> Frames:
        """Frames of the nodes."""
        return find_frames(self.graph)

    @cached_property
    def shapes(self) -> StaticShapes:
        """Static shapes; all are unknown in a graph with structural errors."""
        return (
            infer_shapes(self.graph, self.feeds) if self.is_analyzable else StaticShapes({}, {}, {})
        )

    @cached_property
    def liveness(self) -> Mapping[Node, LivenessCondition]:
        """Liveness condition of each node. Raises InvalidInput for structural errors."""
        require_analyzable(self.caller or self.graph)
        return liveness_conditions(self.graph)

    def type_text(self, item: Output) -> str:
        """Format type and shape of a tensor."""
        types = self.arguments[item.node].outputs if item.node in self.arguments else None
        return format_type(types[item.port] if types else item.dtype, self.shapes[item])

    def results_of(self, node: Node) -> list[str]:
        """The results of the function that a node computes."""
        outputs = self.caller.functions[self.name].definition.outputs if self.caller else ()
        pairs = zip(outputs, self.results, strict=True)
        return [output.name for output, result in pairs if result and result.node is node]

    def title(self, node: Node) -> str:
        """Return the name of a node as users write it: qualified by its function."""
        return f"{self.name}/{node.name}" if self.name else node.name


@dataclass(frozen=True)
class NodeSelection:
    """Selected nodes of a view."""

    view: GraphView
    nodes: Sequence[Node]


def nodes_to_show(whole: GraphView, filters: Iterable[str]) -> list[NodeSelection]:
    """Select nodes that pass all filters, from the graph or from functions that filters name.

    Raises UsageError for an unknown kind of filter.
    """
    split = [(text, *split_filter(text, SHOW_FILTERS)) for text in filters]
    functions = [pattern for _, kind, pattern in split if kind == "function"]
    rest = [text for text, kind, _ in split if kind != "function"]
    views = list(_matching_bodies(whole.graph, functions)) if functions else [whole]
    return [NodeSelection(view, _passing_nodes(view, rest)) for view in views]


# names that a hint lists
_MAX_NAMES: Final = 4


def filter_hint(graph: Graph, filters: Iterable[str]) -> str | None:
    """Suggest a correction for filters that match nothing."""
    for text in filters:
        kind, pattern = split_filter(text, SHOW_FILTERS)
        if kind == "live" and pattern.isalpha() and pattern not in HOW_OFTEN:
            return f"live:X expects {', '.join(HOW_OFTEN)}, or a formula as printed"
        known: Collection[str] = {"op": graph.ops, "function": graph.functions}.get(kind, ())
        if not kind:
            pattern = pattern.rstrip("*?/")
            known = {name for node in graph for name in (node.name, node.name.partition("/")[0])}
        hint = did_you_mean(pattern, sorted(known)) or _containing(pattern, known)
        if hint is not None and pattern not in known:
            return f"{text}: {hint}"
    return None


def _containing(pattern: str, known: Collection[str]) -> str | None:
    """Suggest names that contain a pattern, ignoring case, or name some of the known ones."""
    if not known:
        return None
    part = pattern.strip("*?").lower()
    close = sorted(name for name in known if part and part in name.lower())
    if close and not any(sign in part for sign in "*?["):
        return f"did you mean '*{pattern.strip('*?')}*', as in {first_names(close, _MAX_NAMES)}?"
    return f"the graph has {first_names(sorted(known), _MAX_NAMES)}"


def function_bodies(whole: GraphView) -> list[NodeSelection]:
    """Select all nodes of all functions of a graph."""
    return nodes_to_show(whole, ("function:*",)) if whole.graph.functions else []


def _passing_nodes(view: GraphView, filters: Iterable[str]) -> list[Node]:
    """Return the nodes of a view that pass; the costly liveness filters come last."""
    plain, live = list[str](), list[str]()
    for text in filters:
        kind, pattern = split_filter(text, SHOW_FILTERS)
        (live if kind == "live" else plain).append(pattern if kind == "live" else text)
    selected = select_nodes(view.graph, view.frames, plain)
    return [
        node for node in selected if all(view.liveness[node].matches(pattern) for pattern in live)
    ]


def _matching_bodies(graph: Graph, patterns: Sequence[str]) -> Iterator[GraphView]:
    """Yield the functions whose names match all patterns."""
    signatures = Signatures(graph.functions)
    for name in sorted(graph.functions):
        if all(fnmatchcase(name, pattern) for pattern in patterns):
            yield _body_view(graph, name, signatures)


def _body_view(graph: Graph, name: str, signatures: Signatures) -> GraphView:
    body = body_graph(graph.functions[name], signatures)
    subject, outputs = body.subject, graph.functions[name].definition.outputs
    results = [body.returns.get(output.name) for output in outputs]
    return GraphView(subject.graph, name, subject.arguments, graph, results)


def find_node(whole: GraphView, name: str, names: NodeNames | None = None) -> NodeSelection:
    """Find a node by name, or by a tensor's name; `FUNCTION/NODE` is a node of a function.

    A node that only lowering makes is one of the lowered graph, which `names` of the graph may have
    made. Raises UsageError if there is none, and for an output that the node does not have.
    """
    base, _, port = name.rpartition(":")
    if not base or not port.isdigit():
        return _find_by_name(whole, name, names)
    selection = _find_by_name(whole, base, names)
    if selection.nodes[0] not in selection.view.arguments:
        selection.view.graph.tensor(f"{selection.nodes[0].name}:{port}")
    return selection


def _find_by_name(whole: GraphView, name: str, names: NodeNames | None) -> NodeSelection:
    if name in whole.graph:
        return NodeSelection(whole, [whole.graph[name]])
    function, slash, inner = name.partition("/")
    if not slash or function not in whole.graph.functions:
        lowered = None
        if slash:
            lowered = lowered_form(whole.graph) if names is None else names.lowered
        if lowered is not None and name in lowered:
            return NodeSelection(GraphView(lowered), [lowered[name]])
        raise _unknown_node_error(whole.graph, name)
    view = _body_view(whole.graph, function, Signatures(whole.graph.functions))
    if inner not in view.graph:
        message = f"no node {inner!r} in the function {function!r}"
        raise UsageError(message, hint=known_names_hint(inner, view.graph.nodes))
    return NodeSelection(view, [view.graph[inner]])


def _unknown_node_error(graph: Graph, name: str) -> UsageError:
    """Create an error that suggests a function, a node of a function, or a similar name."""
    if name in graph.functions:
        hint = f"{name!r} is a function: show --filter function:{name} lists its nodes"
        return UsageError(f"no node {name!r} in the graph", hint=hint)
    for function in graph.functions.values():
        if any(body.name == name for body in function.definition.nodes):
            hint = f"did you mean {function.name + '/' + name!r} in the function {function.name!r}?"
            return UsageError(f"no node {name!r} in the graph", hint=hint)
    return UsageError(f"no node {name!r} in the graph", hint=known_names_hint(name, graph.nodes))
