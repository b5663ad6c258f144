"""CPU seconds and peak memory of each command on a file of 100,000 nodes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from benchmarks.families import FAMILIES
from benchmarks.growth import COMMANDS, write
from benchmarks.measurement import Row
from benchmarks.memory import COMMAND, measured

NODES = 100_000
TINY = 100
LARGEST_SECONDS = 8
GRAPHS = ("chain", "conditionals", "loops")
NAMES = (
    "show",
    "check",
    "lower",
    "partition",
    "cluster",
    "grad",
    "optimize",
    "diff",
    "functionalize",
)
MORE = {"show": "show {}", "extract": "extract {} --outputs y -o {}.pb"}


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Two rows per command and graph: seconds, and the peak in MiB and in sizes of the file."""
    nodes = TINY if tiny else NODES
    commands = MORE if tiny else {name: COMMANDS[name] for name in NAMES} | MORE
    with tempfile.TemporaryDirectory() as folder:
        for family in GRAPHS[:1] if tiny else GRAPHS:
            path = _write(family, nodes, Path(folder))
            size = path.stat().st_size / 2**20
            for name, command in commands.items():
                peak, seconds = measured(COMMAND, *command.replace("{}", str(path)).split())
                work = f"{name} of {nodes:,} nodes, {family}"
                yield Row(f"{work}, at most {LARGEST_SECONDS}", seconds, "s CPU")
                yield Row(f"{work}, file of {size:.1f} MiB", peak, "MiB")


def _write(family: str, nodes: int, folder: Path) -> Path:
    """A graph of a family with about this many nodes; the family's size counts parts of it."""
    import cfgraph

    sample = 20
    part = len(cfgraph.loads(FAMILIES[family](sample).encode(), "graph")) / sample
    return write(family, round(nodes / part), folder)
