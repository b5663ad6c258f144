"""Graphs of the experiments, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from cfgraph.ir.graph import Graph
from cfgraph.ir.text.parser import parse_graph
from examples.paper.distributed_loops import counting_loop, layered_loop
from examples.paper.in_graph_training import training_loop, training_parts
from examples.paper.lstm import layered_lstm, lstm, unrolled_lstm, with_gradient

MACHINES: Final = (1, 2, 4, 8, 16, 32, 64)
PARALLEL: Final = (1, 2, 4, 8, 16, 32)
BATCHES: Final = (64, 128, 256, 512)
GPUS: Final = (1, 2, 4, 8)
# of all LSTMs: units, layers on several GPUs, and the rows of a batch there
UNITS: Final = 512
LAYERS: Final = 8
ROWS: Final = 512
# steps that are unrolled
UNROLLED: Final = 40


def _builders() -> Iterator[tuple[str, Callable[[], Graph]]]:
    for machines in MACHINES:
        yield f"loop_{machines}", partial(_counting_loop, machines, barrier=False)
        yield f"loop_{machines}_barrier", partial(_counting_loop, machines, barrier=True)
    for bound in PARALLEL:
        yield f"layers_{bound}", partial(_layered_loop, bound)
    yield "lstm", partial(_lstm, ROWS)
    yield "lstm_swapping", partial(_lstm, ROWS, swap_memory=True)
    for batch in BATCHES:
        yield f"lstm_{batch}", partial(_lstm, batch)
        yield f"unrolled_{batch}", partial(_unrolled_lstm, batch)
    for gpus in GPUS:
        yield f"layered_{gpus}", partial(_layered_lstm, gpus)
    yield "training_loop", training_loop
    yield "training_parts", training_parts


def _counting_loop(machines: int, *, barrier: bool) -> Graph:
    devices = [f"/job:worker/task:{k}/device:CPU:0" for k in range(machines)]
    return parse_graph(counting_loop(devices[0], devices, barrier=barrier, parallel=32))


def _layered_loop(parallel: int) -> Graph:
    return parse_graph(layered_loop(LAYERS, parallel=parallel))


def _lstm(batch: int, *, swap_memory: bool = False) -> Graph:
    return with_gradient(lstm(UNITS, batch), swap_memory=swap_memory)


def _unrolled_lstm(batch: int) -> Graph:
    return with_gradient(unrolled_lstm(UNITS, batch, UNROLLED))


def _layered_lstm(gpus: int) -> Graph:
    graph = layered_lstm(gpus, layers=LAYERS, units=UNITS, batch=ROWS, parallel=32)
    return with_gradient(graph, layers=LAYERS)


GRAPHS: Final[Mapping[str, Callable[[], Graph]]] = dict(_builders())
