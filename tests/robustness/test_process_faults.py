"""Killed writers, full disks, many writers of one file, closed streams, and leaks."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from tests.shell import run, run_line

_SWEEP = pytest.param(40, marks=pytest.mark.slow)
# writes two versions in turn, until it is killed
_WRITER = """
import sys
import cfgraph
small, large = cfgraph.load(sys.argv[1]), cfgraph.load(sys.argv[2])
print("ready", flush=True)
while True:
    cfgraph.save(small, "target.pb")
    cfgraph.save(large, "target.pb")
"""


@pytest.fixture
def graphs(fixtures: Path) -> Path:
    return fixtures / "graphs"


@pytest.mark.parametrize("kills", [3, _SWEEP])
def test_a_killed_writer_leaves_one_version_whole(kills: int, graphs: Path, tmp_path: Path) -> None:
    paths = [str(graphs / name) for name in ("counter.pb", "lstm.pb")]
    versions = [cfgraph.dumps(cfgraph.load(path)) for path in paths]
    rng = random.Random(kills)
    for _ in range(kills):
        command = [sys.executable, "-c", _WRITER, *paths]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            until = time.monotonic() + 30
            while not (tmp_path / "target.pb").exists() and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(rng.random() * 0.05)
            process.kill()
        assert (tmp_path / "target.pb").read_bytes() in versions
    # the next write removes what killed ones have left, once it is a minute old
    for left in tmp_path.glob(".cfgraph-*"):
        os.utime(left, (time.time() - 120,) * 2)
    cfgraph.save(cfgraph.load(paths[0]), tmp_path / "target.pb")
    assert os.listdir(tmp_path) == ["target.pb"]


@pytest.mark.parametrize("writers", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_of_many_writers_one_wins(writers: int, graphs: Path, tmp_path: Path) -> None:
    names = ["counter.pb", "nested.pb", "lstm.pb"]
    versions = [cfgraph.dumps(cfgraph.load(graphs / name)) for name in names]
    line = " & ".join(
        f"cfgraph convert {graphs / names[number % 3]} -o target.pb" for number in range(writers)
    )
    done = run_line(f"{line} & wait", tmp_path)
    assert done.stderr == ""
    assert (tmp_path / "target.pb").read_bytes() in versions
    assert os.listdir(tmp_path) == ["target.pb"]


_OUTPUTS = {
    "convert {} -o out.pb": "out.pb",
    "convert {} -o out.graph": "out.graph",
    "partition {} --devices cpu:0-1 -o parts/": "parts",
    "show {} --html out.html": "out.html",
    "run {} --feed n=3 --trace-out out.json": "out.json",
}


@pytest.mark.parametrize("line", _OUTPUTS)
def test_a_full_disk_is_an_error_that_leaves_nothing(
    line: str, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = line.format(graphs / "counter.pb").split()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        status = cli.run(command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, action)
    assert status in {2, 3}
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "cfgraph show {} >&-",
        "cfgraph show {} >&- 2>&-",
        "cfgraph check {} --json 2>&-",
        "cfgraph convert {} --to pb <&- | cat > /dev/null",
        "cfgraph run {} --feed n=3 2>&-",
        "cfgraph show {} --nonsense 2>&-",
        "cfgraph show {} > /dev/full",
    ],
)
def test_closed_and_full_streams_are_no_bug(line: str, graphs: Path, tmp_path: Path) -> None:
    # a closed stream cannot be passed to a process that forks
    cold = "&-" in line
    done = run(["bash", "-c", line.format(graphs / "counter.pb")], tmp_path, cold=cold)
    assert done.returncode in {0, 2, 3, 141}
    assert "Traceback" not in done.stderr
    assert "bug in cfgraph" not in done.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("run {} --feed n=3 --tap while/add > /dev/full", 3),
        ("convert {} --to pb > /dev/full", 3),
        ("run {} --feed n=3 --trace 2> /dev/full", 0),
        ("run {} --feed m=3 2> /dev/full", 2),
        ("run {} --feed n=3 --expect count=4 2> /dev/full", 1),
        ("run {} --feed m=3 > /dev/full 2>&1", 2),
    ],
)
def test_a_full_disk_changes_no_other_exit_status(
    line: str, code: int, graphs: Path, tmp_path: Path
) -> None:
    done = run(["bash", "-c", f"cfgraph {line.format(graphs / 'counter.pb')}"], tmp_path)
    assert done.returncode == code
    if code == 3:
        reason = "cannot write to standard output: No space left on device"
        assert done.stderr == f"error: {reason}\n"


def test_a_reader_of_both_streams_that_stops_ends_a_command(graphs: Path, tmp_path: Path) -> None:
    line = f"cfgraph grad {graphs / 'lstm.pb'} --ys loss --xs W 2>&1 | head -c 1 > /dev/null"
    done = run(["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], tmp_path)
    assert done.returncode in {0, 141}


@pytest.mark.parametrize("command", ["show {} --nodes", "convert {} --to graph", "run {}"])
def test_a_reader_that_stops_ends_a_command(command: str, graphs: Path, tmp_path: Path) -> None:
    line = f"cfgraph {command.format(graphs / 'lstm_grad.pb')} | head -c 1 > /dev/null"
    done = run(["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], tmp_path)
    assert done.returncode in {0, 2, 141}
    assert "Traceback" not in done.stderr


def _run_sessions(graphs: Path) -> None:
    session = cfgraph.Session(cfgraph.load(graphs / "counter.pb"))
    assert session.run(["count:0"], {"n": 3}) == [3]


def _run_again(graphs: Path) -> None:
    session = cfgraph.Session(cfgraph.load(graphs / "counter.pb"))
    for _ in range(10):
        session.run(["count:0"], {"n": 3})


def _transform(graphs: Path) -> None:
    graph = cfgraph.load(graphs / "while_functional.pb")
    cfgraph.lower(graph)
    cfgraph.place(graph, devices="cpu:0-1", seed=1)
    cfgraph.partition(graph)
    cfgraph.loads(cfgraph.dumps(graph, format="graph"))


def _fail(graphs: Path) -> None:
    for data in (b"\x0a\xff\xff", b"x = NoOp(x)"):
        with pytest.raises(cfgraph.CfgraphError):
            cfgraph.Session(cfgraph.loads(data)).run(targets=["x"])


def _run_commands(graphs: Path) -> None:
    assert cli.run(["check", str(graphs / "counter.pb")]) == 0
    assert (
        cli.run(["run", str(graphs / "counter.pb"), "--feed", "n=2", "--engine", "compiled"]) == 0
    )


class _HeapStatistics(ctypes.Structure):
    """`struct mallinfo2` of glibc, in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",  # in use, in mapped blocks
            "usmblks",
            "fsmblks",
            "uordblks",  # in use, in other blocks
            "fordblks",
            "keepcost",
        )
    ]


def _resources() -> tuple[int, int, int]:
    """Blocks that Python has allocated, bytes that C code has allocated, and open files.

    The resident size would count the free blocks between others: it depends on the earlier tests.
    """
    while gc.collect():
        pass  # values of weak keys are garbage only once their keys are collected
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _HeapStatistics
    heap = library.mallinfo2()
    files = len(os.listdir("/proc/self/fd"))
    return sys.getallocatedblocks(), heap.uordblks + heap.hblkhd, files


@pytest.mark.parametrize(
    ("warm_up", "rounds"),
    [(10, 8), pytest.param(200, 1000, marks=pytest.mark.slow)],
    ids=["short", "long"],
)
@pytest.mark.parametrize(
    "action",
    [_run_sessions, _run_again, _transform, _fail, _run_commands],
    ids=lambda f: f.__name__,
)
def test_memory_and_files_do_not_grow(
    action: Callable[[Path], None], warm_up: int, rounds: int, graphs: Path
) -> None:
    for _ in range(warm_up):
        action(graphs)
    blocks, memory, files = _resources()
    for _ in range(rounds):
        action(graphs)
    blocks_after, memory_after, files_after = _resources()
    assert files_after == files
    # a graph or a session is hundreds of blocks; jax retains three of each computation
    assert blocks_after - blocks < 500 + 5 * rounds
    assert memory_after - memory < 6 << 20
