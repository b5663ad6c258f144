"""Microseconds a node to place and partition, where TensorFlow's first run does both and more."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from benchmarks.rows import Row, best_of_one
from cfgraph.ir import dtypes
from cfgraph.ir.copy import copy_of
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape

NODES = 100_000
TINY = 400
DEVICES = 8
# TensorFlow 2.21's first run of a graph of this size, a node
PEER = 40.0
IN_A_LOOP = 200


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Chains and loops on eight devices, by their own requests and by chance."""
    count = TINY if tiny else NODES
    for nodes in (count // 10, count):
        yield _row(f"place and partition {nodes:,} nodes", chains(nodes), None)
    yield _row(f"the same, in loops of {IN_A_LOOP}", loops(count), None)
    yield _row("the same, placed at random", loops(count), 1)


def _row(work: str, graph: Graph, seed: int | None) -> Row:
    import cfgraph

    def run() -> None:
        cfgraph.place(graph, devices=f"cpu:0-{DEVICES - 1}", seed=seed)
        cfgraph.partition(graph)

    count = len(graph)
    warm = copy_of(graph)
    cfgraph.place(warm, devices=f"cpu:0-{DEVICES - 1}", seed=seed)
    cfgraph.partition(warm)
    return Row(work, best_of_one(run) * 1e6 / count, "µs a node", PEER, 1.0)


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
    """Loops one beside the other, each with a body that goes through all devices."""
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
