"""`cfgraph convert`: graphs in every format, written atomically."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from tests.ir.wire import wire_message

LINES = {
    "while/add": "count = count + one",
    "while/Merge": "count = count + one",
    "while/Switch": "if not test(less):",
    "Const_1": "zero = np.int32(0)",
    "n": "'n': ('n:0', 'Placeholder() {dtype=int32, shape=[]}'),",
}


def test_explain_names_the_line_of_a_node(command: Any, counter: Path, tmp_path: Path) -> None:
    file = tmp_path / "count.py"
    assert command("convert", counter, "-o", file).code == 0
    lines = file.read_text().splitlines()
    for node, text in LINES.items():
        found = command("explain", counter, node, "--source", file, "--json").json
        source = found["result"]["node"]["source"]
        assert (source["path"], source["text"]) == (str(file), text)
        assert lines[source["line"] - 1].strip().startswith(text)
    assert command("convert", counter, "-o", file, "--fetch", "n").code == 0
    failed = command("explain", counter, "while/add", "--source", file)
    assert (failed.code, failed.data) == (2, b"")
    assert "no line of" in failed.err


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", 2, "the file is of another graph, which has out:0"),
        ("count = Identity(x)\n", 2, "in which count:0 is float32, not int32"),
        ("x = 1\n", 2, "this is no file of `convert --to py`"),
        ("script = Script(1, feeds=2)\n", 2, "this is no file of `convert --to py`"),
        ("x = 1\0\n", 3, "the file is not valid Python"),
        ("x = (\n", 3, "the file is not valid Python"),
    ],
)
def test_explain_rejects_a_file_that_is_not_of_the_graph(
    text: str, code: int, message: str, command: Any, counter: Path, tmp_path: Path
) -> None:
    file, other = tmp_path / "other.py", tmp_path / "other.graph"
    file.write_text(text)
    if not text or "Identity" in text:
        x = "x = Const() {dtype=float32, value=float32[]:1}\n"
        other.write_text(x + (text or "out = Neg(x)\n"))
        assert command("convert", other, "-o", file).code == 0
    failed = command("explain", counter, "while/add", "--source", file)
    assert (failed.code, failed.data) == (code, b"")
    assert message in failed.err
    assert f"at {file}" in failed.err


def test_a_file_of_a_graph_explains_the_lowered_one(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    file, lowered = tmp_path / "while.py", tmp_path / "lowered.pb"
    assert command("convert", graphs / "while_functional.pb", "-o", file).code == 0
    assert command("lower", graphs / "while_functional.pb", "-o", lowered).code == 0
    assert command("explain", lowered, "out", "--source", file).code == 0


def test_a_graph_becomes_a_python_file(command: Any, counter: Path, tmp_path: Path) -> None:
    file = tmp_path / "count.py"
    document = command("convert", counter, "-o", file, "--json").json
    assert [item["kind"] for item in document["artifacts"]] == ["python"]
    assert command("convert", counter, "--to", "py").out == file.read_text()
    named = command("convert", counter, "--to", "py", "--feed", "while/Exit", "--fetch", "count")
    assert "def run(exit):" in named.out or "def run(exit_2):" in named.out
    assert command("convert", counter, "-o", file, "--verify").code == 2
    assert "pb, pbtxt, graph, py" in command("convert", counter, "--to", "onnx").err
    assert command("convert", counter, "--to", "pb", "--fetch", "count").code == 2


FORMATS = {"pb": b"\n", "pbtxt": b"node {", "graph": b"versions "}


@pytest.mark.parametrize("to", FORMATS)
def test_a_graph_goes_to_a_pipe_in_the_format_requested(
    to: str, command: Any, counter: Path
) -> None:
    done = command("convert", counter, "--to", to)
    assert (done.code, done.err) == (0, "")
    assert done.data.startswith(FORMATS[to])
    assert len(cfgraph.loads(done.data)) == 15


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("g.pb", b"\n"),
        ("g.pbtxt", b"node {"),
        ("g.graph", b"versions "),
        ("g", b"\n"),
        ("g.graph.gz", b"\x1f\x8b"),
    ],
)
def test_the_suffix_says_the_format(
    name: str, start: bytes, command: Any, counter: Path, tmp_path: Path
) -> None:
    done = command("convert", counter, "-o", tmp_path / name)
    assert (done.code, done.data) == (0, b"")
    assert (tmp_path / name).read_bytes().startswith(start)
    assert len(cfgraph.load(tmp_path / name)) == 15


def test_the_format_that_is_requested_beats_the_suffix(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    command("convert", counter, "-o", tmp_path / "g.pb", "--to", "graph")
    assert (tmp_path / "g.pb").read_bytes().startswith(b"versions ")


def test_a_chain_of_formats_loses_nothing(command: Any, graphs: Path) -> None:
    for file in sorted(graphs.glob("*.pb")):
        once = command("convert", file).data
        text = command("convert", "-", "--to", "graph", stdin=once).data
        assert command("convert", "-", "--to", "pb", stdin=text).data == once
        proto = command("convert", "-", "--to", "pbtxt", stdin=once).data
        assert command("convert", "-", stdin=gzip.compress(proto)).data == once


def test_the_bytes_do_not_change_from_run_to_run(command: Any, graphs: Path) -> None:
    for to in FORMATS:
        first, second = (command("convert", graphs / "lstm.pb", "--to", to) for _ in range(2))
        assert first.data == second.data


def test_binary_data_does_not_go_to_a_terminal_unasked(command: Any, counter: Path) -> None:
    done = command("convert", counter, terminal=True)
    assert (done.code, done.data) == (2, b"")
    assert "-o FILE" in done.err
    assert command("convert", counter, "-o", "-", terminal=True).code == 0
    assert command("convert", counter, "--to", "graph", terminal=True).code == 0


def test_json_says_what_was_written(command: Any, counter: Path, tmp_path: Path) -> None:
    answer = command("convert", counter, "-o", tmp_path / "g.graph", "--json").json
    assert answer["schema"] == "cfgraph.convert/1"
    (artifact,) = answer["artifacts"]
    assert artifact["path"] == str(tmp_path / "g.graph")
    assert len(artifact["sha256"]) == 64


def test_json_and_the_graph_cannot_share_standard_output(command: Any, counter: Path) -> None:
    done = command("convert", counter, "--json")
    assert done.code == done.json["exit_code"] == 2


@pytest.mark.parametrize("options", [["--to", "onnx"], ["--from", "onnx"]])
def test_an_unknown_format_is_a_usage_error(
    options: list[str], command: Any, counter: Path
) -> None:
    done = command("convert", counter, *options)
    assert done.code == 2
    assert "pb, pbtxt, graph" in done.err


def test_a_format_can_be_forced(command: Any, counter: Path) -> None:
    assert command("convert", counter, "--from", "pb").code == 0
    assert command("convert", counter, "--from", "pbtxt").code == 3


@pytest.mark.parametrize(
    "content", [b"", b"\x0a\xff\xff\xff\xff\x0f", b"no graph {", b"\x1f\x8b\x08"]
)
def test_a_bad_file_leaves_no_output(content: bytes, command: Any, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(content)
    (tmp_path / "out.pb").write_bytes(b"before")
    done = command("convert", tmp_path / "bad", "-o", tmp_path / "out.pb")
    assert done.code == 3
    assert (tmp_path / "out.pb").read_bytes() == b"before"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad", "out.pb"]


def test_a_file_may_be_replaced_by_itself_and_keeps_its_mode(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    path = tmp_path / "g.pb"
    path.write_bytes(counter.read_bytes())
    path.chmod(0o640)
    assert command("convert", path, "-o", path, "--to", "graph").code == 0
    assert path.read_bytes().startswith(b"versions ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(command: Any, counter: Path, tmp_path: Path) -> None:
    (tmp_path / "real.pb").touch()
    (tmp_path / "link.pb").symlink_to("real.pb")
    assert command("convert", counter, "-o", tmp_path / "link.pb").code == 0
    assert (tmp_path / "link.pb").is_symlink()
    assert len(cfgraph.load(tmp_path / "real.pb")) == 15


def test_a_place_that_cannot_be_written_is_a_usage_error(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    for path in (tmp_path / "no" / "such" / "folder.pb", tmp_path):
        done = command("convert", counter, "-o", path)
        assert done.code == 2
        assert "cannot be written" in done.err
        assert str(path) in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_usage_error(command: Any, counter: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = command("convert", counter, "-o", tmp_path / "g.pb")
    tmp_path.chmod(0o700)
    assert done.code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_in_words(command: Any, counter: Path) -> None:
    done = command("convert", counter, "-o", "/dev/full")
    assert done.code == 2
    assert "No space left" in done.err


@pytest.mark.parametrize(("name", "noted"), [("x.foo", True), ("x.txt.gz", True), ("x", False)])
def test_a_suffix_that_names_no_format_is_noted(
    command: Any, counter: Path, tmp_path: Path, name: str, noted: bool
) -> None:
    file = tmp_path / name
    for more in ((), ("--to", "graph"), ("-q",)):
        done = command("convert", counter, "-o", file, *more)
        assert (done.code, "unknown suffix" in done.err) == (0, noted and not more), more


def test_what_wraps_a_graph_is_noted(command: Any, counter: Path, tmp_path: Path) -> None:
    (tmp_path / "g.meta").write_bytes(wire_message((2, counter.read_bytes())))
    done = command("convert", tmp_path / "g.meta", "--to", "graph")
    assert done.code == 0
    assert "MetaGraphDef" in done.err
    assert command("convert", tmp_path / "g.meta", "--to", "graph", "-q").err == ""


def test_a_feed_of_convert_has_no_value(command: Any, counter: Path, tmp_path: Path) -> None:
    done = command("convert", counter, "--feed", "n=3", "-o", tmp_path / "n.py")
    assert (done.code, done.err.splitlines()) == (
        2,
        [
            "error: --feed n=3 has a value, expected a name",
            "  hint: convert with --feed n, and run: python FILE.py --feed n=3",
        ],
    )
    done = command("convert", counter, "--feed", "n=3", "-o", tmp_path / "n.pb")
    assert done.code == 2
    assert "add --to py; `cfgraph run` takes values" in done.err


@pytest.mark.parametrize("name", ["g.onnx", "g.tflite.gz", "g.KERAS"])
def test_a_suffix_of_another_program_is_a_usage_error(
    name: str, command: Any, counter: Path, tmp_path: Path
) -> None:
    done = command("convert", counter, "-o", tmp_path / name)
    assert (done.code, [*tmp_path.iterdir()]) == (2, [])
    assert "is not a format of graphs" in done.err
    assert f"hint: write {tmp_path}/g.pb, and convert that" in done.err
