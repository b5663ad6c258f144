"""`cfgraph run` on worker processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cfgraph.backends.workers.processes import ProcessTransport
from tests.runtime.partitioned_graphs import counting


@pytest.fixture
def eight(graphs: Path) -> Path:
    return graphs / "eight_devices.pb"


@pytest.fixture
def counting_graph(tmp_path: Path) -> Path:
    path = tmp_path / "counting.graph"
    path.write_text(counting())
    return path


@pytest.mark.smallest
def test_a_loop_runs_on_worker_processes(command: Any, eight: Path) -> None:
    arguments = ["--feed", "n=7", "--fetch", "out0:0", "--fetch", "out7:0"]
    here = command("run", eight, "--devices", "cpu:0-7", *arguments)
    remote = command("run", eight, "--devices", "cpu:0-7", *arguments, "--workers", "2")
    assert (remote.code, remote.out, remote.err) == (0, here.out, here.err)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("compiled", "engine: compiled on 2 workers, one function each: cpu:0; cpu:7\n"),
        ("tokens", "engine: tokens on 2 workers, since the engine is tokens\n"),
    ],
)
def test_the_engine_of_workers_is_explained(
    command: Any, eight: Path, engine: str, text: str
) -> None:
    line = ["run", eight, "--devices", "cpu:0-7", "--feed", "n=2", "--fetch", "out7:0"]
    line += ["--workers", "2", "--engine", engine, "--explain-engine"]
    assert command(*line).err == text


def test_workers_without_nodes_are_explained(command: Any, counter: Path) -> None:
    line = ["run", counter, "--devices", "cpu:0-1", "--place", "*=cpu:0", "--workers", "2"]
    engine = "engine: compiled on 1 of 2 workers, one function each: cpu:0"
    done = command(*line, "--explain-engine")
    assert done.err == f"{engine}; no node is on the other devices\n"
    workers = command(*line, "--explain-engine", "--json").json["result"]["engine"]["workers"]
    assert workers == [["cpu:0"], []]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lost-after", "3"], "--lost-after requires workers"),
        (["--spread", "hosts"], "--spread requires workers"),
        (["--retries", "1"], "--retries requires workers"),
        (["--workers", "2", "--spread", "hosts"], "--spread requires --ray"),
        (["--workers", "2", "--lost-after", "0"], "lost_after=0.0"),
        (["--ray", "local", "--spread", "racks"], "unknown spread 'racks'"),
        (["--workers", "9"], "9 workers need 9 devices"),
        (["--workers", "2", "--clock", "virtual"], "--clock virtual cannot be combined with --w"),
        (["--ray", "local", "--memory", "cpu:0"], "remove --memory or --ray"),
        (["--workers", "2", "--schedule", "random"], "--schedule random cannot be combined"),
        (["--workers", "2", "--engine", "xla"], "--engine xla cannot be combined with --workers"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    command: Any, eight: Path, options: list[str], message: str
) -> None:
    done = command("run", eight, "--devices", "cpu:0-7", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


VARIABLES = """
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"} @"/cpu:0"
one = Const() {dtype=float32, value=float32[]:1} @"/cpu:0"
set_v = AssignVariableOp(v, one) {dtype=float32} @"/cpu:0"
add = AssignAddVariableOp(v, one) {dtype=float32} @"/cpu:0"
read = ReadVariableOp(v, ^add) {dtype=float32} @"/cpu:0"
double = AddV2(read, read) @"/cpu:1"
"""


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["here", "workers"])
def test_variables_are_saved_and_restored(command: Any, tmp_path: Path, workers: list[str]) -> None:
    graph, folder = tmp_path / "v.graph", tmp_path / "saved"
    graph.write_text(VARIABLES)
    options = ["--devices", "cpu:0-1", "--fetch", "double:0", "--save-variables", str(folder)]
    first = command("run", graph, *options, "--init", "set_v", *workers)
    assert (first.code, first.out) == (0, "double:0  float32[]  = 4.0\n")
    second = command("run", graph, *options, "--variables", str(folder), *workers)
    assert (second.code, second.out) == (0, "double:0  float32[]  = 6.0\n")
    failed = command("run", graph, *options, "--variables", str(folder), "--expect", "double:0=0")
    assert failed.code == 1
    third = command("run", graph, *options, "--variables", str(folder))
    assert third.out == "double:0  float32[]  = 8.0\n"


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["here", "workers"])
def test_variables_that_a_run_does_not_need_are_saved_too(
    command: Any, tmp_path: Path, workers: list[str]
) -> None:
    graph, folder = tmp_path / "v.graph", str(tmp_path / "saved")
    graph.write_text(
        VARIABLES
        + """
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"} @"/cpu:1"
set_w = AssignVariableOp(w, one) {dtype=float32} @"/cpu:1"
read_w = ReadVariableOp(w) {dtype=float32} @"/cpu:1"
"""
    )
    options = ["--devices", "cpu:0-1", "--fetch", "double", "--save-variables", folder]
    assert command("run", graph, *options, "--init", "set_v", "--init", "set_w").code == 0
    assert command("run", graph, *options, "--variables", folder, *workers).code == 0
    done = command("run", graph, "--fetch", "read_w", "--variables", folder)
    assert (done.code, done.out) == (0, "read_w:0  float32[]  = 1.0\n")


def test_a_checkpoint_without_variables_is_reported(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    done = command("run", counter, "--save-variables", tmp_path / "none")
    assert (done.code, "warning: the run has no variables" in done.err) == (0, True)


@pytest.fixture
def killed_workers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the sessions whose second worker is killed as it starts its first step."""
    numbers: list[int] = []
    started: list[int] = []
    start = ProcessTransport.start

    def start_and_kill(self: ProcessTransport, *arguments: Any) -> Any:
        handles = start(self, *arguments)
        started.append(1)
        call = handles[1].call

        def call_once(method: str, *values: Any) -> Any:
            if method == "step" and len(started) in numbers:
                handles[1].kill()
            return call(method, *values)

        monkeypatch.setattr(handles[1], "call", call_once)
        return handles

    monkeypatch.setattr(ProcessTransport, "start", start_and_kill)
    return numbers


RUN = ["--devices", "cpu:0-1", "--fetch", "double:0", "--workers", "2"]


@pytest.mark.parametrize(
    ("killed", "code"), [([1], 0), pytest.param([1, 2], 5, marks=pytest.mark.slow)]
)
def test_a_lost_worker_is_replaced_with_the_variables_of_the_checkpoint(
    command: Any, tmp_path: Path, killed_workers: list[int], killed: list[int], code: int
) -> None:
    graph, folder = tmp_path / "v.graph", str(tmp_path / "saved")
    graph.write_text(VARIABLES)
    first = [*RUN[:4], "--init", "set_v", "--save-variables", folder]
    assert command("run", graph, *first).code == 0
    killed_workers += killed
    done = command("run", graph, *RUN, "--variables", folder, "--retries", "1", "--quiet")
    assert done.code == code
    assert "; retry 1 of 1 on new workers, with the variables of the checkpoint\n" in done.err
    assert done.out == ("" if code else "double:0  float32[]  = 6.0\n")
    assert ("CFG720" in done.err) == bool(code)


@pytest.mark.slow
def test_a_run_is_not_repeated_by_itself(
    command: Any, counting_graph: Path, killed_workers: list[int]
) -> None:
    killed_workers.append(1)
    run = [counting_graph, "--feed", "n=3", "--fetch", "out:0", "--workers", "2"]
    done = command("run", *run)
    assert (done.code, done.out) == (5, "")
    done = command("run", *run, "--retries", "2")
    assert (done.code, done.out) == (0, "out:0  int32[]  = 3\n")


def test_a_retry_needs_a_checkpoint_of_the_variables(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "v.graph"
    graph.write_text(VARIABLES)
    done = command("run", graph, *RUN, "--init", "set_v", "--retries", "1")
    assert (done.code, done.out) == (2, "")
    assert "--retries needs a checkpoint: the run has the variable 'v'" in done.err


def test_without_ray_the_command_names_the_extra(
    command: Any, eight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it fails
    options = ["--devices", "cpu:0-7", "--workers", "2", "--ray", "local"]
    done = command("run", eight, *options, "--feed", "n=2", "--fetch", "out0:0")
    assert (done.code, done.out) == (4, "")
    assert "workers on Ray need the package ray" in done.err
    assert "cfgraph-tools[ray]" in done.err
