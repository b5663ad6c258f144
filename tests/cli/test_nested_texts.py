"""Texts that people write may be nested, and end with a documented status at any depth."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cfgraph.ir.nested_text import MAX_DEPTH, parse_json, parse_toml

GRAPH = "x = Placeholder() {dtype=float32}\nn = Placeholder() {dtype=float32}\ny = Neg(x)\n"
DEPTHS = (pytest.param(200, marks=pytest.mark.slow), 3_000)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "g.graph"
    path.write_text(GRAPH)
    return path


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "value", ["{}", "f32:{}", "f32[2]:uniform({})", "f32[2]:full({})", "f32[2]:uniform(0,{})"]
)
def test_values_of_options(command: Any, graph: Path, depth: int, value: str) -> None:
    for text in (nested(depth), "[" * depth):
        fed = value.replace("{}", text)
        for option in ("--feed", "--expect"):
            feeds = [] if option == "--feed" else ["--feed", "x=1"]
            done = command("run", graph, option, f"x={fed}", *feeds, "--fetch", "y")
            assert done.code == 2, done.err
            assert "x:0" in done.err


@pytest.mark.parametrize("depth", DEPTHS)
def test_files(command: Any, graph: Path, tmp_path: Path, depth: int) -> None:
    deep = nested(depth)
    (tmp_path / "feeds.json").write_text(f'{{"x": {deep}}}')
    (tmp_path / "costs.toml").write_text(f"a = {deep}\n")
    (tmp_path / "deep.toml").write_text("a = " + "{b = " * depth + "1" + "}" * depth + "\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "manifest.json").write_text(f'{{"parts": {deep}}}')
    done = command("run", graph, "--feeds", tmp_path / "feeds.json", "--fetch", "y")
    assert done.code in (2, 3), done.err
    for name in ("costs.toml", "deep.toml"):
        costs = ("--clock", "virtual", "--costs", tmp_path / name)
        assert command("run", graph, "--feed", "x=1", "--fetch", "y", *costs).code == 3
        rules = ("--rules", tmp_path / name, "--devices", "cpu:0")
        assert command("partition", graph, *rules, "-o", tmp_path / "o.pb").code == 3
    assert command("show", tmp_path / "parts").code == 3


@pytest.mark.parametrize("depth", DEPTHS)
def test_other_options_and_pipelines(command: Any, graph: Path, depth: int) -> None:
    deep = nested(depth)
    for option in (["--size", f"x={deep}"], ["--place", deep], ["--memory", deep]):
        assert command("run", graph, "--feed", "x=1", "--fetch", "y", *option).code == 2
    assert command("pipeline", graph, "-p", f"lower,optimize{{only={deep}}}", "-o", "-").code == 2
    assert command("show", graph, "--nodes", "--filter", "not:" * depth + "x").code in (0, 2)


def test_brackets_in_texts_and_comments_do_not_count() -> None:
    many = "[" * 3 * MAX_DEPTH
    assert parse_json(f'{{"a": "{many}", "b\\"{many}": [1]}}')["a"] == many
    for text in (f'a = "{many}"', f"a = '{many}'", f'a = """\n{many}"""', f"a = '''{many}'''"):
        assert parse_toml(text)["a"].endswith(many)
    assert parse_toml(f"# {many}\na = 1") == {"a": 1}


def test_quotes_at_the_end_of_a_text_hide_no_brackets() -> None:
    for quote in ('"', "'"):
        text = f"a = [{3 * quote}b{4 * quote}, {nested(3_000, f'{quote}c{quote}')}]"
        with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} deep"):
            parse_toml(text)
        assert parse_toml(f"a = {3 * quote}b{5 * quote}") == {"a": f"b{2 * quote}"}


def test_the_bound_is_exact_and_wide_texts_are_not_deep() -> None:
    assert parse_json(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 1_000_000):
        for parse in (parse_json, lambda text: parse_toml(f"a = {text}")):
            with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} deep"):
                parse(nested(depth))
    wide = "[" + ",".join(["[1,2]"] * 100_000) + "]"
    start = time.process_time()
    assert len(parse_json(wide)) == 100_000
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (".5", "-0.5"),
        ("1.", "-1.0"),
        ("-.5", "0.5"),
        ("+2", "-2.0"),
        ("1.e1", "-10.0"),
        ("[.1,.2]", "[-0.1, -0.2]"),
        ("[[1.,-.5],[+3,4]]", "[[-1.0, 0.5],"),
        ("f32[2]:full(.5)", "[-0.5, -0.5]"),
        ("f32:.25", "-0.25"),
    ],
)
def test_numbers_are_accepted_as_python_writes_them(
    command: Any, graph: Path, value: str, printed: str
) -> None:
    done = command("run", graph, "--feed", f"x={value}", "--fetch", "y")
    assert done.code == 0, done.err
    assert printed in done.out
