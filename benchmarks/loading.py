"""Seconds to load and to save a graph of many nodes."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from benchmarks.measurement import Row, alternating_times, best_time
from benchmarks.peer import importer
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde import graph_def

NODES = 100_000
TINY = 200


def chain(nodes: int) -> bytes:
    """An encoded graph: a constant, and additions in a chain."""
    import numpy as np

    import cfgraph.ops  # noqa: F401 - fills the registry
    from cfgraph.ir.dtypes import float32

    graph = Graph()
    one = graph.add("Const", name="one", value=TensorValue(np.ones((), np.float32)), dtype=float32)
    last = one
    for place in range(nodes - 1):
        last = graph.add("AddV2", last, one, name=f"sum_{place}")
    return graph_def.graph_to_bytes(graph)


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Loading, compared with `import_graph_def`, and saving."""
    nodes = TINY if tiny else NODES
    data = chain(nodes)
    peer = importer(tf, data) if tf else None
    ours, theirs = alternating_times(lambda: graph_def.graph_from_bytes(data), peer, repeats=3)
    scale = 1e6 / nodes
    per_node = None if theirs is None else theirs * scale
    yield Row(f"load {nodes:,} nodes", ours * scale, "µs a node", per_node, 1 / 5)
    graph = graph_def.graph_from_bytes(data)
    saved = best_time(lambda: graph_def.graph_to_bytes(graph), repeats=3)
    yield Row(f"save {nodes:,} nodes", saved * scale, "µs a node")
