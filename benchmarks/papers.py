"""The page docs/papers.md: `python -m benchmarks papers [--measure]`.

Runs the experiments of `examples/paper`, fills the tables, and draws the pictures of the page.
Virtual figures are the same on every machine. Measured ones
are those of the last `--measure`, in benchmarks/results/papers.json.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

import cfgraph
from benchmarks.chart import Band, Series, chart
from benchmarks.peer import importer, tensorflow
from examples.paper.experiments import FETCHES, Curves, alternating_seconds, feeds_of, results
from examples.paper.graphs import GRAPHS

DOCS: Final = Path(__file__).parents[1] / "docs"
MEASURED: Final = Path(__file__).parent / "results" / "papers.json"


class Picture(NamedTuple):
    """A chart of some curves of an experiment, and of values that the paper reports."""

    title: str
    decades: bool = False
    band: Band | None = None
    reported: Mapping[int, float] = {}


_SLOWER: Final = Band("reported by the paper", 3, 8)
PICTURES: Final = {
    "loops-virtual": Picture("A loop over machines, each of which counts", decades=True),
    "parallel-virtual": Picture("Eight layers on eight GPUs", decades=True),
    "swapping-virtual": Picture("Training an LSTM on a GPU of 4 GiB"),
    "unrolling-virtual": Picture("An LSTM as a loop, relative to unrolled", band=_SLOWER),
    "unrolling-measured": Picture("The same LSTMs on a CPU", band=_SLOWER),
    "pipeline-virtual": Picture("Eight layers of an LSTM on 1 to 8 GPUs", reported={8: 5.5}),
    "training-virtual": Picture("Q-learning: one loop, or calls of a program"),
}
UNROLLING: Final = "unrolling"


def main(words: Sequence[str]) -> None:
    """Rewrite the page, its pictures, and with `--measure` the measured values."""
    description = "Rewrite docs/papers.md and its pictures."
    parser = argparse.ArgumentParser(prog="python -m benchmarks papers", description=description)
    parser.add_argument("--measure", action="store_true", help="measure the real times again, too")
    if parser.parse_args(words).measure:
        done = [curves._asdict() for curves in measure()]
        MEASURED.parent.mkdir(exist_ok=True)
        MEASURED.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    for name, text in files([*experiments(), *measured()]).items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"written: docs/{name}")


def experiments(*, quick: bool = False) -> list[Curves]:
    """The curves of all experiments in virtual time."""
    return list(results((), quick=quick, measure=False))


def measure(*, quick: bool = False) -> Iterator[Curves]:
    """The curves of real time; those of TensorFlow, if it is installed, are among them."""
    for curves in results((), quick=quick, measure=True):
        tf = tensorflow() if curves.experiment == UNROLLING else None
        if tf is None:
            yield curves
        else:
            peers = [tensorflow_slowdowns(tf, batch) for batch in curves.xs]
            columns = zip(*peers, strict=True)
            lines = {
                f"TensorFlow, {name}": list(column)
                for name, column in zip(curves.lines, columns, strict=True)
            }
            yield curves._replace(lines={**curves.lines, **lines})


def tensorflow_slowdowns(tf: ModuleType, batch: int) -> list[float]:
    """How many percent longer TensorFlow takes for an LSTM as a loop than unrolled."""
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    sessions, feeds = [], []
    for name in ("lstm", "unrolled"):
        graph = GRAPHS[f"{name}_{batch}"]()
        peer = importer(tf, cfgraph.dumps(graph))()
        sessions.append(tf.compat.v1.Session(graph=peer, config=config))
        feeds.append(feeds_of(graph))
    slowdowns = []
    for fetches in FETCHES:
        loop, unrolled = alternating_seconds(
            *(
                partial(run.run, fetches, inputs)
                for run, inputs in zip(sessions, feeds, strict=True)
            )
        )
        slowdowns.append(100 * (loop / unrolled - 1))
    return slowdowns


def measured() -> Iterator[Curves]:
    """The recorded curves of real time."""
    if MEASURED.exists():
        for entry in json.loads(MEASURED.read_text(encoding="utf-8")):
            yield Curves(**entry)


def files(curves: Iterable[Curves]) -> dict[str, str]:
    """The page and its pictures by name."""
    page = (DOCS / "papers.md").read_text(encoding="utf-8")
    made = {}
    for one in curves:
        name = f"{one.experiment}-{one.kind}"
        page = filled(page, name, rows(one))
        if name in PICTURES:
            made[f"paper-{name}.svg"] = drawn(one, PICTURES[name])
    return {"papers.md": page, **made}


def drawn(curves: Curves, picture: Picture) -> str:
    """The SVG of some curves."""
    lines = [Series(line, values) for line, values in curves.lines.items()]
    if picture.reported:
        values = [picture.reported.get(x) for x in curves.xs]
        lines.append(Series("reported by the paper", values))
    return chart(
        picture.title,
        (curves.axis, f"{curves.unit}, {curves.kind}"),
        curves.xs,
        lines,
        decades=picture.decades,
        band=picture.band,
        legend_below=True,
    )


def rows(curves: Curves) -> list[str]:
    """The rows of a table, one for each x."""
    return [
        " | ".join([f"| {x:,}", *(_cell(line[k]) for line in curves.lines.values())]) + " |"
        for k, x in enumerate(curves.xs)
    ]


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def filled(page: str, name: str, lines: Sequence[str]) -> str:
    """The page with other rows in the table that a comment of this name ends."""
    pattern = rf"(\|[ -]+\|[ |-]*\n)(?:\|.*\n)*(\n?<!-- {name} -->)"
    page, count = re.subn(pattern, lambda m: m[1] + "\n".join(lines) + "\n" + m[2], page)
    if count != 1:
        raise ValueError(f"the page has {count} tables that <!-- {name} --> ends")
    return page
