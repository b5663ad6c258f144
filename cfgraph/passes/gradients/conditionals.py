"""Gradients of conditionals: a Merge becomes Switches, a Switch becomes a Merge.

    Switch(x, p): dx = Merge(d false, d true)        Merge(a, b): da = Switch(dz, p):0, db = …:1

The gradient of a live tensor is live, that of a dead one dead. So where only one side of a Switch
is used, the other gets zeros that are live on that side alone; and where a node that runs less
often than a tensor is there reads it, what it hands back is merged with zeros for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.analysis.loops.path_conditions import BranchDecision, PathConditions
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.site import Site


def switch_gradient(
    site: Site, guards: PathConditions, node: Node, arrived: list[Output | None]
) -> Output | None:
    """The gradient of a Switch's data, from those of its outputs."""
    if not any(arrived):
        return None
    sides: list[Output] = []
    for port, dx in enumerate(arrived):
        sides.append(dx if dx is not None else _zeros(site, guards, node.output(port)))
    return site.add("Merge", sides, "Merge", {})


def _zeros(site: Site, guards: PathConditions, side: Output) -> Output:
    """Zeros that are live where this side of a Switch is."""
    if site is site.top and not _is_resource(side):
        return site.zeros_like(side)
    return site.under(site.zeros_like(side.node.inputs[0]), [guards.decision(side)])


def merge_gradient(site: Site, guards: PathConditions, node: Node, slot: int, dz: Output) -> Output:
    """The gradient of one input of a Merge."""
    rest = guards.rest(node, slot)
    told = all(item.sides for item in rest)
    if rest and told and guards.alone(node, slot):
        return site.under(dz, rest)
    chosen = site.add("Equal", (node.output(1), slot), "chosen", {})
    dx = site.add("Switch", (dz, chosen), "Switch", {}).node.output(1)
    if not told:
        return dx
    # the Merge may take another input although this one is live
    zeros = site.add("Switch", (site.zeros_like(node.inputs[slot]), chosen), "Switch", {})
    return site.add("Merge", (zeros, dx), "Merge", {})


def completed(site: Site, x: Output, dx: Output, decisions: Iterable[BranchDecision]) -> Output:
    """A gradient that is live only where these decisions fall, with zeros elsewhere."""
    zeros, layers = site.zeros_like(x), []
    for item in decisions:
        if not item.sides:
            message = f"what reads {x.name} is live under conditions that no predicate tells"
            raise Unsupported(message, node=item.pred.node, code="CFG505")
        others = [port for port in range(item.sides) if port != item.port]
        chosen = site.under(zeros, [item])
        layers.append([Output(chosen.node, port) for port in others])
        zeros = chosen
    for others_zeros in reversed(layers):
        dx = site.add("Merge", [dx, *others_zeros], "Merge", {})
    return dx


def _is_resource(x: Output) -> bool:
    return x.dtype is not None and x.dtype.kind == "resource"
