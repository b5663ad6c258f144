"""Run the experiments of this folder, in virtual time or, with --measure, in real time.

    python reproduce.py [--measure] [--quick] [--json FILE] [EXPERIMENT ...]

Virtual times come from a cost model (the files ending in .toml), so they are the same on every
machine. Nothing is computed for them but control flow. Real times are processor times of this
machine. --quick takes few points of each curve.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import cfgraph

MACHINES: Final = (1, 2, 4, 8, 16, 32, 64)
PARALLEL: Final = (1, 2, 4, 8, 16, 32)


class Curves(NamedTuple):
    """Values of an experiment over `xs`, by the name of the curve; None where there is none."""

    experiment: str
    kind: str  # virtual or measured
    axis: str
    unit: str
    xs: Sequence[int]
    lines: Mapping[str, Sequence[float | None]]


class Setting(NamedTuple):
    """The folder of the graphs, and the points of a curve that are run."""

    folder: Path
    quick: bool

    def load(self, name: str) -> Any:
        """A graph of the folder."""
        return cfgraph.load(self.folder / "graphs" / name)

    def costs(self, name: str) -> Any:
        """A cost model of the folder."""
        return cfgraph.read_costs(str(self.folder / name))

    def points(self, xs: Sequence[int]) -> Sequence[int]:
        """The first points, or all."""
        return xs[:2] if self.quick else xs


def loops(setting: Setting) -> Iterator[Curves]:
    """Iterations per second of a distributed loop, over its machines."""
    machines = setting.points(MACHINES)
    lines: dict[str, list[float | None]] = {"no barrier": [], "barrier": []}
    for count in machines:
        for name, values in lines.items():
            suffix = "_barrier" if name == "barrier" else ""
            graph = setting.load(f"loop_{count}{suffix}.graph")
            devices = [f"/job:worker/task:{k}/device:CPU:0" for k in range(count)]
            fetches = [f"out{k}:0" for k in range(count)]
            costs = setting.costs("machines.toml")
            values.append(1 / iteration_seconds(graph, devices, fetches, costs, even=64))
    yield Curves("loops", "virtual", "machines", "iterations per second", machines, lines)


def parallel(setting: Setting) -> Iterator[Curves]:
    """Milliseconds per iteration of eight layers on eight GPUs, over the iterations in flight."""
    bounds = setting.points(PARALLEL)
    values = []
    for bound in bounds:
        graph = setting.load(f"layers_{bound}.graph")
        devices = ["cpu:0", "gpu:0-7"]
        costs = setting.costs("gpus.toml")
        values.append(1e3 * iteration_seconds(graph, devices, ["out:0"], costs, even=64))
    lines = {"8 GPUs": values}
    yield Curves("parallel", "virtual", "parallel_iterations", "ms per iteration", bounds, lines)


def iteration_seconds(
    graph: Any, devices: Sequence[str], fetches: Sequence[str], costs: Any, even: int
) -> float:
    """The virtual time of an iteration after `even` of them, when a loop runs evenly."""
    cfgraph.place(graph, devices=",".join(devices))
    cfgraph.partition(graph)
    session = cfgraph.Session(graph, costs=costs)
    ends = []
    for last in (even, 2 * even):
        feeds = {"n:0": np.int32(10 * last)}
        session.run(fetches, feeds, until_iteration=last, without_values=True)
        ends.append(session.elapsed or 0.0)
    return (ends[1] - ends[0]) / even


# by name: an experiment in virtual time, and in real time where one machine suffices
EXPERIMENTS: Final[Mapping[str, Sequence[Callable[[Setting], Iterator[Curves]] | None]]] = {
    "loops": (loops, None),
    "parallel": (parallel, None),
}


def results(setting: Setting, names: Sequence[str], *, measure: bool) -> Iterator[Curves]:
    """The curves of the named experiments, or of all."""
    for name in names or EXPERIMENTS:
        experiment = EXPERIMENTS[name][measure]
        if experiment is not None:
            yield from experiment(setting)


def table(curves: Curves) -> str:
    """The values as a table of text."""
    head = [curves.axis, *curves.lines]
    rows = [
        [str(x), *("-" if line[k] is None else f"{line[k]:.4g}" for line in curves.lines.values())]
        for k, x in enumerate(curves.xs)
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [f"{curves.experiment}: {curves.unit}, {curves.kind}"]
    for row in (head, *rows):
        lines.append("  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True)))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run experiments and print their tables."""
    parser = argparse.ArgumentParser(description="Run the experiments of this folder.")
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--measure", action="store_true", help="real time instead of virtual time")
    parser.add_argument("--quick", action="store_true", help="few points of each curve")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the values to FILE")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment {unknown[0]!r}; expected {', '.join(EXPERIMENTS)}")
    setting = Setting(Path(__file__).parent, options.quick)
    done = []
    for curves in results(setting, options.names, measure=options.measure):
        print(table(curves), flush=True)
        done.append(curves._asdict())
    if options.json:
        options.json.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
