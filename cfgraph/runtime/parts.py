"""Which nodes, fetches and feeds of a run belong to which device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cfgraph.analysis.findings import require_no_findings
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.device_rules import check_duplicate_keys, check_partition_edges
from cfgraph.ir.graph import Graph, Node, Output


@dataclass(slots=True)
class Part:
    """One device's nodes in graph order; fetches and feeds by their places in the run's lists."""

    device: str
    nodes: list[Node] = field(default_factory=list)
    fetches: dict[int, Output] = field(default_factory=dict)
    feeds: dict[int, Output] = field(default_factory=dict)


def parts(
    graph: Graph,
    nodes: Iterable[Node],
    fetches: Sequence[Output],
    feeds: Sequence[Output],
    device: str | None,
) -> list[Part]:
    """Divide a run among devices: those of a partitioned graph, else all of it is on `device`.

    Without a `device` any graph is taken for a partitioned one, also where nothing crosses.

    Raises InvalidInput for a partitioned graph where a node has no device, an edge crosses, or two
    transfers have one key.
    """
    if device is not None and not is_partitioned(graph):
        whole = Part(device, list(nodes), dict(enumerate(fetches)), dict(enumerate(feeds)))
        return [whole]
    found: dict[str, Part] = {}

    def part(node: Node) -> Part:
        name = node.device
        return found.get(name) or found.setdefault(name, Part(name))

    chosen = list(nodes)
    require_no_findings(list(check_partition_edges(chosen)))
    require_no_findings(list(check_duplicate_keys(chosen)))
    for node in chosen:
        part(node).nodes.append(node)
    for place, item in enumerate(fetches):
        part(item.node).fetches[place] = item
    for place, item in enumerate(feeds):
        part(item.node).feeds[place] = item
    return [found[name] for name in sorted(found)]
