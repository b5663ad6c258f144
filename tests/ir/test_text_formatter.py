"""Formatted text has canonical statements, all comments, and the same graph."""

from __future__ import annotations

import base64
import re
from collections import Counter
from pathlib import Path

import pytest

import cfgraph
import cfgraph.ops
from cfgraph.errors import CfgraphError, InvalidInput
from cfgraph.ir.serde.functions import function_to_bytes
from cfgraph.ir.text.formatter import format_text
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph

BEFORE = """


#count up
x=Placeholder( ) {shape=[2 , 3],dtype=float32} # fed


  # own line
c=pair(x, x) {Tout=(float32,float32)}
function pair(z: float32,y:float32) -> (out: float32, p: float32) {
# inside
out = Tanh(z)   # tanh

  return out, y  # both
} # end
"""
AFTER = """\
#count up
x = Placeholder() {dtype=float32, shape=[2,3]}  # fed

# own line
c = pair(x, x) {Tout=(float32, float32)}
function pair(z: float32, y: float32) -> (out: float32, p: float32) {
  # inside
  out = Tanh(z) {T=float32}  # tanh

  return out = out:y:0  # both
  return p = y
}  # end
"""


def test_statements_are_canonical_and_comments_stay() -> None:
    assert format_text(BEFORE.encode()).decode() == AFTER
    assert format_text(AFTER.encode()).decode() == AFTER
    assert format_text(BEFORE.replace("\n", "\r\n").encode()).decode() == AFTER
    assert format_text(b"\xef\xbb\xbf" + BEFORE.encode()).decode() == AFTER


def test_what_convert_writes_is_formatted(fixtures: Path) -> None:
    changed = []
    for file in sorted((fixtures / "graphs").glob("*.pb")):
        text = print_graph(cfgraph.load(file)).encode()
        changed += [file.name] if format_text(text) != text else []
    assert changed == []


def test_no_graph_and_no_comment_of_a_file_changes(fixtures: Path) -> None:
    files = sorted(fixtures.rglob("*.graph"))
    wrong, seen = [], 0
    for file in files:
        data = file.read_bytes()
        try:
            before = print_graph(parse_graph(data))
        except CfgraphError:
            continue
        seen += 1
        formatted = format_text(data)
        same = print_graph(parse_graph(formatted)) == before and format_text(formatted) == formatted
        wrong += [] if same and _comments(formatted) == _comments(data) else [file.name]
    assert (wrong, seen > len(files) / 5) == ([], True)


def _comments(data: bytes) -> Counter[str]:
    return Counter(re.findall(r"#.*?$", data.decode(), flags=re.MULTILINE))


def test_a_function_in_base64_becomes_its_text() -> None:
    data = base64.b64encode(function_to_bytes(parse_graph(AFTER).functions["pair"])).decode()
    raw = f'function pair raw"{data}"  # old\nx = NoOp()\n'
    lines = format_text(raw.encode()).decode().splitlines()
    assert lines[0].endswith("{  # old")
    assert lines[-2:] == ["}", "x = NoOp()"]


@pytest.mark.parametrize("text", ["x = Placeholder(", "# caf\udce9\n"])
def test_a_file_that_is_no_graph_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput):
        format_text(text.encode(errors="surrogateescape"))


def test_a_graph_without_nodes_stays_one() -> None:
    assert format_text(b"versions\n") == format_text(b"versions producer=0\n") == b"versions\n"
    assert format_text(b"# empty\n") == b"# empty\n"
