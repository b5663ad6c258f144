"""Every reproducer ends within its limits of time and memory, whatever command reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures"
# processor seconds of one command, and bytes of address space of the process
_SECONDS = 10
_BYTES = 3 << 30
# bytes that stay resident in a process that reads all files; a run may use more
_RESIDENT_BYTES = 1 << 30

_SCRIPT = """
import contextlib, io, json, os, resource, sys, time
from pathlib import Path
import cfgraph
from cfgraph.cli import command_line as cli

size, lines, *files = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (size, size))
_VALUES = {"bool": True, "string": "a"}

def write_feeds(path):
    try:
        graph = cfgraph.load(path)
    except cfgraph.CfgraphError:
        graph = ()
    feeds = {}
    for node in graph:
        shape, dtype = node.attrs.get("shape"), node.attrs.get("dtype")
        if node.op == "Placeholder" and getattr(shape, "rank", None) == 0:
            feeds[node.name] = _VALUES.get(getattr(dtype, "kind", ""), 1)
    Path("feeds.json").write_text(json.dumps(feeds))

for path in files:
    write_feeds(path)
    for line in lines:
        output, start = io.StringIO(), time.process_time()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = cli.run([path if word == "{}" else word for word in line.split()])
        seconds = time.process_time() - start
        peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
        row = [os.path.basename(path), line, status, seconds, peak, output.getvalue()[-500:]]
        print(json.dumps(row), flush=True)
"""


def run_in_child(lines: list[str], files: list[Path], folder: Path) -> list[list[Any]]:
    """File, line, exit status, seconds, peak memory, and output of all commands on all files."""
    argument = json.dumps([_BYTES, lines, *map(str, files)])
    command = [sys.executable, "-c", _SCRIPT, argument]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=600
    )
    assert done.returncode == 0, (done.stdout[-1000:], done.stderr)
    return [json.loads(row) for row in done.stdout.splitlines()]


def require_within_limits(rows: list[list[Any]], resident: int = _RESIDENT_BYTES) -> None:
    assert rows
    faults = [
        row for row in rows if row[2] not in range(7) or row[3] > _SECONDS or row[4] > resident
    ]
    assert not faults


def graph_files() -> list[Path]:
    folders = (FIXTURES / "robustness", FIXTURES / "hostile")
    return sorted(
        path
        for folder in folders
        for path in folder.iterdir()
        if path.name.removesuffix(".gz").endswith((".pb", ".graph"))
    )


READ = ["check {}", "show {} --nodes", "lower {} -o out.pb", "diff {} {}"]
REWRITE = [
    "show {} --deadness",
    "show {} --html out.html",
    "convert {} -o out.graph",
    "convert {} -o out.pbtxt",
    "partition {} --devices cpu:0,cpu:1 -o out.pb",
    "diff {} {} --by structure",
]
RUN = [
    "run {} --feed @feeds.json --timeout 2",
    "run {} --feed @feeds.json --timeout 2 --engine xla",
    "lower {} --verify -o out.pb --timeout 2",
]
# the largest reproducers against the command that they attack, each with its own file below
_ATTACKED = {"nested_loops_300.pb.gz", "nested_conds_150.pb", "one_merge_400.pb"}


@pytest.mark.parametrize(
    "lines", [READ[:1], pytest.param(READ[1:], marks=pytest.mark.slow)], ids=["show", "rewrite"]
)
def test_every_reproducer_is_read_within_its_limits(lines: list[str], tmp_path: Path) -> None:
    files = graph_files()
    assert len(files) > 40
    require_within_limits(run_in_child(lines, files, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("line", [*REWRITE, "cluster {} -o out.pb", "grad {} -o out.pb"])
def test_every_command_ends_within_its_limits(line: str, tmp_path: Path) -> None:
    require_within_limits(run_in_child([line], graph_files(), tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN)
def test_every_run_ends_within_its_limits(line: str, tmp_path: Path) -> None:
    files = [path for path in graph_files() if path.name not in _ATTACKED]
    require_within_limits(run_in_child([line], files, tmp_path), _BYTES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nested_conds_150.pb", "run {} --feed @feeds.json --engine xla --timeout 10"),
        ("nested_loops_300.pb.gz", "grad {} --ys exit0 --xs x -o out.pb --timeout 10"),
        ("one_merge_400.pb", "grad {} --ys m --xs x -o out.pb --timeout 10"),
    ],
)
def test_a_nest_ends_within_its_timeout(name: str, line: str, tmp_path: Path) -> None:
    rows = run_in_child([line], [FIXTURES / "robustness" / name], tmp_path)
    assert rows[0][2] in range(7), rows
    assert rows[0][3] < 2 * _SECONDS, rows


def test_an_array_of_132_bytes_is_fed(tmp_path: Path) -> None:
    for name in ("nan.pb", "one.npy"):
        shutil.copy(FIXTURES / "robustness" / name, tmp_path / name)
    rows = run_in_child(["run {} --feed x=@one.npy"], [tmp_path / "nan.pb"], tmp_path)
    require_within_limits(rows)
    assert rows[0][2] == 0, rows
    assert rows[0][4] < 256 << 20


def test_text_that_unpacks_to_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    rows = run_in_child(["check {}"], [FIXTURES / "robustness" / "bomb_text.graph.gz"], tmp_path)
    ((_, _, status, seconds, peak, output),) = rows
    assert (status, "CFG002" in output) == (3, True)
    assert seconds < 3
    assert peak < 256 << 20


@pytest.mark.parametrize("line", ["run {}", "lower {} --verify -o out.pb"])
def test_the_printing_reproducer_writes_no_file(line: str, tmp_path: Path) -> None:
    file = FIXTURES / "robustness" / "printv2_file.pb"
    rows = run_in_child([line], [file], tmp_path)
    assert (rows[0][2], "CFG712" in rows[0][5]) == (4, True)
