"""A run is clustered on the way, in a copy of what it needs."""

from __future__ import annotations

from cfgraph.analysis.reachability import ancestors
from cfgraph.ir.library import copy_graph
from cfgraph.runtime.lowered import Run, moved


def clustered_run(run: Run, *, regions: bool = False) -> Run:
    """The same run with clusters in place of nodes that compile together.

    What is fetched, fed or a target keeps its name; `regions` takes in whole loops and
    conditionals. Raises what `cluster` raises.
    """
    from cfgraph.passes.cluster.cluster import cluster

    graph, fetches, targets, feeds = run
    wanted = [*(item.node for item in (*fetches, *feeds)), *targets]
    copy = copy_graph(graph, ancestors(graph, wanted))
    kept = [*(item.name for item in fetches), *(node.name for node in targets)]
    cluster(copy, fetches=kept, feeds=[item.name for item in feeds], regions=regions)
    return moved(run, copy)
