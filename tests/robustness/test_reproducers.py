"""Inputs that made cfgraph fail, hang, or break a promise: a table of what each ends with.

A reproducer ends with an exit status that the help documents, never with that of a bug.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.errors import ExecutionError, InvalidInput, Unsupported
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32
from cfgraph.ir.shapes import Shape
from cfgraph.passes.place.rules import read_rules
from cfgraph.runtime.cost_model import read_costs
from cfgraph.runtime.feeds.parse_feeds import read_npy
from tests.sampled import few_of_each

_BUG = 70
_SECONDS = 20
# file, command line around it, exit status, code of the error
_REPRODUCERS = [
    ("show_hangs", "show {}", 0, None),
    ("count_is_infinite", "check {}", 1, "CFG110"),
    ("count_is_infinite", "show {}", 0, None),
    ("merge_of_nothing", "show {}", 0, None),
    ("merge_of_nothing", "show {} --deadness", 3, "CFG110"),
    ("merge_of_nothing", "explain {} m", 3, "CFG110"),
    ("switch_without_selector", "show {} --deadness", 3, "CFG110"),
    ("forwards_without_input", "show {} --deadness", 3, "CFG110"),
    ("enter_without_input", "show {} --deadness", 3, "CFG110"),
    ("values_241", "show {} --deadness", 3, "CFG110"),
    ("send_without_input", "show {}", 0, None),
    ("explain_values_150", "explain {} x", 3, "CFG107"),
    ("explain_crossing_62", "explain {} map/while/Enter map/elem", 3, "CFG107"),
    ("shape_is_a_type", "show {} --nodes", 0, None),
    ("merge_275", "show {}", 0, None),
    ("class_is_no_list", "explain {} y", 3, "CFG110"),
    ("shared_name_var", "run {} --target Variable", 0, None),
    ("stack_name", "run {} --target StackV2", 0, None),
    ("tensor_array_name", "run {}", 0, None),
    ("variable_v2_name", "run {}", 5, "CFG705"),
    ("variable_name", "run {}", 5, "CFG705"),
    ("place_type_999", "partition {} --devices cpu:0,cpu:1", 0, None),
    ("shape_unpack_93", "partition {} --devices cpu:0,cpu:1", 0, None),
    ("deadness_predicate_of_two", "cluster {} --deadness inputs", 0, None),
    ("grad_constant_2e31", "grad {}", 2, None),
    ("cluster_changes_graph", "cluster {} -o out.pb", 0, None),
    ("cluster_changes_graph", "cluster {} --min-size 1 -o out.pb", 0, None),
    ("lower_changes_graph", "check {}", 1, "CFG201"),
    ("lower_changes_graph", "lower {} -o out.pb", 3, "CFG201"),
    ("pbtxt_loses_unknown_field", "convert {} --to pbtxt --verify -o out.pbtxt", 4, None),
    ("pbtxt_loses_unknown_field", "convert {} --to graph --verify -o out.graph", 0, None),
    ("html_picture_48", "show {} --html out.html", 0, None),
    ("bomb64", "lower {} -o out.pb", 4, "CFG137"),
    ("bomb64", "grad {} --ys y --xs x -o out.pb", 4, "CFG137"),
    ("bomb64", "cluster {} -o out.pb", 4, "CFG137"),
    ("bomb64", "partition {} --devices cpu:0,cpu:1", 4, "CFG137"),
    ("clustered_forever", "run {} --feed x=1 --engine compiled --max-iterations 5", 5, "CFG704"),
    ("clustered_forever", "run {} --feed x=1 --engine compiled --timeout 0.3", 6, "CFG706"),
    ("forever", "run {} --feed x=1 --engine compiled --max-iterations 5", 5, "CFG704"),
    ("jit_regions_hang", "run {} --feed x=1 --engine compiled --max-iterations 5", 5, "CFG704"),
    ("switch_without_predicate", "check {}", 1, "CFG107"),
    ("switch_without_predicate", "show {}", 0, None),
    ("switch_without_predicate", "lower {} -o out.pb", 3, "CFG107"),
    ("feed_of_type_invalid", "run {} --feed x=1", 2, "CFG034"),
    ("enter_without_input_in_loop", "convert {} -o out.py --fetch e1:0 --feed a:0", 3, "CFG107"),
    ("reference_of_itself", "show {}", 0, None),
    ("xla_merge_in_loop", "run {} --feed x=3 --feed p=true --target out", 4, "CFG701"),
    (
        "call_without_outputs",
        "partition {} -o out.pb --devices cpu:0-1 --verify --cases 1",
        0,
        None,
    ),
    ("call_without_outputs", "run {}", 0, None),
    ("unknown_field_of_graph", "convert {} --to pbtxt --verify -o out.pbtxt", 4, None),
    ("splat_4gib", "run {} --max-memory 1GiB", 5, "CFG713"),
]
_CODE = re.compile(r"\b(CFG\d+)\b")


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        message = f"no end after {_SECONDS} s"
        raise AssertionError(message)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return fixtures / "robustness"


def _arguments(folder: Path, name: str, line: str) -> list[str]:
    return [str(folder / f"{name}.pb") if part == "{}" else part for part in shlex.split(line)]


@pytest.mark.parametrize(("name", "line", "status", "code"), _REPRODUCERS)
def test_a_reproducer_ends_as_documented(
    name: str,
    line: str,
    status: int,
    code: str | None,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(_arguments(folder, name, line)) == status, capfd.readouterr().err
    output = "".join(capfd.readouterr())
    assert _CODE.findall(output)[:1] == ([code] if code else [])


def test_the_gradient_of_a_huge_constant_is_unsupported(folder: Path) -> None:
    graph = cfgraph.load(folder / "grad_constant_2e31.pb")
    with pytest.raises(Unsupported, match="2147483648 elements"):
        cfgraph.gradients(graph, ["c:0"], ["c:0"])


@pytest.mark.parametrize("rewrite", [cfgraph.lower, cfgraph.cluster])
def test_a_pass_that_fails_leaves_the_graph_unchanged(
    rewrite: Callable[[cfgraph.Graph], object], fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "while_functional.pb")
    nodes, data = list(graph), cfgraph.dumps(graph)

    def fail(graph: cfgraph.Graph, *_: object) -> None:
        if list(graph) != nodes:
            message = "an invalid result"
            raise InvalidInput(message)

    monkeypatch.setattr("cfgraph.passes.lowering.require_valid_result", fail)
    with pytest.raises(InvalidInput, match="an invalid result"):
        rewrite(graph)
    assert list(graph) == nodes
    assert cfgraph.dumps(graph) == data


def test_an_unknown_op_keeps_its_neighbors_alone_out_of_clusters(folder: Path) -> None:
    graph = cfgraph.load(folder / "cluster_changes_graph.pb")
    report = cfgraph.cluster(graph)
    assert [set(cluster.nodes) for cluster in report.clusters] == [{"a", "b"}]
    assert set(report.outside) == {"x", "u", "c", "d"}


def test_converting_to_pbtxt_says_that_unknown_fields_are_dropped(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = "convert {} --to pbtxt -o out.pbtxt"
    assert cli.run(_arguments(folder, "pbtxt_loses_unknown_field", line)) == 0
    assert "no form for 21 bytes of unknown fields" in capfd.readouterr().err


@pytest.mark.parametrize("format", ["pb", "pbtxt", "graph", "pb.gz", "pbtxt.gz", "graph.gz"])
def test_an_empty_graph_survives_a_file(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"empty.{format}"
    cfgraph.save(cfgraph.Graph(), path)
    assert len(cfgraph.load(path)) == 0
    assert cli.run(["convert", str(path), "-o", f"{path}.pb"]) == 0
    assert len(cfgraph.load(f"{path}.pb")) == 0


@pytest.mark.parametrize("line", ["convert {} --to pb", "lower {}", "grad {} --ys y", "show {}"])
@pytest.mark.parametrize("streams", [("stdout",), ("stdout", "stderr")])
def test_closed_streams_are_no_bug(
    line: str, streams: tuple[str, ...], fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in streams:
        monkeypatch.setattr(sys, stream, None)
    path = str(fixtures / "graphs" / "counter.pb")
    assert cli.run([path if part == "{}" else part for part in line.split()]) in {0, 2}


def test_a_path_with_nul_is_invalid_input() -> None:
    for read in (cfgraph.load, read_npy, read_costs, read_rules):
        with pytest.raises(InvalidInput, match=r"null byte|NUL"):
            read("a\0b.npy")


def test_a_run_without_memory_is_an_execution_error(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(value: object) -> object:
        raise MemoryError

    monkeypatch.setattr("cfgraph.runtime.preparation.executors._caller_copy", fail)
    session = cfgraph.Session(cfgraph.load(fixtures / "graphs" / "counter.pb"))
    with pytest.raises(ExecutionError, match="out of memory"):
        session.run(["n"], {"n": 3})


_FETCH_IN_LITTLE_MEMORY = """
import resource, sys
import cfgraph
session = cfgraph.Session(cfgraph.load(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    session.run(["cond:0"])
except cfgraph.ExecutionError as error:
    print(error)
"""


def test_a_constant_larger_than_memory_is_an_execution_error(folder: Path) -> None:
    path = str(folder / "splat_4gib.pb")
    command = [sys.executable, "-c", _FETCH_IN_LITTLE_MEMORY, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert done.stdout.startswith("out of memory"), done.stderr


# whose values take gigabytes
_HUGE = {"grad_constant_2e31"}
_NAMES = sorted({name for name, *_ in _REPRODUCERS} - _HUGE)
# test_reproducer_limits.py runs `check` and `show --nodes` on the same files
_LINES = [
    "show {}",
    "show {} --deadness",
    "show {} --format dot",
    "show {} --json --frames --devices --functions",
    "show {} --html out.html",
    "lower {} -o out.pb",
    "cluster {} -o out.pb",
    "partition {} --devices cpu:0,cpu:1 -o out.pb",
    "grad {} -o out.pb",
    "convert {} -o out.pbtxt",
    "diff {} {}",
    "run {} --timeout 2 --max-memory 1GiB",
]


# of each line half of the files in a plain run, not always the same
_RUNS = {
    line: [(line, name) for name in (*_NAMES[place % 2 :], *_NAMES[: place % 2])]
    for place, line in enumerate(_LINES)
}


@pytest.mark.parametrize("runs", few_of_each(_RUNS, len(_NAMES) // 2 + 1))
def test_no_command_ends_with_a_bug(
    runs: list[tuple[str, str]], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bugs = [
        (name, capfd.readouterr().err)
        for line, name in runs
        if cli.run(_arguments(folder, name, line)) == _BUG
    ]
    assert not bugs


def test_names_of_different_bytes_are_different_variables() -> None:
    graph = cfgraph.Graph()
    for name, shared, value in (("a", b"\xff", 1.0), ("b", b"\\xff", 2.0)):
        attrs = {"dtype": float32, "shape": Shape([]), "shared_name": shared}
        handle = graph.add("VarHandleOp", name=name, **attrs)
        start = graph.add(
            "Const", name=f"{name}/start", dtype=float32, value=TensorValue(np.float32(value))
        )
        graph.add("AssignVariableOp", handle, start, name=f"{name}/init")
        graph.add("ReadVariableOp", handle, name=f"{name}/read", dtype=float32)
    session = cfgraph.Session(graph)
    session.run(targets=["a/init", "b/init"])
    assert session.run(["a/read:0", "b/read:0"]) == [1.0, 2.0]
