"""A short form of the fuzzer, longer ones for the sweep, and the cases that it once failed on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cfgraph.cli import command_line as cli
from cfgraph.proto import graph_pb2
from tests.robustness import minimize
from tests.robustness.cases import Case, fuzz_case
from tests.robustness.schedules import run_unit
from tests.robustness.trial import Finding, run_line

_FIRST, _SHORT = 400, 120
_UNITS = 8
# inputs of the sweep, in all
_LONG = int(os.environ.get("FUZZ_COUNT", "20000"))
_SHARDS = 10
_LINES = json.loads(minimize.LINES.read_text(encoding="utf-8"))


def _run_fuzzer(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.robustness.fuzz", *map(str, arguments)]
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def _assert_no_findings(*arguments: object) -> None:
    done = _run_fuzzer(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_few_mutated_inputs_have_no_findings(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"seed": 0, "start": 0, "stop": _FIRST, "statuses": {}}) + "\n")
    _assert_no_findings("--seed", 0, "--count", _FIRST + _SHORT, "--log", log)
    record = json.loads(log.read_text().splitlines()[1])
    assert (record["start"], record["stop"]) == (_FIRST, _FIRST + _SHORT)
    statuses = {int(status): count for status, count in record["statuses"].items()}
    assert statuses.keys() <= set(range(7))
    # the mutations leave enough that is valid
    assert statuses[0] > _SHORT / 10


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_many_mutated_inputs_have_no_findings(shard: int) -> None:
    _assert_no_findings("--seed", 1000 + shard, "--count", _LONG // _SHARDS)


def test_an_input_depends_on_its_seed_and_number_alone() -> None:
    cases = [fuzz_case(seed, number) for seed in (1, 2) for number in range(40)]
    again = [fuzz_case(seed, number) for seed in (1, 2) for number in range(40)]
    assert cases == again
    assert len({case.files["g.pb"] for case in cases}) > 50
    assert {case.kind for case in cases} == {"structure", "bytes", "text", "options", "files"}


@pytest.mark.parametrize("name", sorted(_LINES))
def test_a_former_finding_ends_as_documented(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        str(path.relative_to(minimize.FUZZED / name)): path.read_bytes()
        for path in sorted((minimize.FUZZED / name).rglob("*"))
        if path.is_file()
    }
    for file, data in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    if name.startswith("endless"):
        monkeypatch.setattr("tests.robustness.trial._TIMEOUT", 0.3)
    status, finding = run_line(_LINES[name], sum(map(len, files.values())))
    assert finding is None, finding
    assert status in range(7)


def test_a_failure_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: list[str]) -> int:
        raise KeyError(args[0])

    def loop(args: list[str]) -> int:
        while True:
            pass

    monkeypatch.setattr("tests.robustness.trial._TIMEOUT", 0.1)
    monkeypatch.setattr("tests.robustness.trial._GRACE_SECONDS", 0.1)
    for action, kind in ((fail, "exception"), (loop, "hang"), (lambda args: 99, "status")):
        monkeypatch.setattr(cli, "run", action)
        finding = run_line(["run", "g.pb"])[1]
        assert finding is not None
        assert finding.kind == kind


def test_a_command_that_takes_too_much_memory_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.robustness.trial._BYTES", 1 << 20)
    monkeypatch.setattr("tests.robustness.trial._MAX_MEMORY", 1 << 20)
    monkeypatch.setattr(cli, "run", lambda args: bytearray(256 << 20).count(1))
    finding = run_line(["check", "g.pb"])[1]
    assert finding is not None
    assert finding.kind == "memory"


def test_a_finding_is_minimized(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(line: list[str], size: int) -> tuple[int, Finding | None]:
        data = Path("g.pb").read_bytes() if Path("g.pb").exists() else b""
        graph = graph_pb2.GraphDef.FromString(data)
        is_bad = any(node.op == "Bad" and "T" in node.attr for node in graph.node)
        return 70, Finding("bug", "here", tuple(line)) if is_bad and "--bad" in line else None

    monkeypatch.setattr(minimize, "run_line", run)
    graph = graph_pb2.GraphDef()
    for number in range(20):
        node = graph.node.add(name=f"n{number}", op="Bad" if number == 13 else "Good")
        node.input.extend(["a", "b"])
        node.attr["T"].type = 1
        node.attr["S"].type = 1
    graph.library.function.add().signature.name = "f"
    files = {"g.pb": graph.SerializeToString(), "other": b"x"}
    case = Case("", "", files, [["show", "--more", "g.pb", "--bad", "--less"]])
    small = minimize.minimized(case, "bug here")
    assert small is not None
    assert small.lines == [["show", "--bad"]]
    node = graph_pb2.GraphDef(node=[{"name": "n13", "op": "Bad"}])
    node.node[0].attr["T"].type = 1
    assert small.files == {"g.pb": minimize.serialized(node)}


def test_schedules_and_placements_give_one_answer_or_a_race_that_check_names() -> None:
    units = [run_unit(0, number) for number in range(_UNITS)]
    assert not [unit for unit in units if not unit.is_explained]
    # some graphs do race
    assert any(unit.answers > 1 for unit in units)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_schedules_and_placements_give_one_answer(seed: int) -> None:
    assert not [n for n in range(40) if not run_unit(seed, n).is_explained]
