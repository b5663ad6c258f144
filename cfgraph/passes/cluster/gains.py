"""What clustering would gain if XLA compiled an op that it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from cfgraph.ir.graph import Graph
from cfgraph.passes.cluster.compilable import Wishes
from cfgraph.passes.cluster.formation import Sizes
from cfgraph.passes.cluster.plan import Plan, planned
from cfgraph.passes.cluster.report import Gain

# reasons that a kernel of XLA would do away with
_KERNELS: Final = ("effects", "not traced", "no kernel", "type")
_TRIED: Final = 12


def gains(graph: Graph, plan: Plan, sizes: Sizes, wishes: Wishes) -> tuple[Gain, ...]:
    """The gain of each op that XLA does not compile, largest first; the most frequent are tried."""
    refused = Counter(n.op for n, reason in plan.outside.items() if reason.kind in _KERNELS)
    ops = sorted(refused, key=lambda op: (-refused[op], op))[:_TRIED]
    found = [gain_of(graph, plan, sizes, wishes, (op,)) for op in ops]
    return tuple(sorted(found, key=lambda gain: (-gain.more, gain.ops)))


def gain_of(graph: Graph, plan: Plan, sizes: Sizes, wishes: Wishes, ops: Collection[str]) -> Gain:
    """The gain if all these ops were compiled."""
    other = planned(graph, plan.formation.agreed, sizes, replace(wishes, granted=ops))
    before = _membership(plan)
    new = tuple(name for name in _membership(other) if name not in before)
    still = {node.name: reason for node, reason in other.outside.items() if node.op in ops}
    more = other.clustered - plan.clustered
    return Gain(tuple(ops), len(other.bodies), other.clustered, more, new, still)


def _membership(plan: Plan) -> Mapping[str, None]:
    return dict.fromkeys(_clustered(plan))


def _clustered(plan: Plan) -> Iterator[str]:
    for body in plan.bodies:
        yield from (node.name for node in body.members)
    yield from (node.name for node in plan.absorbed)
