"""Print the table of figures: `python -m benchmarks [--tiny] [--models PATH] [section ...]`.

Without a section, all are measured. `--models` names recordings for the sections
`models`, `optimize`, and `stalls`.
`python -m benchmarks papers [--measure]` rewrites docs/papers.md and its pictures instead,
`python -m benchmarks converters [GRAPH ...]` the table of docs/functionalize.md, and
`python -m benchmarks hunt --with tensorflow:autojit` searches TensorFlow's modes for faults.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    clusters,
    compiling,
    coverage,
    deadness,
    devices,
    first_runs,
    functionalizing,
    gradients,
    growth,
    hunt,
    kernels,
    large,
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
    stalls,
    startup,
    swapping,
    workers,
)
from benchmarks.arguments import section_parser
from benchmarks.converters import table
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
    "stalls": stalls,
    "devices": devices,
    "first": first_runs,
    "gradients": gradients,
    "growth": growth,
    "large": large,
    "clusters": clusters,
    "regions": regions,
    "coverage": coverage,
    "functionalize": functionalizing,
    "kernels": kernels,
    "memory": memory,
    "swapping": swapping,
    "workers": workers,
    "reduce": reduce,
    "startup": startup,
}
HEAD = ("work", "cfgraph", "peer", "ratio", "budget", "")


def main(words: Sequence[str]) -> None:
    """Measure the sections that are named, or all."""
    if words[:1] == ["papers"]:
        papers.main(words[1:])
        return
    if words[:1] == ["converters"]:
        table.main(words[1:])
        return
    if words[:1] == ["hunt"]:
        raise SystemExit(hunt.main(words[1:]))
    options = parse(words)
    if options.models is not None:
        SECTIONS["models"] = models.Section(options.models)
        SECTIONS["optimize"] = optimizing.Section(options.models)
        SECTIONS["stalls"] = stalls.Section(options.models)
    tf = tensorflow()
    if tf is not None:
        tf.compat.v1.disable_eager_execution()  # of the whole process, so not in tests
    peer = f"TensorFlow {tf.__version__}" if tf else "no TensorFlow here, so no ratio against it"
    print(f"peer: {peer}; of --help: import typer; of kernels: NumPy; of memory: the short loop;")
    print("of swapping: a run with it, or one with all the memory that it wants;")
    print("of growth: linear growth; of reduce: the better of bisection and linear reduction")
    print("of workers of Ray: processes\n")
    names = options.sections or list(SECTIONS)
    rows = [cells(row) for name in names for row in SECTIONS[name].measure(tf, tiny=options.tiny)]
    widths = [max(len(row[place]) for row in [HEAD, *rows]) for place in range(len(HEAD))]
    for row in [HEAD, *rows]:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; exits with 2 for an unknown section or option."""
    description = "Print figures of some sections, or of all, which takes ten minutes."
    parser = section_parser("python -m benchmarks", description, SECTIONS)
    parser.epilog = "`python -m benchmarks papers --help` describes a page that is measured alone."
    parser.add_argument(
        "--models",
        type=Path,
        metavar="PATH",
        help="recordings for `models`, `optimize`, and `stalls`",
    )
    return parser.parse_args(words)


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts."""
    peer = "" if row.peer is None else f"{row.peer:.4g}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    budget = "" if row.budget is None else f"{row.budget:.4g}"
    return row.work, f"{row.ours:.4g} {row.unit}", peer, ratio, budget, row.verdict


if __name__ == "__main__":
    main(sys.argv[1:])
