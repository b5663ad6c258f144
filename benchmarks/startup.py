"""Milliseconds until a command ends, compared with the import of its dependencies; the demo."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from benchmarks.measurement import Row, alternating_times
from benchmarks.running import GRAPHS

DEMO = GRAPHS.parents[1] / "docs" / "demo.py"
NODES = 5_000
TINY = 50
# milliseconds of CPU time, with bytecode cached
CPU_BUDGETS = {"run": 300, "show": 250, "check": 250}
# prints the seconds that the first run of its process takes, with the modules that it imports
FIRST_RUN = """
import sys, time
import numpy as np
import cfgraph
session = cfgraph.Session(cfgraph.load(sys.argv[1]), devices="cpu:0-7")
start = time.process_time()
session.run([f"out{number}:0" for number in range(8)], {"n:0": np.int32(10)})
print(time.process_time() - start)
"""


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """`--help` against `import typer`; CPU times with a small graph; the time of the demo."""
    repeats = 1 if tiny else 10
    floor = [sys.executable, "-c", "import typer"]
    helped, typer = alternating_times(_run("--help"), lambda: _call(floor), repeats)
    yield Row("cfgraph --help", helped * 1e3, "ms", (typer or 0) * 1e3, 2)
    counter = str(GRAPHS / "counter.pb")
    for command, budget in list(CPU_BUDGETS.items())[: 1 if tiny else None]:
        seconds = cpu_time(_run(command, counter), repeats)
        yield Row(f"cfgraph {command} counter.pb, at most {budget}", seconds * 1e3, "ms CPU")
    first = [sys.executable, "-c", FIRST_RUN, str(GRAPHS / "eight_devices.pb")]
    seconds = min(float(_call(first)) for _ in range(repeats + 1))
    yield Row("first run of a process, eight devices, at most 25", seconds * 1e3, "ms CPU")
    with tempfile.TemporaryDirectory() as folder:
        count = TINY if tiny else NODES
        path = str(write_saved_model(Path(folder), count))
        for command in (("show", path), ("explain", path, "y"))[: 1 if tiny else None]:
            seconds = cpu_time(_run(*command), repeats)
            work = f"cfgraph {command[0]} of a SavedModel of {count:,} nodes, at most 400"
            yield Row(work, seconds * 1e3, "ms CPU")
    if not tiny:
        yield Row("make demo, at most 10", demo_time(), "s")


def write_saved_model(folder: Path, count: int) -> Path:
    """Write a SavedModel of a chain of nodes that have the shapes of their outputs."""
    import cfgraph
    from benchmarks.families import FAMILIES
    from cfgraph.ir.serde.graph_def import graph_to_proto
    from cfgraph.proto import saved_model_pb2

    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    graph = cfgraph.loads(FAMILIES["chain"](count).encode(), "graph")
    meta.graph_def.CopyFrom(graph_to_proto(graph))
    for node in meta.graph_def.node:
        node.attr["_output_shapes"].list.shape.add().dim.add().size = 1
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


def cpu_time(call: Callable[[], object], repeats: int) -> float:
    """The least seconds of user and system time of a process, once its bytecode is cached."""
    call()
    return min(_child_seconds(call) for _ in range(repeats))


def demo_time() -> float:
    """The seconds that the demo takes after installation."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        _call([sys.executable, str(DEMO), str(Path(folder) / "demo")])
        return time.perf_counter() - start


def _child_seconds(call: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(*arguments: str) -> Callable[[], object]:
    command = [sys.executable, "-m", "cfgraph", *arguments]
    return lambda: _call(command)


def _call(command: list[str]) -> bytes:
    # without a cache, compiling the modules takes longer than everything else
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, capture_output=True, check=True, env=environment).stdout
