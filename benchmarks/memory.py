"""Peak memory: of a loop of many iterations, and of commands on a file of large weights."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from benchmarks.measurement import Row
from benchmarks.running import GRAPHS

ITERATIONS = 1_000_000
TINY = 1_000
# a child inherits the peak of its parent, so that ru_maxrss would report the parent's
_REPORT = """
import time
cpu = time.process_time()
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")), cpu)
"""
_RUN = """
import sys
import numpy as np
import cfgraph
session = cfgraph.Session(cfgraph.load(sys.argv[1]))
session.run(["count:0"], {"n:0": np.int32(int(sys.argv[2]))})
"""
COMMAND = """
import contextlib, os, sys
from cfgraph.cli import command_line
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    command_line.run(sys.argv[1:])
"""
WEIGHTS = 64
SIDE = 2048  # of a matrix of 16 MiB
# commands on 1 GiB of weights; {} is the file, {}.out a file to write
COMMANDS = {
    "show": "show {}",
    "check": "check {}",
    "convert": "convert {} -o {}.out.pb",
    "extract": "extract {} --outputs y -o {}.out.pb",
    "lower": "lower {} -o {}.out.pb",
    "partition": "partition {} --devices cpu:0-1 --seed 1 -o {}.out.pb",
    "run": "run {} --fetch y",
}


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Peaks of a short and a long counter loop, and of commands, each in a process of its own."""
    short, long = (10, TINY) if tiny else (1_000, ITERATIONS)
    few, many = _loop(short), _loop(long)
    yield Row(f"peak memory, {short:,} iterations", few, "MiB")
    yield Row(f"peak memory, {long:,} iterations", many, "MiB", few, 1.1)
    yield from _commands(16, ["run"]) if tiny else _commands(SIDE, COMMANDS)


def _loop(iterations: int) -> float:
    return measured(_RUN, str(GRAPHS / "counter.pb"), str(iterations))[0]


def _commands(side: int, names: Iterable[str]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pb"
        write_weights(path, side)
        size = path.stat().st_size >> 20
        for name in names:
            words = COMMANDS[name].replace("{}", str(path)).split()
            peak, seconds = measured(COMMAND, *words)
            limit = f"{size:,} + 200" if name == "run" else "200"
            yield Row(f"{name} of {size:,} MiB of weights, at most {limit}", peak, "MiB")
            yield Row(f"{name} of {size:,} MiB of weights", seconds, "s CPU")


def write_weights(path: Path, side: int) -> None:
    """Write a graph that multiplies a row by one matrix after the other."""
    import numpy as np

    import cfgraph
    from cfgraph.ir import dtypes
    from cfgraph.ir.attrs import TensorValue
    from cfgraph.ir.graph import Graph

    weights = np.random.default_rng(0).standard_normal((side, side), np.float32)
    with open(path, "wb") as file:
        # a message after another is merged with it, so that one matrix at a time is in memory
        for number in range(WEIGHTS):
            graph = Graph()
            value = TensorValue(weights + np.float32(number) if number else weights[:1])
            graph.add("Const", name=f"w{number}", value=value, dtype=dtypes.float32)
            file.write(cfgraph.dumps(graph))
        file.write(_products(side))


def _products(side: int) -> bytes:
    from cfgraph.proto import graph_pb2

    graph = graph_pb2.GraphDef()
    for number in range(1, WEIGHTS):
        node = graph.node.add(op="MatMul", name="y" if number == WEIGHTS - 1 else f"y{number}")
        node.input.extend([f"y{number - 1}" if number > 1 else "w0", f"w{number}"])
        node.attr["T"].type = 1
    return graph.SerializeToString()


def measured(code: str, *arguments: str) -> tuple[float, float]:
    """The peak in MiB and the CPU seconds of a process that runs this code."""
    command = [sys.executable, "-c", code + _REPORT, *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, seconds = completed.stdout.split()
    return int(peak) / 1024, float(seconds)
