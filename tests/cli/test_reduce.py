"""`cfgraph reduce`: a pair that differs, a failing command, interruptions, and errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.verify.verify import require_valid

CONTAINS = "import sys; sys.exit(3 * (sys.argv[2].encode() in open(sys.argv[1], 'rb').read()))"


@pytest.fixture
def wrong(graphs: Path, tmp_path: Path) -> Path:
    graph = cfgraph.load(graphs / "counter.pb")
    less = graph["while/Less"]
    graph.set_op(less, "LessEqual", dict(less.attrs))
    cfgraph.save(graph, tmp_path / "wrong.pb")
    return tmp_path / "wrong.pb"


def python(*words: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", *words)


def test_a_pair_is_written_and_still_differs(
    command: Any, counter: Path, wrong: Path, tmp_path: Path
) -> None:
    out = tmp_path / "small.pb"
    line = (wrong, "--feed", "n=5", "-o", out, "--json")
    done = command("reduce", "pair", counter, *line)
    assert done.json["summary"]["after"] == 2
    second = tmp_path / "small.b.pb"
    assert [item["path"] for item in done.json["artifacts"]] == [str(out), str(second)]
    assert command("diff", out, second, "--run").code == 1


def test_a_result_replaces_no_input(
    command: Any, graphs: Path, wrong: Path, tmp_path: Path
) -> None:
    counter = tmp_path / "counter.pb"
    counter.write_bytes((graphs / "counter.pb").read_bytes())
    before = counter.read_bytes(), wrong.read_bytes()
    for line in (
        ("pair", counter, wrong, "--feed", "n=5", "-o", counter),
        ("pair", counter, wrong, "--feed", "n=5", "-o", wrong),
        ("pair", counter, wrong, "--feed", "n=5", "-o", "small.pb", "--output-b", wrong),
        ("command", counter, "-o", counter, *python(CONTAINS, "{}", "NextIteration")),
    ):
        done = command("reduce", *line)
        assert done.code == 2
        assert "would replace the original" in done.err
    assert (counter.read_bytes(), wrong.read_bytes()) == before


def test_a_command_fails_for_the_result_alike(command: Any, counter: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.pb"
    line = python(CONTAINS, "{}", "NextIteration")
    done = command("reduce", "command", counter, "-o", out, "--json", *line)
    assert (done.json["result"]["status"], done.json["summary"]["before"]) == (3, 15)
    graph = cfgraph.load(out)
    require_valid(graph)
    assert b"NextIteration" in out.read_bytes()
    assert len(graph) < 8


def test_details_repeat_no_note_per_file(command: Any, counter: Path, tmp_path: Path) -> None:
    line = ("-o", tmp_path / "small.bin", "--verbose", *python(CONTAINS, "{}", "NextIteration"))
    done = command("reduce", "command", counter, *line)
    assert (done.code, "unknown suffix" in done.err) == (0, False)
    assert done.err.count("write ") > 1


def test_the_number_of_jobs_does_not_change_the_result(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    written = []
    for jobs in ("1", "3"):
        out = tmp_path / f"{jobs}.pb"
        line = python("import sys; sys.exit(b'LoopCond' in open(sys.argv[1], 'rb').read())", "{}")
        assert command("reduce", "command", counter, "-o", out, "-j", jobs, *line).code == 0
        written.append(out.read_bytes())
    assert written[0] == written[1]


def test_status_and_output_say_which_candidates_count(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    out = tmp_path / "small.pb"
    text = "import sys; print('has', b'AddV2' in open(sys.argv[1], 'rb').read())"
    line = ("--status", "0", "--match", "^has True$", *python(text, "{}"))
    assert command("reduce", "command", counter, "-o", out, *line).code == 0
    assert "AddV2" in cfgraph.load(out).ops
    done = command("reduce", "command", counter, "-o", out, "--status", "1", *python(text, "{}"))
    assert (done.code, "exits with 0 for the graph, not 1" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no command"),
        (("--", "false"), "does not read a graph"),
        (("--", "true", "{}"), "the command succeeds"),
        (("--", "no-such-program", "{}"), "cannot be run"),
        (("--match", "(", "--", "false", "{}"), "invalid --match"),
        (("--match", "x", "--", "false", "{}"), "does not match"),
        (("--run-timeout", "0.05", "--", "sh", "-c", "sleep 9", "{}"), "does not end"),
    ],
)
def test_what_cannot_be_reduced_is_a_usage_error(
    words: tuple[str, ...], message: str, command: Any, counter: Path, tmp_path: Path
) -> None:
    done = command("reduce", "command", counter, "-o", tmp_path / "o.pb", *words)
    assert (done.code, message in done.err) == (2, True)
    assert not list(tmp_path.iterdir())


def test_graphs_that_agree_are_not_reduced(command: Any, counter: Path, tmp_path: Path) -> None:
    done = command("reduce", "pair", counter, counter, "-o", tmp_path / "o.pb", "--feed", "n=2")
    assert (done.code, "agree" in done.err) == (2, True)
    done = command("reduce", "pair", counter, counter)
    assert (done.code, "-o FILE" in done.err) == (2, True)


@pytest.mark.slow
def test_an_interrupted_reduction_leaves_the_best_graph(counter: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.pb"
    words = [
        sys.executable,
        "-m",
        "cfgraph",
        "reduce",
        "command",
        str(counter),
        "-o",
        str(out),
        "-j",
        "1",
    ]
    # once a smaller graph is written, the command does not end before the interruption
    body = (
        "import os, sys, time; "
        f"time.sleep(300 * (os.path.exists({str(out)!r}) and os.path.getsize({str(out)!r})"
        f" < {counter.stat().st_size})); sys.exit(b'AddV2' in open(sys.argv[1],'rb').read())"
    )
    words += ["--", sys.executable, "-c", body, "{}"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not (out.exists() and len(cfgraph.load(out)) < 15):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, text = process.communicate(timeout=30)
    assert (process.returncode, "best result so far" in text) == (130, True)
    assert "interrupted in reduce" in text
    graph = cfgraph.load(out)
    require_valid(graph)
    assert "AddV2" in graph.ops


def test_a_reduction_needs_one_mode(command: Any, counter: Path, tmp_path: Path) -> None:
    done = command("reduce", "mode", counter, "--report", tmp_path)
    assert done.code == 2
    assert "--with tensorflow:MODE" in done.err
    done = command("reduce", "mode", counter, "--with", "tensorflow", "-o", tmp_path / "small.pb")
    assert done.code == 2
    assert "a graph is reduced in one mode" in done.err


def test_a_graph_in_place_of_a_subcommand_is_a_usage_error(command: Any, counter: Path) -> None:
    done = command("reduce", counter, "-o", "small.pb")
    assert (done.code, "add one of command, mode, pair after" in done.err) == (2, True)
    assert command("reduce").code == 2
    assert "  pair     Reduce two graphs" in command("reduce", "--help").out


def test_a_subcommand_has_a_table_and_variables(
    command: Any, counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cfgraph.toml").write_text("[reduce-pair]\ncases = 0\n")
    done = command("reduce", "pair", counter, counter)
    assert (done.code, "cfgraph.toml, line 2" in done.err) == (2, True)
    Path("cfgraph.toml").unlink()
    monkeypatch.setenv("CFGRAPH_REDUCE_PAIR_CASES", "0")
    done = command("reduce", "pair", counter, counter)
    assert (done.code, "error: $CFGRAPH_REDUCE_PAIR_CASES: 0 is less than 1" in done.err) == (
        2,
        True,
    )
