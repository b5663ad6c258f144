"""Microseconds per node to place and partition; TensorFlow's first run does both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import ModuleType

from benchmarks.measurement import Row, single_time
from benchmarks.peer import importer
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.shapes import Shape

NODES = 100_000
FEWER = 10_000  # what TensorFlow gets through in seconds
TINY = 400
DEVICES = 8
# TensorFlow's first run of a chain of 100,000 nodes on one device, a node
ALONE = 40.0
IN_A_LOOP = 200
FEEDS = {"x:0": 1.0, "p:0": False}


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Chains and loops on eight devices, by their own requests and by chance."""
    if not tiny:
        yield _row(f"place and partition {NODES:,} nodes", chains(NODES), peer=ALONE)
        yield _row(f"the same, in loops of {IN_A_LOOP}", loops(NODES))
        yield _row("the same, placed at random", loops(NODES), seed=1)
    count = TINY if tiny else FEWER
    yield _row(f"place and partition {count:,} nodes", chains(count), tf)
    yield _row(f"the same, in loops of {IN_A_LOOP}", loops(count), tf)
    yield _row("the same, placed at random", loops(count), tf, seed=1)


def _row(
    work: str,
    graph: Graph,
    tf: ModuleType | None = None,
    peer: float | None = None,
    seed: int | None = None,
) -> Row:
    import cfgraph

    def place(graph: Graph) -> None:
        cfgraph.place(graph, devices=f"cpu:0-{DEVICES - 1}", seed=seed)

    def run() -> None:
        place(graph)
        cfgraph.partition(graph)

    count = len(graph)
    placed = copy_graph(graph)
    place(placed)
    theirs = first_run(tf, placed) * 1e6 / count if tf else peer
    cfgraph.partition(placed)  # the first call loads code
    return Row(work, single_time(run) * 1e6 / count, "µs a node", theirs, theirs and 1.0)


def first_run(tf: ModuleType, graph: Graph) -> float:
    """Seconds of TensorFlow's first run of all that nobody reads, less those of its second."""
    import cfgraph

    names = {node.name for node in graph}
    targets = [node.name for node in graph if not node.uses]
    imported = importer(tf, cfgraph.dumps(graph))()
    config = tf.compat.v1.ConfigProto(device_count={"CPU": DEVICES})
    feeds = {name: value for name, value in FEEDS.items() if name[:-2] in names}
    took = []
    with tf.compat.v1.Session(graph=imported, config=config) as session:
        for _ in range(2):
            began = time.perf_counter()
            session.run([imported.get_operation_by_name(name) for name in targets], feeds)
            took.append(time.perf_counter() - began)
    return took[0] - took[1]


def chains(count: int) -> Graph:
    """A chain on each device; every tenth node reads the neighbour's chain too."""
    graph = _empty()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32, shape=Shape([]))
    last = [x.output()] * DEVICES
    for number in range(count):
        place = number % DEVICES
        other = last[place - 1] if number // DEVICES % 10 == 0 else last[place]
        node = graph.add("AddV2", last[place], other, name="a", device=f"/cpu:{place}")
        last[place] = node.output()
    return graph


def loops(count: int) -> Graph:
    """Independent loops, each with a body that goes through all devices."""
    graph = _empty()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32, shape=Shape([]))
    test = graph.add("Placeholder", name="p", dtype=dtypes.bool_, shape=Shape([]))
    for number in range(max(1, count // IN_A_LOOP)):
        frame = {"frame_name": b"loop%d" % number}
        goes = graph.add("Enter", test, name="test", is_constant=True, **frame)
        enter = graph.add("Enter", x, name="enter", **frame)
        merge = graph.add("Merge", enter, enter, name="merge")
        condition = graph.add("LoopCond", goes, name="cond", controls=[merge])
        switch = graph.add("Switch", merge, condition, name="switch")
        value = switch.output(1)
        for step in range(IN_A_LOOP - 7):
            device = f"/cpu:{step * DEVICES // (IN_A_LOOP - 7)}"
            value = graph.add("AddV2", value, value, name="add", device=device).output()
        graph.set_input(merge, 1, graph.add("NextIteration", value, name="next").output())
        graph.add("Exit", switch, name="exit")
    return graph


def _empty() -> Graph:
    import cfgraph.ops  # noqa: F401 - fills the registry

    return Graph()
