"""Exponents of CPU time: how each command grows with graphs that are ten times as large."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from benchmarks.families import FAMILIES
from benchmarks.measurement import Row

SIZE: Final = 300
FACTOR: Final = 10
LARGEST_EXPONENT: Final = 1.3
REPEATS: Final = 2
LONG_SECONDS: Final = 10
# sizes of families whose results have n² nodes, n² events, or names of n² characters
SMALL: Final = {
    "nested_loops": 20,
    "loops_in_conditionals": 20,
    "nested_whiles": 20,
    "nested_ifs": 60,
    "nested_calls": 60,
}
# a tensor reaches a loop only through an Enter of each loop that contains it: n² nodes
_STACKS: Final = "the handle of a stack enters every outer loop"
_CONTROL_LOOPS: Final = "a device that receives in a loop has a control loop for all outer loops"
# commands whose results are quadratic, and why; `explain X Y` adds gradients to a copy
QUADRATIC: Final = {
    ("grad", "nested_loops"): _STACKS,
    ("grad", "nested_whiles"): _STACKS,
    ("grad", "loops_in_conditionals"): _STACKS,
    ("explain", "nested_loops"): _STACKS,
    ("explain", "nested_whiles"): _STACKS,
    ("explain", "loops_in_conditionals"): _STACKS,
    ("partition", "nested_whiles"): _CONTROL_LOOPS,
}
# `run --trace` of nested loops is not measured: the dead last iteration of each loop runs all loops
# inside, so that a trace has n² tokens, and a file a path of up to n loops for each
# {} is the graph, {}.out a file to write
COMMANDS: Final = {
    "check": "check {}",
    "show": "show {} --nodes --json",
    "deadness": "show {} --nodes --deadness",
    "explain": "explain {} x y",
    "lower": "lower {} -o {}.pb",
    "grad": "grad {} --ys y --xs x -o {}.pb",
    "cluster": "cluster {} -o {}.pb",
    "optimize": "optimize {} --fetch y -o {}.pb",
    "regions": "cluster {} --regions -o {}.pb",
    "functionalize": "functionalize {} -o {}.pb",
    "partition": "partition {} --devices cpu:0-1 --seed 1 -o {}.pb",
    "diff": "diff {} {}",
    "diff-run": "diff {} {} --run --fetch y --feed x=1.0",
    "run": "run {} --fetch y --feed x=1.0",
    "tokens": "run {} --fetch y --feed x=1.0 --engine tokens",
    "convert": "convert {} -o {}.graph",
}


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """One row per command and family; a single family if tiny."""
    with tempfile.TemporaryDirectory() as folder:
        for family in ["conditionals"] if tiny else FAMILIES:
            size = 4 if tiny else SMALL.get(family, SIZE)
            small, large = (write(family, count, Path(folder)) for count in (size, FACTOR * size))
            for command in COMMANDS:
                run(command, small)
                growth = least_time(command, large) / least_time(command, small)
                exponent = max(math.log(growth, FACTOR), 0.01)
                work, reason = f"{command} of {family}", QUADRATIC.get((command, family), "")
                yield Row(work, exponent, "power", 1.0, LARGEST_EXPONENT, reason)


def write(family: str, size: int, folder: Path) -> Path:
    """Write a graph of a family to a file."""
    import cfgraph

    path = folder / f"{family}-{size}.pb"
    cfgraph.save(cfgraph.loads(FAMILIES[family](size).encode(), "graph"), path)
    return path


def run(command: str, path: Path) -> int:
    """Run a command on a file without its output; return its exit status."""
    from cfgraph.cli import command_line as cli

    words = COMMANDS[command].replace("{}", str(path)).split()
    if "--feed" in words and b"\n\x01p" in path.read_bytes():
        words += ["--feed", "p=true"]
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        return cli.run(words)


def least_time(command: str, path: Path) -> float:
    """The CPU seconds of the fastest run of a command; a slow one runs once."""
    seconds = cpu_time(command, path)
    if seconds > LONG_SECONDS:
        return seconds
    return min([seconds, *(cpu_time(command, path) for _ in range(REPEATS))])


def cpu_time(command: str, path: Path) -> float:
    """The CPU seconds of a command, without collection of what earlier ones left."""
    gc.collect()
    began = time.process_time()
    run(command, path)
    return time.process_time() - began
