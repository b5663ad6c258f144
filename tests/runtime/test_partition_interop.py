"""TensorFlow's own partition graphs run with the values that TensorFlow computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from cfgraph.ir.partition_folder import merge_partitions
from cfgraph.ir.serde import graph_def
from cfgraph.passes.place.place import place
from tests.passes.random_programs import random_programs
from tests.recorder import Recorder

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1

GRAPHS = [
    ("eight_devices.pb", {"n:0": 7}, [f"out{place}:0" for place in range(8)]),
    ("eight_devices.pb", {"n:0": 7}, ["out3:0"]),
    ("eight_devices_barrier.pb", {"n:0": 7}, [f"out{place}:0" for place in range(8)]),
]
PLACED = [
    ("counter.pb", {"n:0": 7}, ["count:0"]),
    ("nested.pb", {}, ["sum:0"]),
    ("while_functional.pb", {"n:0": 7}, ["out:0"]),
    ("cond_functional.pb", {"x:0": 1.0, "y:0": 2.0, "z:0": 3.0}, ["out:0"]),
    ("cond_functional.pb", {"x:0": 2.0, "y:0": 1.0, "z:0": 3.0}, ["out:0"]),
]


def parts_of(
    graph: Graph, fetches: list[str], feeds: dict[str, Any], before: tuple[str, ...] = ()
) -> tuple[list[Any], list[Graph]]:
    """TensorFlow's results, and the partition graphs that it ran."""
    message = tf.GraphDef()
    message.ParseFromString(cfgraph.dumps(graph))
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(message, name="")
    config = tf.ConfigProto(device_count={"CPU": 8}, inter_op_parallelism_threads=2)
    options = tf.RunOptions(output_partition_graphs=True, timeout_in_ms=60_000)
    metadata = tf.RunMetadata()
    with tf.Session(graph=imported, config=config) as session:
        for name in before:
            session.run(name)
        values = session.run(fetches, feeds, options=options, run_metadata=metadata)
    written = [
        graph_def.graph_from_bytes(part.SerializeToString()) for part in metadata.partition_graphs
    ]
    return values, written


def needed(graph: Graph, feeds: dict[str, Any]) -> dict[str, Any]:
    """The feeds for which TensorFlow's graphs have placeholders."""
    return {
        name: value
        for name, value in feeds.items()
        if any(node.startswith(f"_arg_{name.replace(':', '_')}_") for node in graph.nodes)
    }


def require_equal(have: list[Any], want: list[Any]) -> None:
    for mine, theirs in zip(have, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(("name", "feeds", "fetches"), GRAPHS)
@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_graphs_with_device_requests(
    name: str, feeds: dict[str, Any], fetches: list[str], schedule: str, fixtures: Path
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    want, written = parts_of(graph, fetches, feeds)
    assert len(written) > 1
    session = cfgraph.Session(merge_partitions(written), schedule=schedule)
    recorder = Recorder()
    require_equal(session.run(fetches, feeds, trace=recorder), want)
    assert len({event.device for event in recorder.events}) == len(written)
    by_index = session.run([str(place) for place in range(len(fetches))], {"0": feeds["n:0"]})
    require_equal(by_index, want)


def test_tensorflow_runs_a_graph_with_a_fan_out(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "eight_devices.pb")
    cfgraph.place(graph, devices="cpu:0-7")
    cfgraph.partition(graph, fan_out=2)
    message = tf.GraphDef()
    message.ParseFromString(cfgraph.dumps(graph))
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(message, name="")
    fetches: list[Any] = [f"out{place}:0" for place in range(8)]
    sends = [imported.get_operation_by_name(node.name) for node in graph if node.op == "_Send"]
    config = tf.ConfigProto(device_count={"CPU": 8}, inter_op_parallelism_threads=2)
    options = tf.RunOptions(timeout_in_ms=60_000)
    with tf.Session(graph=imported, config=config) as session:
        values, _ = session.run((fetches, sends), {"n:0": 7}, options=options)
    require_equal(values, [7] * 8)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "feeds", "fetches"), PLACED)
def test_graphs_that_were_placed_at_random(
    name: str, feeds: dict[str, Any], fetches: list[str], seed: int, fixtures: Path
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    place(graph, devices="cpu:0-2", seed=seed)
    want, written = parts_of(graph, fetches, feeds)
    whole = merge_partitions(written)
    session = cfgraph.Session(whole, schedule="random", schedule_seed=seed)
    require_equal(session.run(fetches, needed(whole, feeds)), want)


def test_random_programs_that_were_placed_at_random() -> None:
    for seed, program in random_programs(range(20)):
        place(program.graph, devices="cpu:0-2", seed=seed)
        feeds = {
            name if ":" in name else f"{name}:0": value for name, value in program.feeds.items()
        }
        # nothing of a fed tensor is left in the graphs that TensorFlow runs
        fetches = [name for name in program.fetches if name not in feeds]
        if not fetches:
            continue
        want, written = parts_of(program.graph, fetches, feeds, ("init",))
        state = cfgraph.Session(program.graph)
        state.run(targets=["init"])
        whole = merge_partitions(written)
        session = cfgraph.Session(whole, state=state.state)
        require_equal(session.run(fetches, needed(whole, feeds)), want)


def test_what_is_not_fed_is_named_by_its_own_name(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "eight_devices.pb")
    _, written = parts_of(graph, ["out1:0"], {"n:0": 1})
    with pytest.raises(cfgraph.UsageError, match=r"a feed is missing: _arg_n_0_0:0 \(int32\)"):
        cfgraph.Session(merge_partitions(written)).run(["out1:0"])
