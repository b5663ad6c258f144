"""Seconds to place a graph of many nodes: by request, by chance, and by cost."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from benchmarks.loading import chain
from benchmarks.measurement import Row, single_time
from cfgraph.ir.serde import graph_def

NODES = 100_000
TINY = 200
DEVICES = "cpu:0-1,gpu:0"
WAYS: dict[str, dict[str, Any]] = {
    "as asked": {"rules": {"*": "cpu:0"}},
    "by chance": {"seed": 1},
    "by cost": {},
}


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Placing, verification of the graph not counted."""
    nodes = TINY if tiny else NODES
    for way, options in WAYS.items():
        for count in (nodes // 2, nodes):
            took = placing(chain(count), options)
            yield Row(f"place {count:,} nodes {way}", took * 1e6 / count, "µs a node")


def placing(data: bytes, options: dict[str, Any]) -> float:
    """The seconds of one placement."""
    from cfgraph.analysis.verify.verify import require_valid
    from cfgraph.passes.place.place import place

    graph = graph_def.graph_from_bytes(data)
    require_valid(graph)
    return single_time(lambda: place(graph, devices=DEVICES, **options))
