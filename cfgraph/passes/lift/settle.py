"""Raise those regions that a cluster takes in; what no cluster takes is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cfgraph.ir.copy import copy_of
from cfgraph.ir.graph import Graph
from cfgraph.passes.cluster.agreement import agreement
from cfgraph.passes.cluster.compilable import Wishes
from cfgraph.passes.cluster.formation import Sizes
from cfgraph.passes.cluster.plan import planned
from cfgraph.passes.cluster.reasons import Reason
from cfgraph.passes.lift.lift import Lifting


def raise_regions(
    graph: Graph, mode: str, sizes: Sizes, wishes_of: Callable[[Graph], Wishes]
) -> Lifting:
    """Raise the loops and conditionals of a lowered graph that clusters will hold, in place."""
    refused: dict[str, Reason] = {}
    while new := _left_out(graph, mode, sizes, wishes_of, refused):
        refused.update(new)
    lifting = Lifting(graph, mode, wishes_of(graph), refused)
    lifting.run()
    return lifting


def _left_out(
    graph: Graph,
    mode: str,
    sizes: Sizes,
    wishes_of: Callable[[Graph], Wishes],
    refused: dict[str, Reason],
) -> dict[str, Reason]:
    """The regions that would be in no cluster, found out in a copy."""
    copy = copy_of(graph, graph)
    wishes = wishes_of(copy)
    trial = Lifting(copy, mode, wishes, refused)
    trial.run()
    if not trial.raised:
        return {}
    told = agreement(copy, mode)
    plan = planned(copy, told, sizes, replace(wishes, raised=trial.weights))
    return {
        region.name: plan.outside[node]
        for node, region in trial.raised.items()
        if node in plan.outside
    }
