"""Files of `cfgraph examples --set paper`: graphs, cost models, the script, and a README."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cfgraph.console.paper import reproduce
from cfgraph.console.paper.distributed_loops import counting_loop, layered_loop
from cfgraph.console.paper.reproduce import MACHINES, PARALLEL

LAYERS: Final = 8
_README: Final = """\
# Experiments with dynamic control flow

The experiments of Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning" (EuroSys
2018), as graphs:

| experiment | graphs | curve |
| --- | --- | --- |
| loops | `loop_N.graph` `loop_N_barrier.graph` | 1 to 64 machines, with and without a barrier |
| parallel | `layers_N.graph` | a pipeline of 8 GPUs with 1 to 32 iterations in flight |

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


def paper_files() -> dict[str, bytes]:
    """Contents by path in the folder."""
    texts = {
        "README.md": _README,
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
    return {name: text.encode() for name, text in texts.items()}
