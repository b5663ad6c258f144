"""Shapes of reduced graphs, and logs, of `python -m benchmarks hunt`."""

from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from benchmarks.hunt import graph_shape, logged_end, parse

SUM = "versions producer=1\n{a} = Const() {{dtype=float32, value=float32[]:{value}}}\n"
SUM += "{b} = {op}({a}, {a}) {{T=float32}}\n"


def shape(**parts: object) -> object:
    return graph_shape(cfgraph.loads(SUM.format(**parts).encode()))


def test_the_shape_of_a_graph_has_neither_names_nor_values() -> None:
    first = shape(a="a", b="b", value=1, op="AddV2")
    assert first == shape(a="x", b="y", value=2, op="AddV2")
    assert first != shape(a="a", b="b", value=1, op="Mul")


def test_a_log_is_continued_after_its_last_seed(tmp_path: Path) -> None:
    log = tmp_path / "hunt.jsonl"
    assert logged_end(log) == 0
    log.write_text('{"seed": 3}\n{"seed": 7, "skipped": true}\n')
    assert logged_end(log) == 8


def test_modes_can_be_repeated() -> None:
    words = ["--with", "tensorflow:jit", "--with", "tensorflow:lite"]
    assert parse(words).modes == words[1::2]
    with pytest.raises(SystemExit):
        parse(["--seconds", "soon"])
