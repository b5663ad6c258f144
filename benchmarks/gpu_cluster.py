"""The figures of docs/devices.md: loops on a cluster of GPUs, in virtual time.

`python -m benchmarks.gpu_cluster` rewrites the pictures and the tables. Nothing is measured, so
they are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

import cfgraph
from benchmarks.chart import Series, chart
from benchmarks.papers import filled
from benchmarks.unrolling import BATCHES, slowdowns
from cfgraph.runtime.cost_model import read_costs
from examples.paper.distributed_loops import counting_loop, layered_loop

DOCS: Final = Path(__file__).parents[1] / "docs"
DEVICES: Final = (1, 2, 4, 8, 16, 32, 64)
PARALLEL: Final = (1, 2, 4, 8, 16, 32)
# the most that one run may use is 1,024, the CPU among them
MANY_DEVICES: Final = (64, 255, 1023)
FAN_OUTS: Final = (None, 32, 8)
LAYERS: Final = 8
# iterations until a loop runs evenly, and as many that are timed after them; more if iterations
# overlap, since all of these start together
_EVEN: Final = 16
_EVEN_AT_ONCE: Final = 64
_EVEN_WITH_MANY: Final = 4


def main() -> None:
    """Write the pictures, and the tables in the text."""
    for name, text in files().items():
        (DOCS / name).write_text(text, encoding="utf-8")
    page = (DOCS / "devices.md").read_text(encoding="utf-8")
    rows = [fan_out_row(devices) for devices in MANY_DEVICES]
    (DOCS / "devices.md").write_text(filled(page, "fan-out", rows), encoding="utf-8")


def files() -> dict[str, str]:
    """The files of the figures by name, as they must be."""
    free, barrier = growth(barrier=False), growth(barrier=True)
    at_once = pipeline()
    page = (DOCS / "devices.md").read_text(encoding="utf-8")
    rows = [f"| {n} | {a:.1f} | {b:.1f} |" for n, a, b in zip(DEVICES, free, barrier, strict=True)]
    page = filled(page, "growth", rows)
    rows = [f"| {n} | {a:.1f} |" for n, a in zip(PARALLEL, at_once, strict=True)]
    page = filled(page, "pipeline", rows)
    forward, training = slowdowns(gradient=False), slowdowns(gradient=True)
    rows = [
        f"| {n} | {a:.1f} | {b:.1f} |" for n, a, b in zip(BATCHES, forward, training, strict=True)
    ]
    page = filled(page, "unrolling", rows)
    return {
        "devices.md": page,
        "unrolling.svg": chart(
            "An LSTM as a loop, relative to the unrolled graph",
            ("rows of a batch", "% longer"),
            BATCHES,
            (Series("with its gradient", training), Series("forward", forward)),
        ),
        "devices.svg": chart(
            "A loop over GPUs, each of which counts",
            ("GPUs", "µs per iteration"),
            DEVICES,
            (Series("barrier in each iteration", barrier), Series("no barrier", free)),
        ),
        "parallel_iterations.svg": chart(
            f"{LAYERS} layers, one on each GPU",
            ("parallel_iterations", "µs per iteration"),
            PARALLEL,
            (Series(f"{LAYERS} GPUs", at_once),),
        ),
    }


def growth(*, barrier: bool, devices: tuple[int, ...] = DEVICES) -> list[float]:
    """Microseconds an iteration of the loop of `make bench`, for each number of GPUs."""
    return [
        microseconds(
            loop_text(count, barrier=barrier),
            count,
            [f"out{place}:0" for place in range(count)],
            _EVEN,
        )
        for count in devices
    ]


def loop_text(devices: int, *, barrier: bool) -> str:
    """A loop that counts on each GPU, led by the CPU."""
    gpus = [f"/device:GPU:{k}" for k in range(devices)]
    return counting_loop("/device:CPU:0", gpus, barrier=barrier, parallel=32)


def fan_out_row(devices: int) -> str:
    """The row of a loop without a barrier: microseconds an iteration for each fan-out."""
    text = loop_text(devices, barrier=False)
    fetches = [f"out{place}:0" for place in range(devices)]
    times = [
        microseconds(text, devices, fetches, _EVEN_WITH_MANY, fan_out=number) for number in FAN_OUTS
    ]
    return f"| {devices:,} | " + " | ".join(f"{time:.1f}" for time in times) + " |"


def pipeline(parallel: tuple[int, ...] = PARALLEL) -> list[float]:
    """Microseconds an iteration of the layers, for each bound on iterations at once."""
    return [
        microseconds(layered_loop(LAYERS, parallel=bound), LAYERS, ["out:0"], _EVEN_AT_ONCE)
        for bound in parallel
    ]


def microseconds(
    text: str, devices: int, fetches: list[str], even: int, *, fan_out: int | None = None
) -> float:
    """The virtual time of an iteration once a loop runs evenly."""
    graph = cfgraph.loads(text.encode(), "graph")
    costs = read_costs(str(DOCS / "cluster.toml"))
    cfgraph.place(graph, devices=f"cpu:0,gpu:0-{devices - 1}")
    cfgraph.partition(graph, fan_out=fan_out)
    session = cfgraph.Session(graph, costs=costs)
    shown = []
    for last in (even, 2 * even):
        feeds = {"n:0": np.int32(10 * last)}
        session.run(fetches, feeds, until_iteration=last, without_values=True)
        shown.append(session.elapsed or 0.0)
    return (shown[1] - shown[0]) * 1e6 / even


if __name__ == "__main__":
    main()
