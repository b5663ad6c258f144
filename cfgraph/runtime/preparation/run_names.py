"""Names of runs, resolved once: tensors to fetch, nodes to run, and conversions of their feeds.

For names of nodes inside clusters, the nodes of such a cluster are inlined, and the nodes that the
run needs are clustered again. All other clusters run as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from cfgraph.analysis.feeds_and_fetches import are_inputs, fed_tensor, fetched_tensor, is_input
from cfgraph.analysis.inner_nodes import body_ancestors
from cfgraph.analysis.resource_handles import is_variable
from cfgraph.errors import UsageError
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph, remove_uncalled_functions
from cfgraph.ir.names import first_names, name_list, require_names, unused_name
from cfgraph.ir.node import node_name
from cfgraph.ir.traversal import ancestors
from cfgraph.limits import out_of_memory_error
from cfgraph.ops.opdef.op import is_cluster_call, lookup
from cfgraph.runtime.engine.plan import RunSpec, nodes_to_run
from cfgraph.runtime.feeds.conversion import FeedConverter

# late imports: a run loads the passes that it needs, and begins a quarter sooner

if TYPE_CHECKING:
    from cfgraph.passes.cluster.encapsulate import InlinedNodes


class ClusterMembers:
    """A graph in which names may also be those of nodes inside clusters."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._edits = -1
        self._library: tuple[Function, ...] = ()
        self._calls: list[Node] = []
        self._inlined: dict[frozenset[str], tuple[Graph, InlinedNodes]] = {}

    def resolve(self, names: Iterable[str]) -> tuple[Graph, InlinedNodes]:
        """The graph, or a copy in which the clusters of named nodes are inlined, and their nodes.

        Raises InvalidInput for a call that does not fit its function.
        """
        graph = self._graph
        if self._edits != graph.edits:
            self._edits, self._inlined, self._calls = graph.edits, {}, _cluster_calls(graph)
        if not self._calls:
            return graph, {}
        library = tuple(graph.functions.values())
        if self._library != library:
            self._library, self._inlined = library, {}
        owners = frozenset(node.name for node in member_nodes(graph, names, self._calls).values())
        if not owners:
            return graph, {}
        if owners not in self._inlined:
            self._inlined[owners] = _with_inlined(graph, owners)
        return self._inlined[owners]


def _cluster_calls(graph: Graph) -> list[Node]:
    calls = {op for op in graph.ops if is_cluster_call(lookup(op))}
    return [node for node in graph if node.op in calls] if calls else []


def _with_inlined(graph: Graph, names: Collection[str]) -> tuple[Graph, InlinedNodes]:
    """A copy of a graph in which calls are inlined, and their nodes."""
    from cfgraph.passes.cluster.encapsulate import inline_clusters

    copy = copy_graph(graph)
    return copy, inline_clusters(copy, [node for node in copy if node.name in names])


def inline_partly_needed(spec: RunSpec) -> RunSpec:
    """Inline also the clusters that would wait for an input or a variable that a run lacks.

    Raises InvalidInput for a call that does not fit its function.
    """
    calls = _cluster_calls(spec.graph) if spec.graph.functions else []
    names = {node.name for node in partly_needed(spec, calls)} if calls else set()
    if not names:
        return spec
    copy, groups = _with_inlined(spec.graph, names)
    for name, group in spec.groups.items():
        groups[name] = tuple(copy[node.name] for node in group)
    return replace(spec.on(copy), groups=groups)


def member_nodes(graph: Graph, names: Iterable[str], calls: Iterable[Node]) -> dict[str, Node]:
    """The cluster calls whose functions have named nodes that the graph lacks, by node name."""
    from cfgraph.passes.cluster.encapsulate import called_function

    hidden = {base for base in map(node_name, names) if base not in graph}
    owners: dict[str, Node] = {}
    for call in calls if hidden else ():
        function = called_function(graph, call)
        for node in function.definition.nodes if function else ():
            if node.name in hidden:
                owners.setdefault(node.name, call)
    return owners


def partly_needed(spec: RunSpec, calls: Iterable[Node]) -> Iterator[Node]:
    """Cluster calls with an argument that a run does not need and that may be missing.

    Such an argument depends on an input that is not fed, or on a variable.
    """
    from cfgraph.passes.cluster.encapsulate import called_function

    graph = spec.graph
    roots = [*spec.roots, *(tensor.node for tensor in spec.feeds)]
    needed = ancestors(graph, roots)
    for call in calls:
        function = called_function(graph, call) if call in needed and call not in roots else None
        if function is None:
            continue
        read = {
            use.node.inputs[use.slot].port
            for use in call.uses
            if use.slot >= 0 and use.node in needed
        }
        definition = function.definition
        returned = list(definition.returns.values())
        if len(read) >= len(returned) or not all(port < len(returned) for port in read):
            continue
        used = body_ancestors(definition, [returned[port] for port in read])
        spare = [
            tensor.node
            for tensor, argument in zip(call.inputs, definition.inputs, strict=False)
            if argument.name not in used
        ]
        named = set(roots)
        if any(
            is_variable(node) or (is_input(node) and node not in named)
            for node in ancestors(graph, spare)
        ):
            yield call


def recluster_run(spec: RunSpec) -> RunSpec:
    """Cluster the needed nodes of each inlined cluster again, in a copy of the needed graph."""
    from cfgraph.passes.cluster.encapsulate import encapsulate
    from cfgraph.passes.cluster.formation.cluster_plan import ClusterBody

    graph = spec.graph
    running = set(nodes_to_run(spec))
    copy = copy_graph(
        graph, ancestors(graph, [*spec.roots, *(tensor.node for tensor in spec.feeds)])
    )
    remove_uncalled_functions(copy)
    fed = {tensor.node for tensor in spec.feeds}
    fetched = {copy[node.name] for node in spec.roots}
    instances = FunctionInstances(copy.functions)
    for name, group in spec.groups.items():
        nodes = [copy[node.name] for node in group if node in running]
        # a constant is live even where its cluster is dead
        constants = [node for node in nodes if node in fetched and _is_free_constant(node)]
        members = [node for node in nodes if node not in constants]
        if members and not fed.intersection(group):
            body = ClusterBody(tuple(members), tuple(constants))
            new_name = unused_name(name, copy, copy.functions)
            encapsulate(copy, body, new_name, fetched, instances)
    return spec.on(copy)


def _is_free_constant(node: Node) -> bool:
    return node.op == "Const" and not node.controls


_MAX_RESOLVED: Final = 32
_MAX_LISTED: Final = 4


class NameResolver:
    """Resolver of the names of runs of a graph; it remembers names until the graph changes."""

    def __init__(self, graph: Graph, lock: RLock) -> None:
        self.graph = graph
        self._lock = lock
        self._members = ClusterMembers(graph)
        self._version: Any = None
        self._resolved: dict[Any, tuple[RunSpec, list[FeedConverter]]] = {}

    def resolve(
        self, fetches: Sequence[str], targets: Sequence[str], feeds: Mapping[str, Any]
    ) -> tuple[RunSpec, list[Any]]:
        """The run that names describe, and the values of its feeds.

        Raises UsageError for unknown names, and for values that do not fit.
        """
        spec, converters = self._spec(fetches, targets, feeds)
        if not feeds:
            return spec, []
        try:
            return spec, list(map(FeedConverter.convert, converters, feeds.values()))
        except MemoryError as error:
            raise out_of_memory_error(str(error)) from None

    def _spec(
        self, fetches: Sequence[str], targets: Sequence[str], feeds: Iterable[str]
    ) -> tuple[RunSpec, list[FeedConverter]]:
        """The run that names describe, and the conversions of its feeds."""
        graph, key = self.graph, (tuple(fetches), tuple(targets), tuple(feeds))
        version = graph.edits, tuple(graph.functions.values())
        if self._version == version:
            known = self._resolved.get(key)
            if known is not None:
                return known
        if not all(isinstance(name, str) for names in key for name in names):
            require_names([*fetches, *targets, *key[2]])
        with self._lock:
            groups: InlinedNodes = {}
            if graph.functions:
                graph, groups = self._members.resolve([*fetches, *targets, *key[2]])
            placeholders: Mapping[str, Output] = {}
            inner = None
            if not are_inputs(graph, key[2]):
                from cfgraph.runtime.preparation.inner_feeds import inner_feeds

                inner = inner_feeds(graph, key[2])
            if inner is not None:
                graph, placeholders = inner.graph, inner.placeholders
                groups = nodes_of_groups(groups, graph)
            tensors, nodes = _resolve_roots(graph, fetches, targets)
            converters = _converters(graph, key[2], placeholders)
            fed = tuple(converter.tensor for converter in converters)
            known = RunSpec(graph, tensors, nodes, fed, groups=groups), converters
            if self._version != version:
                self._resolved, self._version = {}, version
            while len(self._resolved) >= _MAX_RESOLVED:
                del self._resolved[next(iter(self._resolved))]
            self._resolved[key] = known
            return known


def fetch_names(fetches: str | Iterable[str]) -> list[str]:
    """The fetches as a list. Raises UsageError for a mapping: results are in list order."""
    if type(fetches) is list:
        return fetches  # `resolve` checks its items
    if isinstance(fetches, Mapping):
        message = "fetches is a mapping, expected a list of names; results are in its order"
        raise UsageError(message, hint=f"fetches={list(fetches.values())}")
    return name_list(fetches)


def _resolve_roots(
    graph: Graph, names: Iterable[str], targets: Iterable[str]
) -> tuple[tuple[Output, ...], tuple[Node, ...]]:
    """The tensors to fetch and the nodes to run. Raises UsageError if there are none."""
    tensors = tuple(fetched_tensor(graph, name) for name in names if not name.startswith("^"))
    fetched_nodes = [name[1:] for name in names if name.startswith("^")]
    nodes = tuple(graph[name.removeprefix("^")] for name in [*fetched_nodes, *targets])
    if not tensors and not nodes:
        message = "nothing to fetch or to run"
        unread = [node.name for node in graph if not node.uses]
        hint = f"name a fetch or a target; nothing reads {first_names(unread, _MAX_LISTED)}"
        raise UsageError(message, hint=hint)
    return tensors, nodes


def nodes_of_groups(groups: InlinedNodes, graph: Graph) -> InlinedNodes:
    """The nodes of inlined clusters in a copy of their graph."""
    return {
        name: tuple(graph[node.name] for node in group if node.name in graph)
        for name, group in groups.items()
    }


def _converters(
    graph: Graph, names: Iterable[str], placeholders: Mapping[str, Output]
) -> list[FeedConverter]:
    """The conversions of feeds, some of which go to placeholders.

    Raises UsageError for unknown and repeated names.
    """
    converters: dict[Output, FeedConverter] = {}
    for name in names:
        tensor = placeholders.get(name) or fed_tensor(graph, name)
        if tensor in converters:
            message = f"{tensor.name} is fed more than once"
            raise UsageError(message, node=tensor.node)
        converters[tensor] = FeedConverter(graph, tensor)
    return list(converters.values())
