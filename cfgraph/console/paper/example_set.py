"""Files of `cfgraph examples --set paper`: graphs, cost models, the script, and a README."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cfgraph.console.paper import reproduce
from cfgraph.console.paper.distributed_loops import counting_loop, layered_loop
from cfgraph.console.paper.in_graph_training import training_loop, training_parts
from cfgraph.console.paper.lstm import layered_lstm, lstm, unrolled_lstm, with_gradient
from cfgraph.console.paper.reproduce import (
    BATCHES,
    GPUS,
    LAYERS,
    MACHINES,
    PARALLEL,
    ROWS,
    UNITS,
    UNROLLED,
)
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph

_EXPERIMENTS: Final = (
    (
        "loops",
        ("loop_N.graph", "loop_N_barrier.graph"),
        "1 to 64 machines, with and without a barrier",
    ),
    ("parallel", ("layers_N.graph",), "a pipeline of 8 GPUs with 1 to 32 iterations in flight"),
    ("swapping", ("lstm.pb", "lstm_swapping.pb"), "training an LSTM on a GPU of 4 GiB"),
    ("unrolling", ("lstm_N.pb", "unrolled_N.pb"), "an LSTM as a loop and as copies of its cell"),
    ("pipeline", ("layered_N.pb",), "training 8 LSTM layers on 1 to 8 GPUs"),
    (
        "training",
        ("training_loop.pb", "training_parts.pb"),
        "Q-learning as one loop, and call by call",
    ),
)
_DESCRIPTIONS: Final = {
    "README.md": "the experiments, and commands to try",
    "machines.toml": "cost model of machines in a network",
    "gpus.toml": "cost model of GPUs of one host",
    "reproduce.py": "runs the experiments",
}
_README: Final = """\
# Experiments with dynamic control flow

The experiments of Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning" (EuroSys
2018), as graphs:

| experiment | graphs | curve |
| --- | --- | --- |
{experiments}

`reproduce.py` runs them by the virtual clock; the cost models are `machines.toml` and `gpus.toml`:

    python reproduce.py
    python reproduce.py --quick loops
    python reproduce.py --measure

A single graph on the command line:

    cfgraph run graphs/loop_8.graph --devices '/job:worker/task:0-7/cpu:0' --feed n=1000 \
--fetch out7 \
--clock virtual --costs machines.toml --until-iteration 50 --timeline
"""
_MACHINES: Final = """\
# Machines in a network, in round figures: 40 us and 10 Gbit/s between any two, and 15 us of
# processor time for each message that is sent or received.
schema = "cfgraph.costs/1"

[devices."*"]
flops = 1e12
bytes = 1e11
launch = 1e-6
control = 1e-6

[links."*>*"]
latency = 4e-5
bandwidth = 1.25e9

[kernels."*"]
_Send = 1.5e-5
_Recv = 1.5e-5
"""
_GPUS: Final = """\
# GPUs of one host, in round figures.
schema = "cfgraph.costs/1"

[devices."*"]
control = 5e-7

[devices."gpu:*"]
flops = 1e13
bytes = 1e12
launch = 5e-6

[links."*>*"]
latency = 1e-5
bandwidth = 1.2e10
duplex = "full"
"""


class ExampleFile(NamedTuple):
    """The content of an example file, and its description."""

    data: bytes
    description: str


def paper_files() -> dict[str, ExampleFile]:
    """Files by path in the folder."""
    return {name: ExampleFile(data, _description(name)) for name, data in _contents().items()}


def _description(name: str) -> str:
    """The description of a file; for a graph, its experiment and the curve of that."""
    graph = re.sub(r"_\d+", "_N", name.rpartition("/")[2])
    descriptions = [
        f"{experiment}: {curve}" for experiment, names, curve in _EXPERIMENTS if graph in names
    ]
    return descriptions[0] if descriptions else _DESCRIPTIONS[name]


def _contents() -> dict[str, bytes]:
    """Contents by path in the folder."""
    rows = [
        f"| {experiment} | {' '.join(f'`{name}`' for name in names)} | {curve} |"
        for experiment, names, curve in _EXPERIMENTS
    ]
    texts = {
        "README.md": _README.format(experiments="\n".join(rows)),
        "machines.toml": _MACHINES,
        "gpus.toml": _GPUS,
        "reproduce.py": Path(reproduce.__file__).read_text(encoding="utf-8"),
    }
    for count in MACHINES:
        devices = [f"/job:worker/task:{k}/device:CPU:0" for k in range(count)]
        for suffix, barrier in (("", False), ("_barrier", True)):
            text = counting_loop(devices[0], devices, barrier=barrier, parallel=32)
            texts[f"graphs/loop_{count}{suffix}.graph"] = text
    for bound in PARALLEL:
        texts[f"graphs/layers_{bound}.graph"] = layered_loop(LAYERS, parallel=bound)
    graphs = {f"graphs/{name}.pb": dumps(graph) for name, graph in _built_graphs()}
    return {name: text.encode() for name, text in texts.items()} | graphs


def _built_graphs() -> Iterator[tuple[str, Graph]]:
    yield "lstm", with_gradient(lstm(UNITS, ROWS))
    yield "lstm_swapping", with_gradient(lstm(UNITS, ROWS), swap_memory=True)
    for batch in BATCHES:
        yield f"lstm_{batch}", with_gradient(lstm(UNITS, batch))
        yield f"unrolled_{batch}", with_gradient(unrolled_lstm(UNITS, batch, UNROLLED))
    for gpus in GPUS:
        layered = layered_lstm(gpus, layers=LAYERS, units=UNITS, batch=ROWS, parallel=32)
        yield f"layered_{gpus}", with_gradient(layered, layers=LAYERS)
    yield "training_loop", training_loop()
    yield "training_parts", training_parts()
