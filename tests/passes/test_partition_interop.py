"""A partitioned graph sends no more messages than TensorFlow's own partition of the same graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.frames import frames
from cfgraph.analysis.needed import needed
from cfgraph.ir import serde
from cfgraph.ir.graph import Graph
from cfgraph.ir.parts import join

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1

DEVICES = 8
GRAPHS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("eight_devices.pb", {"n:0": 7}, [f"out{place}:0" for place in range(DEVICES)]),
    ("eight_devices_barrier.pb", {"n:0": 7}, [f"out{place}:0" for place in range(DEVICES)]),
]
PLACED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("counter.pb", {"n:0": 7}, ["count:0"]),
    ("nested.pb", {}, ["sum:0"]),
    ("while_functional.pb", {"n:0": 7}, ["out:0"]),
    ("cond_functional.pb", {"x:0": 1.0, "y:0": 2.0, "z:0": 3.0}, ["out:0"]),
]


def theirs(graph: Graph, feeds: dict[str, Any], fetches: list[str]) -> Counter[str]:
    """How many messages TensorFlow sends in each frame, its optimisers switched off."""
    message = tf.GraphDef.FromString(cfgraph.dumps(graph))
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(message, name="")
    config = tf.ConfigProto(device_count={"CPU": DEVICES}, inter_op_parallelism_threads=2)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    options = tf.RunOptions(output_partition_graphs=True, timeout_in_ms=60_000)
    told = tf.RunMetadata()
    with tf.Session(graph=imported, config=config) as session:
        session.run(fetches, feeds, options=options, run_metadata=told)
    written = [serde.graph_from_bytes(part.SerializeToString()) for part in told.partition_graphs]
    return messages(join(written))


def ours(graph: Graph, fetches: list[str]) -> Counter[str]:
    """How many messages cfgraph sends in each frame for the same fetches."""
    cfgraph.partition(graph)
    return messages(graph, fetches)


def messages(graph: Graph, fetches: list[str] | None = None) -> Counter[str]:
    found = frames(graph)
    wanted = graph if fetches is None else needed(graph, [graph.tensor(f).node for f in fetches])
    return Counter(str(found.of[node]) for node in wanted if node.op in ("_Recv", "_HostRecv"))


def require_no_more(graph: Graph, feeds: dict[str, Any], fetches: list[str]) -> None:
    want = theirs(graph, feeds, fetches)
    have = ours(graph, fetches)
    in_loops = (sum(c.values()) - c["/"] for c in (have, want))
    told = f"{dict(have)}, TensorFlow {dict(want)}"
    print(told)
    assert next(in_loops) <= next(in_loops), told


@pytest.mark.parametrize(("name", "feeds", "fetches"), GRAPHS, ids=lambda value: str(value)[:24])
def test_a_graph_that_asks_for_devices_sends_no_more_than_tensorflow(
    name: str, feeds: dict[str, Any], fetches: list[str], fixtures: Path
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    cfgraph.place(graph, devices=f"cpu:0-{DEVICES - 1}")
    require_no_more(graph, feeds, fetches)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "feeds", "fetches"), PLACED, ids=lambda value: str(value)[:24])
def test_a_graph_placed_at_random_sends_no_more_an_iteration_than_tensorflow(
    name: str, feeds: dict[str, Any], fetches: list[str], seed: int, fixtures: Path
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    cfgraph.place(graph, devices="cpu:0-2", seed=seed)
    require_no_more(graph, feeds, fetches)
