"""Files of `show --html`, `show --svg` and `run --html`, and the remaining output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest


def model_of_page(page: Path) -> Any:
    """The model in a page."""
    text = page.read_text()
    start = text.index('<script id="model" type="application/json">')
    return json.loads(text[text.index(">", start) + 1 : text.index("</script>", start)])


@pytest.fixture
def graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `dot` that prints its arguments and its input."""
    program = tmp_path / "bin" / "dot"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "<svg>$@"; cat\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_a_page_is_written_and_stdout_is_left_alone(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    page = tmp_path / "counter.html"
    done = command("show", counter, "--html", page)
    assert (done.code, done.out, done.err) == (0, "", f"wrote {page}\n")
    assert len(model_of_page(page)["nodes"]) == 15


def test_the_document_names_the_page(command: Any, counter: Path, tmp_path: Path) -> None:
    page = tmp_path / "counter.html"
    (entry,) = command("show", counter, "--html", page, "--json").json["artifacts"]
    assert (entry["kind"], entry["path"]) == ("html", str(page))


@pytest.mark.parametrize("options", [["show"], ["run", "--feed", "n=1", "--quiet"]])
def test_a_file_whose_name_is_no_text_has_a_page(
    options: list[str], command: Any, counter: Path, tmp_path: Path
) -> None:
    odd, page = tmp_path / os.fsdecode(b"a\xff.pb"), tmp_path / "page.html"
    odd.write_bytes(counter.read_bytes())
    assert command(*options, odd, "--html", page).code == 0
    assert "<title>a?.pb</title>" in page.read_text()
    assert model_of_page(page)["title"] == "a\udcff.pb"


def test_what_is_requested_next_to_a_page_is_printed(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    done = command("show", counter, "--html", tmp_path / "a.html", "--ops")
    assert done.out == command("show", counter, "--ops").out


def test_a_page_begins_at_the_node_that_is_named(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    page = tmp_path / "counter.html"
    command("show", counter, "--node", "while/add:0", "--html", page)
    assert model_of_page(page)["start"] == "while/add"
    assert len(model_of_page(page)["nodes"]) == 15


def test_a_filter_leaves_nodes_out_of_a_page(command: Any, counter: Path, tmp_path: Path) -> None:
    page = tmp_path / "counter.html"
    command("show", counter, "--filter", "frame:/while*", "--html", page)
    assert len(model_of_page(page)["nodes"]) == 9
    done = command("show", counter, "--filter", "function:*", "--html", page)
    assert done.code == 2


def test_a_page_that_cannot_be_written_is_a_usage_error(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    done = command("show", counter, "--html", tmp_path / "no" / "page.html")
    assert done.code == 2
    assert "the file cannot be written" in done.err


def test_graphviz_draws_the_digraph(
    command: Any, counter: Path, tmp_path: Path, graphviz: Path
) -> None:
    drawing = tmp_path / "counter.svg"
    assert command("show", counter, "--svg", drawing).code == 0
    digraph = command("show", counter, "--format", "dot").out
    assert drawing.read_text() == f"<svg>-Tsvg\n{digraph.rstrip()}"


def test_without_graphviz_there_is_a_hint_and_no_file(
    command: Any, counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    drawing, page = tmp_path / "counter.svg", tmp_path / "counter.html"
    done = command("show", counter, "--svg", drawing, "--html", page)
    assert done.code == 4
    assert "Graphviz is not installed" in done.err
    assert "--html" in done.err
    assert not drawing.exists()
    assert not page.exists()


def test_what_graphviz_says_is_reported(
    command: Any, counter: Path, tmp_path: Path, graphviz: Path
) -> None:
    graphviz.write_text("#!/bin/sh\ncat >/dev/null\necho 'no room' >&2\nexit 1\n")
    done = command("show", counter, "--svg", tmp_path / "counter.svg")
    assert done.code == 5
    assert "no room" in done.err


def test_a_run_is_reported_with_events_totals_and_taps(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    options = ("run", counter, "--feed", "n=3", "--fetch", "count", "--tap", "while/add")
    done = command(*options, "--html", page)
    assert done.code == 0
    assert done.out == command(*options).out
    assert f"wrote {page}" in done.err
    run = model_of_page(page)["run"]
    assert run["devices"] == ["cpu:0"]
    assert len(run["slices"]["start"]) == run["events"]
    assert {len(column) for column in run["slices"].values()} == {run["events"]}
    (tap,) = run["taps"]
    assert [row["numbers"] for row in tap["rows"] if "numbers" in row] == [[1.0], [2.0], [3.0]]
    assert [row["iteration"] for row in tap["rows"]] == [0, 1, 2, 3]
    assert tap["rows"][-1]["dead"]
    assert run["results"] == [
        {"tensor": "count:0", "type": "int32[]", "text": "3", "numbers": [3.0]}
    ]
    merges = next(row for row in run["totals"]["op"] if row[0] == "Merge")
    assert merges[1] == 4


def test_the_graph_of_a_run_is_the_one_that_ran(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    command(
        "run", counter, "--feed", "n=3", "--fetch", "count", "--devices", "cpu:0,gpu:0",
        "--place", "*=cpu:0", "--place", "while/add=gpu:0", "--clock", "virtual", "--html", page,
    )  # fmt: skip
    drawn = model_of_page(page)
    names = {node["name"] for node in drawn["nodes"]}
    run = drawn["run"]
    assert set(run["names"]) <= names
    assert run["clock"] == "virtual"
    assert len(run["devices"]) == 2
    assert any(size for *_, size in run["messages"])
    for send, recv, _ in run["messages"]:
        ends = [run["names"][run["slices"]["node"][end]] for end in (send, recv)]
        ops = [next(n["op"] for n in drawn["nodes"] if n["name"] == end) for end in ends]
        assert ops == ["_Send", "_Recv"]


def test_a_run_that_fails_is_reported_up_to_there(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    done = command(
        "run", counter, "--feed", "n=1000", "--fetch", "count", "--max-iterations", "5",
        "--html", page,
    )  # fmt: skip
    assert done.code == 5
    assert str(page) in done.err
    assert model_of_page(page)["run"]["error"]
    assert model_of_page(page)["run"]["events"] > 20


def test_a_run_that_does_not_begin_leaves_no_page(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    assert command("run", counter, "--fetch", "nothing", "--html", page).code == 2
    assert not page.exists()
    assert not list(tmp_path.iterdir())


def test_the_first_events_of_a_long_run_are_kept(
    command: Any, counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfgraph.console.picture.pages.MAX_EVENTS", 50)
    monkeypatch.setattr("cfgraph.console.picture.pages.MAX_VALUES", 4)
    page = tmp_path / "run.html"
    command("run", counter, "--feed", "n=30", "--fetch", "count", "--tap", "while/add", "-q",
            "--html", page)  # fmt: skip
    run = model_of_page(page)["run"]
    assert len(run["slices"]["start"]) == 50
    assert run["events"] > 250
    (tap,) = run["taps"]
    assert (len(tap["rows"]), tap["seen"]) == (4, 31)


def test_what_makes_pages_is_not_loaded_for_nothing(
    command: Any, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("cfgraph.console.picture")]:
        monkeypatch.delitem(sys.modules, name)
    assert command("show", counter).code == 0
    assert command("run", counter, "--feed", "n=2").code == 0
    assert not [name for name in sys.modules if name.startswith("cfgraph.console.picture")]


def test_a_page_and_a_trace_are_two_files(command: Any, counter: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    done = command("run", counter, "--feed", "n=2", "--html", file, "--trace-out", file)
    assert done.code == 2
    assert "same path" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("page", "trace"),
    [("missing/run.html", "t.json"), ("run.html", "missing/t.json"), (".", "t.json.gz")],
)
def test_a_file_that_cannot_be_written_leaves_no_other(
    page: str, trace: str, command: Any, counter: Path, tmp_path: Path
) -> None:
    files = ("--html", tmp_path / page, "--trace-out", tmp_path / trace)
    assert command("run", counter, "--feed", "n=2", *files).code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [["show", "--svg"], ["show", "--html"], ["run", "--html"]])
def test_a_picture_is_not_written_to_standard_output(
    options: list[str],
    command: Any,
    counter: Path,
    tmp_path: Path,
    graphviz: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, option = options
    done = command(name, counter, *(["--feed", "n=1"] if name == "run" else []), option, "-")
    assert (done.code, done.out) == (2, "")
    assert "./-" in done.err
    assert not (tmp_path / "-").exists()
