"""Raise those regions that a cluster takes in; what no cluster takes is left as it was."""

from __future__ import annotations

from collections.abc import Callable

from cfgraph.ir.copy import copy_of
from cfgraph.ir.graph import Graph
from cfgraph.passes.cluster.agreement import agreement
from cfgraph.passes.cluster.compilable import Wishes
from cfgraph.passes.cluster.formation import Sizes
from cfgraph.passes.cluster.plan import Plan, planned
from cfgraph.passes.cluster.reasons import Reason
from cfgraph.passes.lift.given_lists import list_readers
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
    trial = Lifting(copy, mode, wishes_of(copy), refused)
    trial.run()
    if not trial.raised and not trial.lists.nodes:
        return {}
    plan = planned(copy, agreement(copy, mode), sizes, trial.told())
    found = {
        region.name: plan.outside[node]
        for node, region in trial.raised.items()
        if node in plan.outside
    }
    greatest = sizes.greatest
    for region in trial.raised.values():
        size = len(region.ops)
        if greatest is not None and size > greatest:
            found[region.name] = Reason("size", f"it has {size} nodes", {"size": size})
    return {**found, **_apart(trial, plan)}


def _apart(trial: Lifting, plan: Plan) -> dict[str, Reason]:
    """The lists that are not within one cluster."""
    place = {node: number for number, body in enumerate(plan.bodies) for node in body.members}
    found = {}
    for name, nodes in trial.lists.handling(trial.graph).items():
        around = {reader for node in nodes for reader in list_readers(node)}
        outside = [node for node in (*nodes, *around) if node not in place]
        if outside:
            text = f"{outside[0].name}, which uses it, is in no cluster"
            found[name] = Reason("list", text, {"node": outside[0].name})
        elif len({place[node] for node in (*nodes, *around)}) > 1:
            found[name] = Reason("list", "those that use it are in several clusters")
    return found
