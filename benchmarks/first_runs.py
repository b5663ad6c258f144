"""Milliseconds of the first run of a graph in a new session, against TensorFlow's.

TensorFlow runs with its graph rewrites and without them; the faster one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import cfgraph
from benchmarks.measurement import Row, single_time
from benchmarks.peer import importer
from benchmarks.running import GRAPHS
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape
from cfgraph.runtime.session import Session

Run = Callable[[Graph, str | None, list[str], Any], object]
BUDGET = 1.0
ADDS = 10_000
PERIOD = 100
TINY = 40


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Small loops, a loop over eight devices, and adds on two."""
    feeds = {"n:0": np.int32(10)}
    outputs = [f"out{number}:0" for number in range(8)]
    for name, file, fetches, fed, devices in (
        ("counter", "counter.pb", ["count:0"], feeds, 1),
        ("nested loops", "nested.pb", ["sum:0"], {}, 1),
        ("eight devices", "eight_devices.pb", outputs, feeds, 8),
        ("eight devices, barrier", "eight_devices_barrier.pb", outputs, feeds, 8),
    ):
        data = (GRAPHS / file).read_bytes()
        yield _row(tf, f"first run: {name}", data, fetches, fed, devices, 1 if tiny else 7)
    count = TINY if tiny else ADDS
    for period, text in ((1, "alternating between"), (count // 2, "one half each on")):
        graph, last = adds(count, period)
        name = f"first run: {count:,} adds, {text} two devices"
        fed = {"x:0": np.float32(1)}
        yield _row(tf, name, cfgraph.dumps(graph), [last], fed, 2, 1 if tiny else 3)
    graph, last = adds(count, PERIOD)
    fed, data = {"x:0": np.float32(1)}, cfgraph.dumps(graph)
    name = f"place, partition, first run: {count:,} adds, {PERIOD} each on two devices"
    yield _row(tf, name, data, [last], fed, 2, 1 if tiny else 3, run=_in_three_calls)


def adds(count: int, period: int) -> tuple[Graph, str]:
    """Adds of x in a row; the device changes between two after every `period` of them."""
    graph = Graph()
    x = last = graph.add(
        "Placeholder", name="x", dtype=dtypes.float32, shape=Shape([]), device="/cpu:0"
    )
    for number in range(count):
        last = graph.add("AddV2", last, x, name="add", device=f"/cpu:{number // period % 2}")
    return graph, f"{last.name}:0"


def _row(
    tf: ModuleType | None,
    name: str,
    data: bytes,
    fetches: list[str],
    feeds: dict[str, Any],
    devices: int,
    repeats: int,
    run: Run | None = None,
) -> Row:
    def ours() -> Callable[[], object]:
        graph = cfgraph.loads(data)
        chosen = f"cpu:0-{devices - 1}" if devices > 1 else None
        return lambda: (run or _in_a_session)(graph, chosen, fetches, feeds)

    mine = _least(ours, repeats)
    theirs = None
    if tf is not None:
        theirs = min(
            _least(
                lambda off=off: _peer(tf, data, fetches, feeds, devices, rewrites=not off), repeats
            )
            for off in (False, True)
        )
    return Row(name, mine * 1e3, "ms", None if theirs is None else theirs * 1e3, BUDGET)


def _in_a_session(graph: Graph, devices: str | None, fetches: list[str], feeds: Any) -> object:
    return Session(graph, devices=devices).run(fetches, feeds)


def _in_three_calls(graph: Graph, devices: str | None, fetches: list[str], feeds: Any) -> object:
    cfgraph.place(graph, devices=devices)
    cfgraph.partition(graph)
    return Session(graph).run(fetches, feeds)


def _least(make: Callable[[], Callable[[], object]], repeats: int) -> float:
    """The least time of new runs, after one that loads code."""
    make()()
    return min(single_time(make()) for _ in range(repeats))


def _peer(
    tf: ModuleType,
    data: bytes,
    fetches: list[str],
    feeds: dict[str, Any],
    devices: int,
    *,
    rewrites: bool,
) -> Callable[[], object]:
    graph = importer(tf, data)()
    config = tf.compat.v1.ConfigProto(device_count={"CPU": devices})
    config.graph_options.rewrite_options.disable_meta_optimizer = not rewrites

    def run() -> object:
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            return session.run(fetches, feeds)

    return run
