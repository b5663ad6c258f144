"""The page docs/papers.md: `python -m benchmarks papers [--measure]`.

Writes the experiments of `cfgraph examples --set paper`, runs their script, and fills the tables
and draws the pictures of the page. Virtual figures are the same on every machine. Measured ones
are those of the last `--measure`, in benchmarks/results/papers.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.chart import Band, Series, chart
from cfgraph.console.examples import write_examples
from cfgraph.console.paper.reproduce import Curves, Setting, results

DOCS: Final = Path(__file__).parents[1] / "docs"
MEASURED: Final = Path(__file__).parent / "results" / "papers.json"


class Picture(NamedTuple):
    """A chart of some curves of an experiment."""

    title: str
    decades: bool = False
    band: Band | None = None


PICTURES: Final = {
    "loops-virtual": Picture("A loop over machines, each of which counts", decades=True),
    "parallel-virtual": Picture("Eight layers on eight GPUs", decades=True),
}


def main(words: list[str]) -> None:
    """Rewrite the page, its pictures, and with `--measure` the measured values."""
    if "--measure" in words:
        done = [curves._asdict() for curves in experiments(measure=True)]
        MEASURED.parent.mkdir(exist_ok=True)
        MEASURED.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    for name, text in files([*experiments(measure=False), *measured()]).items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"written: docs/{name}")


def experiments(*, measure: bool, quick: bool = False) -> list[Curves]:
    """The curves of all experiments, from the files that the command writes."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            write_examples(folder, "paper")
        return list(results(Setting(Path(folder), quick), (), measure=measure))


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
            title, decades, band = PICTURES[name]
            lines = [Series(line, values) for line, values in one.lines.items()]
            axes = (one.axis, one.unit)
            made[f"paper-{name}.svg"] = chart(
                title, axes, one.xs, lines, decades=decades, band=band
            )
    return {"papers.md": page, **made}


def rows(curves: Curves) -> list[str]:
    """The rows of a table, one for each x."""
    return [
        " | ".join([f"| {x:,}", *(_cell(line[k]) for line in curves.lines.values())]) + " |"
        for k, x in enumerate(curves.xs)
    ]


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def filled(page: str, name: str, lines: Sequence[str]) -> str:
    """The page with other rows in the table that a comment of this name ends."""
    pattern = rf"(\|[ -]+\|[ |-]*\n)(?:\|.*\n)*(\n?<!-- {name} -->)"
    page, count = re.subn(pattern, lambda m: m[1] + "\n".join(lines) + "\n" + m[2], page)
    if count != 1:
        raise ValueError(f"the page has {count} tables that <!-- {name} --> ends")
    return page


if __name__ == "__main__":
    main(sys.argv[1:])
