"""GPU figures as a JSON file, and as tables in docs/performance.md."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.figures import Bench, Figure
from benchmarks.gpu.overlap import save as save_trace
from cfgraph.runtime.trace.events import TraceEvent

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"
_LIBRARIES: Final = ("numpy", "cupy-cuda13x", "jax", "torch")


def record(bench: Bench) -> dict[str, Any]:
    """All figures, and what they were taken with."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "version": 1,
        "date": datetime.now(UTC).date().isoformat(),
        "simulated": bench.simulated,
        "device": "simulated by NumPy" if isinstance(bench.gpu, str) else bench.gpu.name,
        "python": platform.python_version(),
        "libraries": versions,
        "figures": [asdict(figure) for figure in bench.figures],
        "pipeline": bench.pipeline,
    }


def save(recorded: dict[str, Any], folder: Path, trace: Sequence[TraceEvent] = ()) -> Path:
    """Write `gpu-<date>.json`, and next to it a trace, `gpu-<date>-pipeline.json.gz`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"gpu-{recorded['date']}.json"
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    if trace:
        save_trace(trace, path.with_name(f"{path.stem}-pipeline.json.gz"))
    return path


def tables(figures: Sequence[Figure]) -> str:
    """The figures in Markdown: a table per section, with what is missing below it."""
    lines = []
    for name in dict.fromkeys(figure.table for figure in figures):
        mine = [figure for figure in figures if figure.table == name]
        columns = list(dict.fromkeys(figure.column for figure in mine))
        lines += [f"### {name}", "", f"| | {' | '.join(columns)} |"]
        lines.append("| --- " * (len(columns) + 1) + "|")
        for row in dict.fromkeys(figure.row for figure in mine):
            cells = {figure.column: _cell(figure) for figure in mine if figure.row == row}
            lines.append(f"| {row} | {' | '.join(cells.get(one, '') for one in columns)} |")
        reasons: dict[str, list[str]] = {}
        for figure in mine:
            if figure.why:
                reasons.setdefault(figure.why, []).append(figure.column)
        lines.append("")
        for why, where in reasons.items():
            lines += [f"- in {', '.join(dict.fromkeys(where))}: {why}", ""]
    return "\n".join(lines)


def _cell(figure: Figure) -> str:
    return "-" if figure.value is None else f"{figure.value:.4g} {figure.unit}".strip()


def filled(page: str, recorded: dict[str, Any], text: str) -> str:
    """The page with the tables between its marks. Raises ValueError where it has none."""
    before, mark, rest = page.partition(BEGIN)
    _, other, after = rest.partition(END)
    if not mark or not other:
        message = f"no place for the figures: {BEGIN} and {END}"
        raise ValueError(message)
    used = ", ".join(f"{name} {found}" for name, found in recorded["libraries"].items() if found)
    head = f"{recorded['device']}, {recorded['date']}: Python {recorded['python']}, {used}."
    return f"{before}{BEGIN}\n\n{head}\n\n{text}\n{END}{after}"
