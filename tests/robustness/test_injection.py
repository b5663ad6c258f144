"""Names from a graph stay text in HTML, XML, JSON, dot, and graphs that cfgraph writes."""

from __future__ import annotations

import html.parser
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.proto import graph_pb2

_NAMES = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--",
    "]]><x/>",
    'a" shape=box label="b',
    "a\\",
    "a\\n}\nx = NoOp()",
    "${7*7}`id`",
    "::error file=x::y",
    "=1+1",
]


def _graph(name: str) -> bytes:
    """A loop and an unknown op whose frame, op, device, and attribute have a name."""
    graph = graph_pb2.GraphDef()
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = 1
    enter = graph.node.add(name="enter", op="Enter", input=["x"])
    enter.attr["T"].type = 1
    enter.attr["frame_name"].s = name.encode()
    leave = graph.node.add(name="exit", op="Exit", input=["enter"])
    leave.attr["T"].type = 1
    odd = graph.node.add(name="odd", op=name, input=["exit"], device=name)
    odd.attr[name].s = name.encode()
    return graph.SerializeToString(deterministic=True)


class _Tags(html.parser.HTMLParser):
    """Counts of the tags of a page, and of attributes that are scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags = Counter[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.tags.update(name for name, _ in attrs if name.startswith("on"))


@pytest.fixture(params=_NAMES)
def name(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("g.pb").write_bytes(_graph(request.param))
    Path("plain.pb").write_bytes(_graph("plain"))
    return str(request.param)


def _output(capfd: pytest.CaptureFixture[str], *line: str) -> str:
    capfd.readouterr()
    assert cli.run(line) in {0, 1}
    return capfd.readouterr().out


def test_a_page_has_the_tags_of_any_other_page(name: str) -> None:
    for graph in ("g", "plain"):
        assert cli.run(["show", f"{graph}.pb", "--html", f"{graph}.html"]) == 0
    text = Path("g.html").read_text(encoding="utf-8")
    tags = [_Tags(page).tags for page in (text, Path("plain.html").read_text(encoding="utf-8"))]
    assert tags[0] == tags[1]
    assert "<script>alert" not in text
    assert "<img" not in text


def test_reports_are_well_formed(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(_output(capfd, "show", "g.pb", "--json", "--nodes"))
    assert [node["name"] for node in shown["result"]["nodes"]] == ["x", "enter", "exit", "odd"]
    json.loads(_output(capfd, "check", "g.pb", "--json"))
    json.loads(_output(capfd, "check", "g.pb", "--format", "sarif"))
    ElementTree.fromstring(_output(capfd, "check", "g.pb", "--format", "junit"))
    commands = _output(capfd, "check", "g.pb", "--format", "github").splitlines()
    assert all(re.match(r"::(error|warning|notice) file=g\.pb", line) for line in commands)


def test_dot_has_as_many_statements(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    text, plain = (_output(capfd, "show", file, "--format", "dot") for file in ("g.pb", "plain.pb"))
    quoted = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
    assert quoted.sub("Q", text) == quoted.sub("Q", plain)


def test_text_forms_read_as_the_same_graph(name: str) -> None:
    for form in ("graph", "pbtxt"):
        assert cli.run(["convert", "g.pb", "--to", form, "-o", f"out.{form}"]) == 0
        copy = cfgraph.dumps(cfgraph.load(f"out.{form}"))
        assert copy == cfgraph.dumps(cfgraph.load("g.pb"))
