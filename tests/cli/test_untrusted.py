"""Commands on hostile graphs: no file is touched, and no escape sequence reaches the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.ir.printable import clean, clean_json, clean_layout, clean_lines
from cfgraph.proto import graph_pb2

RUNS = (
    ("run", "GRAPH"),
    ("run", "GRAPH", "--clock", "virtual"),
    ("run", "GRAPH", "--devices", "cpu:0,cpu:1"),
    ("lower", "GRAPH", "--verify", "-o", "out.pb"),
    ("partition", "GRAPH", "--devices", "cpu:0,cpu:1", "--verify", "-o", "out.pb"),
    ("cluster", "GRAPH", "--verify", "-o", "out.pb"),
    ("diff", "GRAPH", "GRAPH", "--run"),
    ("explain", "GRAPH", "p", "--run"),
)
# what the text may contain except printable characters: line breaks, tabs, and styles of cfgraph
STYLE = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", RUNS, ids=" ".join)
def test_no_command_lets_a_graph_write_files(
    command: Any, fixtures: Path, folder: Path, line: tuple[str, ...]
) -> None:
    graph = str(fixtures / "hostile" / "print_to_file.pb")
    done = command(*[graph if word == "GRAPH" else word for word in line])
    assert (done.code, "error[CFG712]" in done.err, "--allow-io" in done.err) == (4, True, True)
    assert os.listdir(folder) == []
    done = command(*[graph if word == "GRAPH" else word for word in line], "--allow-io")
    assert done.code == 0
    assert (folder / "written-by-the-graph").read_text().startswith("* * * * * root owned\n")


def test_gradients_are_checked_without_files(command: Any, folder: Path) -> None:
    Path("g.graph").write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        "s = AsString(x)\n"
        'p = PrintV2(s) {output_stream="file://./written"}\n'
        "y = Square(x, ^p)\n"
    )
    line = ("grad", "g.graph", "--ys", "y", "-o", "out.pb")
    for option in ("--check", "--verify"):
        done = command(*line, option)
        assert (done.code, "error[CFG712]" in done.err) == (4, True), done.err
        assert os.listdir(folder) == ["g.graph"]
        assert command(*line, option, "--allow-io").code == 0
        Path("written").unlink()
        Path("out.pb").unlink()


def test_permission_needs_a_run(command: Any, fixtures: Path, folder: Path) -> None:
    graph = fixtures / "hostile" / "print_to_file.pb"
    for line in (("lower", graph), ("diff", graph, graph), ("grad", graph, "--ys", "y")):
        assert command(*line, "--allow-io").code == 2


def test_a_saved_model_reads_its_own_folder(command: Any, fixtures: Path, tmp_path: Path) -> None:
    saved = Path(shutil.copytree(fixtures / "saved_model", tmp_path / "saved"))
    inside, outside = saved / "more", tmp_path / "outside"
    for target in (inside, outside):
        shutil.copytree(saved / "variables", target)
    first = ("run", saved, "--target", "StatefulPartitionedCall_2", "--feed")
    assert command(*first, f'saver_filename="{inside}/variables"').code == 0
    done = command(*first, f'saver_filename="{outside}/variables"')
    assert (done.code, "error[CFG712]" in done.err) == (4, True)
    named = ("--variables", outside)
    assert command(*first, f'saver_filename="{outside}/variables"', *named).code in (0, 2, 3)


def unsafe(text: str) -> set[str]:
    """The characters that a terminal could act on."""
    categories = ("Cc", "Cf", "Zl", "Zp")
    plain = STYLE.sub("", text)
    return {c for c in plain if c not in "\n\t" and unicodedata.category(c) in categories}


def test_what_a_graph_prints_is_escaped(command: Any, fixtures: Path) -> None:
    graph = fixtures / "hostile" / "escape_sequences.pb"
    done = command("run", graph, "--feed", "x=1", "--fetch", "pr", terminal=True)
    assert (done.code, unsafe(done.err), "\\x1b[2J\\x1b[31mred" in done.err) == (0, set(), True)
    done = command("run", graph, "--target", "as", terminal=True)
    assert (done.code, unsafe(done.err), "assertion failed" in done.err) == (5, set(), True)


NASTY = "\x1b]0;t\x07\x9b31m\u202egnp.\u2028\u200b\U000e0041"


def nasty_graph(suffix: str) -> bytes:
    """A graph with control characters in ops, strings, attributes, devices, and frames."""
    graph = graph_pb2.GraphDef()
    text = graph.node.add(name=f"s{suffix}", op="Const")
    text.attr["dtype"].type = 7
    text.attr["value"].tensor.dtype = 7
    text.attr["value"].tensor.string_val.append(NASTY.encode())
    text.attr["value"].tensor.tensor_shape.SetInParent()
    shown = graph.node.add(name="p", op="PrintV2", input=[f"s{suffix}"])
    shown.attr["end"].s = NASTY.encode()
    odd = graph.node.add(name="odd", op=f"Op{NASTY}", input=[f"s{suffix}", "^p"])
    odd.attr[NASTY].s = NASTY.encode()
    odd.device = f"/device:{NASTY}"
    enter = graph.node.add(name="enter", op="Enter", input=[f"s{suffix}"])
    enter.attr["T"].type = 7
    enter.attr["frame_name"].s = NASTY.encode()
    exit_node = graph.node.add(name="exit", op="Exit", input=["enter"])
    exit_node.attr["T"].type = 7
    return bytes(graph.SerializeToString())


@pytest.mark.parametrize("suffix", ["", NASTY], ids=["texts", "names"])
@pytest.mark.parametrize(
    "line",
    [
        *(("show", *rest) for rest in ((), ("--nodes",), ("--json",), ("--deadness",))),
        *(("show", "--format", kind) for kind in ("dot", "tsv")),
        *(("check", "--format", kind) for kind in ("text", "json", "sarif", "github", "junit")),
        ("convert", "--to", "graph"),
        ("convert", "--to", "pbtxt"),
        ("run", "--target", "p"),
        ("run", "--fetch", "s", "--trace", "--tap", "*"),
        ("run", "--fetch", "s", "--json"),
        ("run", "--fetch", "odd"),
        ("lower", "--json"),
        ("explain", "s"),
        ("cluster", "--explain"),
        ("cluster", "--format", "dot"),
    ],
    ids=" ".join,
)
def test_no_output_has_control_characters(
    command: Any, folder: Path, line: Any, suffix: str
) -> None:
    Path("g.pb").write_bytes(nasty_graph(suffix))
    for terminal in (False, True):
        done = command(line[0], "g.pb", *line[1:], terminal=terminal)
        assert done.code in (0, 1, 2, 3, 4), done.err
        assert (unsafe(done.out), unsafe(done.err)) == (set(), set())


def test_text_protos_keep_escaped_characters(command: Any, folder: Path) -> None:
    Path("g.pb").write_bytes(nasty_graph(""))
    assert command("convert", "g.pb", "-o", "g.pbtxt", "--verify").code == 0
    assert cfgraph.load("g.pbtxt").nodes["odd"].op == f"Op{NASTY}"


def test_every_control_and_format_character_is_escaped() -> None:
    categories = ("Cc", "Cf", "Zl", "Zp")
    code_points = list(map(chr, range(sys.maxunicode + 1)))
    wanted = {c for c in code_points if unicodedata.category(c) in categories}
    assert {c for c in code_points if clean(c) != c} >= wanted
    assert {c for c in code_points if clean(c) != c and c.isprintable()} == set()
    assert clean("a\nb\t\u202e\U000e0001") == "a\\x0ab\\x09\\u202e\\U000e0001"
    assert clean_lines("a\nb\t") == "a\nb\\x09"
    assert clean_layout("a\nb\t\r") == "a\nb\t\\x0d"
    assert clean_json('"\x9b\U000e0001"') == '"\\u009b\\udb40\\udc01"'
