"""Messages an iteration of partitioned loops, against TensorFlow's own partition of the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import cfgraph
from benchmarks.measurement import Row
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import Graph
from cfgraph.ir.partition_folder import merge_partitions
from cfgraph.ir.serde import graph_def
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.partition.partition import partition
from cfgraph.passes.place.place import place

DEVICES: Final = 8
SEEDS: Final = 6
Case = tuple[str, dict[str, Any], list[str]]

_ALL_OUTS = [f"out{number}:0" for number in range(DEVICES)]
# graphs whose nodes request eight devices, and graphs placed on three at random
GRAPHS: Final[tuple[Case, ...]] = (
    ("eight_devices.pb", {"n:0": 7}, _ALL_OUTS),
    ("eight_devices_barrier.pb", {"n:0": 7}, _ALL_OUTS),
)
PLACED: Final[tuple[Case, ...]] = (
    ("counter.pb", {"n:0": 7}, ["count:0"]),
    ("nested.pb", {}, ["sum:0"]),
    ("while_functional.pb", {"n:0": 7}, ["out:0"]),
    ("cond_functional.pb", {"x:0": 1.0, "y:0": 2.0, "z:0": 3.0}, ["out:0"]),
)

_FOLDER = Path(__file__).parents[1] / "fixtures" / "graphs"


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The eight-device loops on the requested devices, then loops placed at random, all seeds."""
    for case in GRAPHS:
        yield _row(tf, case, [None])
    for case in PLACED[:1] if tiny else PLACED:
        if "cond" not in case[0]:
            yield _row(tf, case, list(range(1 if tiny else SEEDS)))


def _row(tf: ModuleType | None, case: Case, seeds: list[int | None]) -> Row:
    name, feeds, fetches = case
    mine, other = 0, 0
    for seed in seeds:
        graph = placed(name, seed)
        if tf is not None:
            other += messages_in_loops(tensorflow_messages(tf, graph, feeds, fetches))
        mine += messages_in_loops(cfgraph_messages(graph, fetches))
    work = f"messages, {name.removesuffix('.pb')}"
    if seeds != [None]:
        work += f", 3 devices, {len(seeds)} placements"
    return Row(work, mine, "an iteration", other or None, 1.0)


def placed(name: str, seed: int | None) -> Graph:
    """A graph on the eight requested devices, or at random on three if there is a seed."""
    graph = cfgraph.load(_FOLDER / name)
    place(graph, devices=f"cpu:0-{DEVICES - 1}" if seed is None else "cpu:0-2", seed=seed)
    return graph


def tensorflow_messages(
    tf: ModuleType, graph: Graph, feeds: dict[str, Any], fetches: list[str]
) -> Counter[str]:
    """The number of messages that TensorFlow sends per frame, without its optimizers."""
    v1 = tf.compat.v1
    message = v1.GraphDef.FromString(cfgraph.dumps(graph))
    with tf.Graph().as_default() as imported:
        v1.import_graph_def(message, name="")
    config = v1.ConfigProto(device_count={"CPU": DEVICES}, inter_op_parallelism_threads=2)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    options = v1.RunOptions(output_partition_graphs=True, timeout_in_ms=60_000)
    metadata = v1.RunMetadata()
    with v1.Session(graph=imported, config=config) as session:
        session.run(fetches, feeds, options=options, run_metadata=metadata)
    written = [
        graph_def.graph_from_bytes(part.SerializeToString()) for part in metadata.partition_graphs
    ]
    return messages(merge_partitions(written))


def cfgraph_messages(graph: Graph, fetches: list[str]) -> Counter[str]:
    """The number of messages that cfgraph sends per frame for these fetches; cuts the graph."""
    partition(graph)
    return messages(graph, fetches)


def messages(graph: Graph, fetches: list[str] | None = None) -> Counter[str]:
    """The messages of a partitioned graph by frame; those alone that the fetches need, if any."""
    found = frames(graph)
    wanted = graph if fetches is None else ancestors(graph, [graph.tensor(f).node for f in fetches])
    return Counter(str(found.of[node]) for node in wanted if node.op in ("_Recv", "_HostRecv"))


def messages_in_loops(count: Counter[str]) -> int:
    """The messages that are sent again in each iteration of a loop."""
    return sum(count.values()) - count["/"]
