"""Run the experiments in virtual time or, with --measure, in real time.

`python -m examples.paper --graphs DIR` writes their graphs instead.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cfgraph
from examples.paper.experiments import EXPERIMENTS, results, table
from examples.paper.graphs import GRAPHS


def main() -> None:
    """Run experiments and print their tables."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.paper",
        description="Run the experiments of the paper on dynamic control flow.",
    )
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--measure", action="store_true", help="real time instead of virtual time")
    parser.add_argument("--quick", action="store_true", help="few points of each curve")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the values to FILE")
    parser.add_argument("--graphs", type=Path, metavar="DIR", help="write the graphs, run nothing")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment {unknown[0]!r}; expected {', '.join(EXPERIMENTS)}")
    predicted = [name for name in options.names if EXPERIMENTS[name][options.measure] is None]
    if predicted:
        parser.error(f"{predicted[0]} is not measured on one machine; omit --measure")
    if options.graphs and (options.names or options.quick or options.measure or options.json):
        parser.error("--graphs writes all graphs, and runs nothing; omit the other arguments")
    if options.graphs:
        write_graphs(options.graphs)
        return
    done = []
    for curves in results(options.names, quick=options.quick, measure=options.measure):
        print(table(curves), flush=True)
        done.append(curves._asdict())
    if options.json:
        options.json.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


def write_graphs(folder: Path) -> None:
    """Write all graphs, and print their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in GRAPHS.items():
        path = folder / f"{name}.pb"
        cfgraph.save(graph(), path)
        print(path)


if __name__ == "__main__":
    main()
