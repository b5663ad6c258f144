"""Random graphs, placed at random and partitioned, compute the same values."""

from __future__ import annotations

import random

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from tests.analysis.random_graphs import random_graph
from tests.sampled import half

SCHEDULES = ("fifo", "random")
RACES = {"CFG220", "CFG222"}


def cut(graph: Graph, seed: int, devices: str = "cpu:0-2") -> Graph:
    cfgraph.place(graph, devices=devices, seed=seed)
    cfgraph.partition(graph)
    return graph


# the graphs of the other recipes all race
@pytest.mark.parametrize("kind", ["structured", "mixed", "loops", "wild"])
@pytest.mark.parametrize("seeds", half(range(24)))
def test_random_graphs_give_the_same_values_and_dead_tokens(seeds: range, kind: str) -> None:
    compared = sum(compared_runs(seed, kind) for seed in seeds)
    assert compared > 5


def compared_runs(seed: int, kind: str) -> int:
    """Return the number of comparable runs; a graph with racing Merges has none."""
    generated = random_graph(seed, kind)
    if any(finding.code in RACES for finding in cfgraph.check(generated.graph).findings):
        return 0
    fetches, partitioned = root_tensors(generated.graph), cut(copy_graph(generated.graph), seed)
    count = 0
    for number in range(3):
        feeds = generated.feeds(random.Random(10 * seed + number))
        try:
            expected = cfgraph.Session(generated.graph).run(fetches, feeds, allow_dead=True)
        except cfgraph.ExecutionError:
            continue  # a loop that stands still: some tensor never comes
        for schedule in SCHEDULES:
            session = cfgraph.Session(partitioned, schedule=schedule, schedule_seed=seed)
            values = session.run(fetches, feeds, allow_dead=True)
            for name, actual, value in zip(fetches, values, expected, strict=True):
                assert (actual is None) == (value is None), (seed, name)
                assert actual is None or np.array_equal(actual, value), (seed, name)
            count += 1
    return count


def root_tensors(graph: Graph) -> list[str]:
    """Return all tensors outside of loops."""
    loop_frames = frames(graph)
    return [
        tensor.name
        for node in graph
        if loop_frames.of_outputs[node] is loop_frames.root
        for tensor in node.outputs
    ]
