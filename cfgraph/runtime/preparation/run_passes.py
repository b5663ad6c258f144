"""Passes on the graph of a run: each edits a copy of the part that the run needs.

Fetches, feeds, and targets are carried over to the copy. A fed output whose node the pass would
remove is replaced by a placeholder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.devices import short_device_names
from cfgraph.ir.function_graph import FunctionGraphs, FunctionInstances, OutputPorts
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph, remove_uncalled_functions
from cfgraph.ir.registry import ROLES
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ir.traversal import ancestors, is_partitioned
from cfgraph.ops.opdef.op import calls_functions, is_functional, lookup, strip_identities
from cfgraph.passes.place.rules import PlacementRules
from cfgraph.runtime.engine.plan import RunSpec, is_replaced_by_feed
from cfgraph.runtime.preparation.run_config import RunConfig

# late imports: a run loads the passes that it needs, and begins a quarter sooner


def lowered_copy(spec: RunSpec) -> RunSpec:
    """The run on a lowered copy of its graph. Raises the errors of `lower`."""
    from cfgraph.passes.lowering import lower

    run = _functional_copy(spec)
    lower(run.graph)
    return run.on(run.graph)


def lowered_graph(graph: Graph) -> Graph:
    """A lowered copy of all nodes of a graph. Raises the errors of `lower`."""
    return lowered_copy(RunSpec(graph, (), tuple(graph), ())).graph


def _functional_copy(spec: RunSpec) -> RunSpec:
    """The run on a copy of what it needs, in which no output of a functional node is fed."""
    copy = copy_graph(spec.graph, ancestors(spec.graph, [*spec.roots, *_nodes_of(spec.feeds)]))
    remove_uncalled_functions(copy)  # the run does not depend on errors in them
    feeds = {tensor: _lowered_feed(copy, _copied(tensor, copy)) for tensor in spec.feeds}
    return _with_feeds(spec, copy, feeds)


def without_faults(spec: RunSpec) -> RunSpec | None:
    """The run on a lowered copy in which faulty nodes that may be dead raise their errors.

    None if the graph has no errors, or one that fails every run.
    """
    from cfgraph.passes.faulty_nodes import defer_faults, require_conditional_faults

    graph = spec.graph
    copy = copy_graph(graph, ancestors(graph, [*spec.roots, *_nodes_of(spec.feeds)]))
    run = _with_feeds(spec, copy, {tensor: _copied(tensor, copy) for tensor in spec.feeds})
    try:
        if not defer_faults(copy, [*run.roots, *_nodes_of(run.feeds)], run.fetches):
            return None
        lowered = lowered_copy(run)
        require_conditional_faults(lowered.graph, lowered.roots)
    except InvalidInput:
        return None
    return lowered


def _copied(tensor: Output, graph: Graph) -> Output:
    return Output(graph[tensor.node.name], tensor.port)


def _with_feeds(spec: RunSpec, graph: Graph, feeds: dict[Output, Output]) -> RunSpec:
    """The run on a copy of its graph in which `feeds` are fed instead of the original outputs."""
    fetches = tuple(feeds.get(tensor) or _copied(tensor, graph) for tensor in spec.fetches)
    targets = tuple(graph[node.name] for node in spec.targets)
    return RunSpec(graph, fetches, targets, tuple(feeds.values()))


def _lowered_feed(graph: Graph, tensor: Output) -> Output:
    """The output to feed: functional nodes lose their consumers by lowering."""
    return feed_placeholder(graph, tensor) if is_functional(graph, [tensor.node]) else tensor


def feed_placeholder(graph: Graph, tensor: Output) -> Output:
    """Replace an output by a placeholder; return the output itself if its type is unknown."""
    dtype = OutputPorts(graph.functions).dtype(tensor)
    if dtype is None:
        return tensor
    name = graph.unique_name(f"{tensor.node.name}/fed")
    attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
    placeholder = graph.create(name, "Placeholder", attrs=attrs, device=tensor.node.device).output()
    graph.replace_uses(tensor, placeholder)
    return placeholder


def partition_run(spec: RunSpec, config: RunConfig) -> RunSpec:
    """Place and partition a copy of the part of a lowered graph that the run needs.

    A partitioned graph is used unchanged. Raises the errors of `place` and `partition`, and
    UsageError for a partitioned graph that names other devices or is combined with placement rules.
    """
    from cfgraph.passes.partition.partition import partition

    graph = spec.graph
    if is_partitioned(graph):
        if config.rules != PlacementRules():
            message = "placement rules do not apply to a partitioned graph"
            raise UsageError(message, hint="omit the rules, or partition the original graph again")
        require_known_devices(graph, config.devices)
        return spec
    run = place_run(spec, config)
    partition(run.graph)
    return run


def place_run(spec: RunSpec, config: RunConfig) -> RunSpec:
    """Place a copy of the part of a lowered graph that the run needs.

    Raises the errors of `place`.
    """
    from cfgraph.passes.place.place import place

    graph = spec.graph
    copy = copy_graph(graph, ancestors(graph, [*spec.roots, *_nodes_of(spec.feeds)]))
    feeds = {tensor: _partitioned_feed(copy, _copied(tensor, copy)) for tensor in spec.feeds}
    run = _with_feeds(spec, copy, feeds)
    part = copy
    if any(tensor.node.name != feed.node.name for tensor, feed in feeds.items()):
        # a placeholder has replaced what only a fed node reads
        part = copy_graph(copy, ancestors(copy, [*run.roots, *_nodes_of(run.feeds)]))
    place(part, devices=config.devices, rules=config.rules, soft_placement=config.soft_placement)
    return run.on(part)


def assign_devices(spec: RunSpec, config: RunConfig) -> tuple[RunSpec, Mapping[Node, str]]:
    """A run of a lowered graph, and the device of each of its nodes once it is partitioned.

    A graph that the run needs as it is stays unchanged, its devices too; otherwise a copy of the
    needed part is placed, also if a value depends on a device. Raises the errors of `place` and
    `partition`.
    """
    from cfgraph.passes.partition.device_crossings import node_devices
    from cfgraph.passes.partition.partition import partition_devices
    from cfgraph.passes.place.place import chosen_devices

    graph = spec.graph
    needed = ancestors(graph, [*spec.roots, *_nodes_of(spec.feeds)])
    is_whole = len(needed) == len(graph) and not _reads_devices(graph)
    if not is_whole or not all(is_replaced_by_feed(feed.node) for feed in spec.feeds):
        spec = place_run(spec, config)
        return spec, partition_devices(spec.graph, node_devices(spec.graph))
    chosen = chosen_devices(
        graph, config.devices, config.rules, soft_placement=config.soft_placement
    )
    return spec, partition_devices(graph, chosen)


def _reads_devices(graph: Graph) -> bool:
    """True if the value of a node depends on its device."""
    ops = map(lookup, {node.op for node in graph})
    return any(op is not None and op.placement.reads_device for op in ops)


def require_known_devices(graph: Graph, devices: Collection[str]) -> None:
    """Raise UsageError for a node of a partitioned graph that is on none of the devices."""
    for node in graph:
        if node.device and node.device not in devices:
            message = f"the graph is partitioned for {node.device}, which is not among the devices"
            hint = f"omit the devices, or include it; devices: {short_device_names(devices)}"
            raise UsageError(message, node=node, hint=hint)


def _partitioned_feed(graph: Graph, tensor: Output) -> Output:
    """The output to feed: a placeholder if the fed node runs all the same."""
    return tensor if is_replaced_by_feed(tensor.node) else feed_placeholder(graph, tensor)


def _nodes_of(items: Iterable[Output]) -> list[Node]:
    return [tensor.node for tensor in items]


def cluster_run(spec: RunSpec, *, regions: bool = False) -> RunSpec:
    """Cluster nodes that compile together in a copy of the graph; with `regions`, also whole loops.

    Fetches, feeds, and targets keep their names. Raises the errors of `cluster_traced`.
    """
    from cfgraph.passes.cluster.cluster import cluster_traced
    from cfgraph.passes.cluster.hoist_reads import hoist_reads
    from cfgraph.passes.cluster.reference_variables import replace_references
    from cfgraph.passes.cluster.unread_results import drop_unread_results

    graph = spec.graph
    copy = copy_graph(graph, ancestors(graph, [*spec.roots, *_nodes_of(spec.feeds)]))
    early_reads: set[tuple[str, str]] = set()
    if regions:
        fed = {copy[tensor.node.name] for tensor in spec.feeds}
        replace_references(copy, fed, {copy[tensor.node.name] for tensor in spec.fetches})
        reads = hoist_reads(copy, fed)
        handles = (strip_identities(read.inputs[0]).node for read in reads)
        early_reads.update(variable_key(handle) for handle in handles if is_variable(handle))
        roots = [*spec.roots, *_nodes_of(spec.feeds)]
        drop_unread_results(copy, [copy[node.name] for node in roots])
    clustering = cluster_traced(copy, **_cluster_names(spec), regions=regions)
    outside = {each.name: each.reason.text for each in clustering.regions if each.reason}
    return replace(spec.on(copy), early_reads=frozenset(early_reads), outside=outside)


def cluster_functional_run(spec: RunSpec) -> tuple[RunSpec, FunctionInstances] | None:
    """The run on a copy of its graph, with clusters that contain its loops and conditionals.

    Also the functions of the copy as graphs. None if a loop or conditional must be lowered, or no
    node calls a function.
    """
    from cfgraph.passes.cluster.cluster import cluster_functional
    from cfgraph.passes.lower.lower import inline_calls

    if not calls_functions(spec.graph) or any(map(ROLES.__getitem__, spec.graph.ops)):
        return None
    run = _functional_copy(spec)
    bodies: FunctionGraphs = {}
    try:
        require_valid(run.graph, bodies)
        inline_calls(run.graph)
    except (InvalidInput, Unsupported):  # lowering raises the same
        return None
    run = run.on(run.graph)
    needed = {*ancestors(run.graph, [*run.roots, *_nodes_of(run.feeds)])}
    run.graph.remove(*(node for node in run.graph if node not in needed))
    functions = cluster_functional(run.graph, **_cluster_names(run), bodies=bodies)
    return None if functions is None else (run.on(run.graph), functions)


def _cluster_names(spec: RunSpec) -> dict[str, list[str]]:
    """The names of what a run fetches and feeds, for clustering."""
    feeds, fetches, targets = spec.names
    return {"fetches": fetches + targets, "feeds": feeds}
