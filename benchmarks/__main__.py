"""Print the table of figures: `python -m benchmarks [--tiny] [--models PATH] [section ...]`.

Without a section, all are measured. `--models` names recordings for the sections
`models` and `optimize`.
`python -m benchmarks papers [--measure]` rewrites docs/papers.md and its pictures instead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks import (
    clusters,
    compiling,
    coverage,
    deadness,
    devices,
    first_runs,
    gradients,
    growth,
    kernels,
    loading,
    lowering,
    memory,
    messages,
    models,
    optimizing,
    papers,
    partition,
    placing,
    reduce,
    regions,
    running,
    startup,
    swapping,
    workers,
)
from benchmarks.measurement import Row
from benchmarks.peer import tensorflow

SECTIONS: dict[str, Any] = {
    "loading": loading,
    "lowering": lowering,
    "placing": placing,
    "deadness": deadness,
    "partition": partition,
    "messages": messages,
    "running": running,
    "compiling": compiling,
    "models": models,
    "optimize": optimizing,
    "devices": devices,
    "first": first_runs,
    "gradients": gradients,
    "growth": growth,
    "clusters": clusters,
    "regions": regions,
    "coverage": coverage,
    "kernels": kernels,
    "memory": memory,
    "swapping": swapping,
    "workers": workers,
    "reduce": reduce,
    "startup": startup,
}
HEAD = ("work", "cfgraph", "peer", "ratio", "budget", "")


def main(arguments: list[str]) -> None:
    """Measure the sections that are named, or all."""
    if arguments[:1] == ["papers"]:
        papers.main(arguments[1:])
        return
    tiny = "--tiny" in arguments
    if "--models" in arguments:
        at = arguments.index("--models")
        SECTIONS["models"] = models.Section(Path(arguments[at + 1]))
        SECTIONS["optimize"] = optimizing.Section(Path(arguments[at + 1]))
        arguments = arguments[:at] + arguments[at + 2 :]
    named = [word for word in arguments if not word.startswith("-")] or list(SECTIONS)
    tf = tensorflow()
    peer = f"TensorFlow {tf.__version__}" if tf else "no TensorFlow here, so no ratio against it"
    print(f"peer: {peer}; of --help: import typer; of kernels: NumPy; of memory: the short loop;")
    print("of swapping: a run with it, or one with all the memory that it wants;")
    print("of growth: linear growth; of reduce: the better of bisection and linear reduction")
    print("of workers of Ray: processes\n")
    rows = [cells(row) for name in named for row in SECTIONS[name].measure(tf, tiny=tiny)]
    widths = [max(len(row[place]) for row in [HEAD, *rows]) for place in range(len(HEAD))]
    for row in [HEAD, *rows]:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts."""
    peer = "" if row.peer is None else f"{row.peer:.4g}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    budget = "" if row.budget is None else f"{row.budget:.4g}"
    return row.work, f"{row.ours:.4g} {row.unit}", peer, ratio, budget, row.verdict


if __name__ == "__main__":
    main(sys.argv[1:])
