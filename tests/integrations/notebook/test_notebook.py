"""Displays in notebooks: bounded, escaped, in a real kernel, and drawn by a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import types
import webbrowser
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.check import CheckReport
from cfgraph.analysis.findings import Finding
from cfgraph.cli.output import OutputTable
from cfgraph.console.html_page import HtmlPage
from cfgraph.integrations.notebook import display as notebook
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.passes.outcome import Report
from cfgraph.reports import Column
from cfgraph.runtime.trace.recording import RunTimeline
from tests.cli.chromium import Chromium, program

HOSTILE = "</iframe><script>alert(1)</script>\"'<img src=x onerror=alert(2)>"
NOTEBOOK = Path(__file__).parents[3] / "docs" / "notebook.ipynb"


def counter(fixtures: Path) -> Graph:
    return cfgraph.load(fixtures / "graphs" / "counter.pb")


class Tags(HTMLParser):
    """Tags and attributes of a display, and the pages in its frames."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[str] = []
        self.pages: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.pages += [value or "" for name, value in attrs if name == "srcdoc"]


@pytest.mark.smallest
def test_a_graph_is_a_page_in_a_frame_without_access_to_the_notebook(fixtures: Path) -> None:
    shown = counter(fixtures)._repr_html_()
    tags = Tags(shown)
    assert tags.names == ["iframe"]
    (page,) = tags.pages
    assert page.startswith("<!doctype html>")
    assert '"name":"while/add"' in page
    (sandbox,) = re.findall(r'sandbox="([^"]*)"', shown)
    assert "allow-same-origin" not in sandbox


def test_a_large_graph_is_a_table_with_its_ops_and_loops() -> None:
    graph = Graph()
    last = graph.add("Placeholder", name="n0", dtype=dtypes.float32)
    for number in range(1, notebook.MAX_NODES + 1):
        last = graph.add("Neg", last, name=f"n{number}")
    shown = graph._repr_html_()
    assert len(shown) < 10_000
    assert "graph.show()" in shown
    assert f"Neg {notebook.MAX_NODES}" in shown


def test_a_graph_that_takes_too_long_or_too_much_is_text(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = counter(fixtures)
    monkeypatch.setattr(notebook, "_MAX_BYTES", 1000)
    assert "iframe" not in graph._repr_html_()
    monkeypatch.setattr(notebook, "_MAX_SECONDS", 0.0)
    shown = graph._repr_html_()
    assert "iframe" not in shown
    assert "15 nodes" in shown


def hostile_displays() -> dict[str, Any]:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32)
    node = graph.add("Neg", x, name="y")
    graph.add("Neg", node, name="z")
    graph.set_attr(node, "_note", HOSTILE)
    del graph.nodes[node.name]
    node.name = HOSTILE
    graph.nodes[HOSTILE] = node
    finding = Finding("CFG201", "error", HOSTILE, HOSTILE, HOSTILE)
    return {
        "graph": graph,
        "node": node,
        "reader": graph["z"],
        "check": CheckReport((finding,)),
        "diff": cfgraph.diff(Graph(), graph),
        "report": Report(1, {}, (HOSTILE,), {HOSTILE: 1}, {HOSTILE: 2}),
    }


@pytest.mark.parametrize("kind", ["graph", "node", "reader", "check", "diff", "report"])
def test_names_of_a_graph_are_text_in_every_display(kind: str) -> None:
    shown = hostile_displays()[kind]._repr_html_()
    tags = Tags(shown)
    assert set(tags.names) <= {"iframe", "div", "span", "table", "tr", "th", "td", "pre"}
    assert set(tags.attributes) <= {"style", "srcdoc", "sandbox", "width", "height"}
    # in a page the model is JSON, which cannot end its element
    for page in tags.pages:
        assert "alert(1)" in page
        assert "<script>alert" not in page
        assert "<img" not in page


def test_every_report_has_a_display(fixtures: Path) -> None:
    graph = counter(fixtures)
    placement = cfgraph.place(graph, devices="cpu:0-1", rules={"while/add": "cpu:1"})
    assert "while/add=cpu:1" in placement._repr_html_()
    partitioning = cfgraph.partition(graph)
    assert "_Send" in partitioning._repr_html_()
    clustering = cfgraph.cluster(cfgraph.load(fixtures / "graphs" / "lstm.pb"))
    assert "cluster_0" in clustering._repr_html_()
    extraction = cfgraph.extract(counter(fixtures), outputs="while/add")
    assert "one iteration of /while/while_context" in extraction._repr_html_()
    lowering = cfgraph.lower(cfgraph.load(fixtures / "graphs" / "while_functional.pb"))
    assert "StatelessWhile" in lowering._repr_html_()
    assert "no change" in cfgraph.lower(counter(fixtures))._repr_html_()
    assert "no findings" in cfgraph.check(counter(fixtures))._repr_html_()
    assert "no differences" in cfgraph.diff(graph, graph)._repr_html_()


def test_the_text_of_a_report_is_that_of_the_command(
    fixtures: Path, command: Any, tmp_path: Path
) -> None:
    path = fixtures / "errors" / "CFG225_read_and_assign_in_no_order.graph"
    printed = command("check", path).out
    lines = str(cfgraph.check(cfgraph.load(path))).splitlines()
    assert lines[0].startswith("warning[CFG225]: ReadVariableOp 'read' and")
    assert {*lines[2:-1]} <= {*printed.splitlines()}
    assert lines[-1] == "1 warning"
    graph = counter(fixtures)
    assert str(cfgraph.check(graph)) == "no findings"
    assert str(cfgraph.diff(graph, graph)) == "no differences"
    assert str(cfgraph.lower(graph)) == "Report  no change"
    extraction = cfgraph.extract(graph, outputs="while/Less/Enter")
    assert str(extraction).splitlines()[-1] == "outputs: while/Less/Enter:0"
    assert repr(extraction).startswith("Extraction(rewrites=")


def test_the_text_of_a_report_has_no_control_characters() -> None:
    finding = Finding("CFG225", "warning", "a \x1b[31m name")
    assert "\x1b" not in str(CheckReport((finding,)))


def test_long_tables_and_texts_are_cut() -> None:
    out = HtmlPage()
    out.table(OutputTable([Column("x")], [(f"row {number}",) for number in range(5000)]))
    for number in range(5000):
        out.line(f"line {number}")
    shown = out.text()
    assert "and 4900 more" in shown
    assert "line 100" in shown
    assert len(shown) < 100_000


def test_a_traced_run_has_a_timeline_with_values(fixtures: Path) -> None:
    session = cfgraph.Session(counter(fixtures))
    with pytest.raises(cfgraph.UsageError, match="no run was traced"):
        session.timeline()
    assert session.run(["count:0"], {"n:0": 3}, trace=True) == [3]
    timeline = session.timeline()
    session.run(["count:0"], {"n:0": 4}, trace=False)
    assert session.timeline() is timeline
    (page,) = Tags(timeline._repr_html_()).pages
    model = json.loads(re.findall(r'<script id="model"[^>]*>(.*?)</script>', page)[0])
    assert model["run"]["results"][0]["text"] == "3"
    assert model["run"]["events"] == timeline.totals.count == len(timeline.events)
    assert model["tab"] == "timeline"
    # values of tensors are not retained
    assert all(event.outputs == () for event in timeline.events)


def test_a_failed_run_has_a_timeline_with_its_error(fixtures: Path) -> None:
    session = cfgraph.Session(counter(fixtures))
    with pytest.raises(cfgraph.ExecutionError):
        session.run(["count:0"], {"n:0": 30}, trace=True, max_iterations=3)
    assert repr(session.timeline()).endswith("failed>")
    (page,) = Tags(session.timeline()._repr_html_()).pages
    assert "started more than 3 iterations" in page


def test_the_timeline_of_a_run_that_is_stopped_has_the_exception(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    session = cfgraph.Session(counter(fixtures))
    monkeypatch.setattr(RunTimeline, "event", stop)
    with pytest.raises(KeyboardInterrupt):
        session.run(["count:0"], {"n:0": 3}, trace=True)
    assert isinstance(session.timeline().error, KeyboardInterrupt)


def test_show_writes_a_page_to_a_path(fixtures: Path, tmp_path: Path) -> None:
    file = tmp_path / "g.html"
    assert counter(fixtures).show(str(file)) == str(file)
    assert file.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("opens", [True, False])
def test_show_opens_a_browser_outside_of_notebooks(
    opens: bool, fixtures: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(notebook.tempfile, "tempdir", str(tmp_path))
    opened: list[str] = []
    browser = types.SimpleNamespace(open=lambda url: opened.append(url) or opens)
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    path = counter(fixtures).show()
    assert path is not None
    assert opened == [Path(path).as_uri()]
    assert Path(path).parent == tmp_path
    assert ("no browser" in capsys.readouterr().err) is not opens


def test_show_starts_no_browser_in_the_terminal(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(notebook.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("false"))
    path = counter(fixtures).show()
    assert f"wrote {path}" in capsys.readouterr().err


def test_displays_cost_nothing_before_the_first(fixtures: Path) -> None:
    script = (
        "import sys, cfgraph; cfgraph.load(sys.argv[1]); "
        "names = ('cfgraph.console', 'IPython', 'webbrowser', 'html'); "
        "print([name for name in names if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, str(fixtures / "graphs" / "counter.pb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook of the documentation after a kernel ran all cells."""
    nbclient = pytest.importorskip("nbclient", reason="the extra `notebook` is not installed")
    pytest.importorskip("ipykernel", reason="the extra `notebook` is not installed")
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("kernel")
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setenv(name, str(folder / name.lower()))
        read = nbformat.read(NOTEBOOK, 4)
        resources = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(read, timeout=120, resources=resources).execute()
    return read


def outputs(executed: Any) -> Iterator[tuple[str, Any]]:
    """The last line of each cell, with its output."""
    for cell in executed.cells:
        if cell.cell_type == "code":
            assert len(cell.outputs) == 1, cell
            yield cell.source.splitlines()[-1], cell.outputs[0]


def test_the_cells_of_the_notebook_have_displays(executed: Any) -> None:
    found = {line: output.get("data", {}) for line, output in outputs(executed)}
    assert len(found) > 12
    texts = [line for line, data in found.items() if "text/html" not in data]
    assert len(texts) == 2, texts  # the values of a run, and the path of a page
    assert all("text/plain" in data for data in found.values())
    frames = [line for line, data in found.items() if "<iframe" in data.get("text/html", "")]
    assert frames == ["graph", "session.timeline()", "before.show()"]
    written = executed.cells[-2]
    assert "gradients.html" in str(written)


@pytest.mark.skipif(program() is None, reason="no Chromium is installed")
def test_a_browser_draws_the_outputs_of_the_notebook(executed: Any, tmp_path: Path) -> None:
    shown = [output.get("data", {}).get("text/html", "") for _, output in outputs(executed)]
    file = tmp_path / "notebook.html"
    body = "\n".join(f"<div class=output>{text}</div>" for text in shown)
    file.write_text(f"<!doctype html><meta charset=utf-8><title>n</title><body>{body}")
    folder = tmp_path / "browser"
    folder.mkdir()
    browser = Chromium(folder, (1000, 6000))
    try:
        browser.open(file, drawn="document.readyState === 'complete'")
        assert browser.requests == [file.as_uri()]
        count = browser.value("window.frames.length")
        assert count == sum("<iframe" in text for text in shown) > 2
        tabs: list[str] = []
        for index in range(count):
            with browser.in_frame(index):
                _wait(browser, "document.body.dataset.ready ?? null")
                assert browser.value("document.querySelectorAll('#canvas .node').length") > 3
                assert browser.value("document.getElementById('problems').hidden")
                # a click opens the details of a node: nothing there needs an address
                browser.value("pick('n0')")
                assert browser.value("document.querySelector('#details h2').textContent")
                assert "parent" not in browser.value(_PARENT_TITLE)
                tabs.append(browser.value("document.body.dataset.tab"))
        assert sorted(tabs) == ["graph", "graph", "graph", "timeline"]
        assert browser.complaints == []
    finally:
        browser.close()


# a page in a sandbox cannot read the notebook
_PARENT_TITLE = (
    "(() => { try { return 'parent ' + window.parent.document.title; }"
    " catch (error) { return error.name; } })()"
)


def _wait(browser: Chromium, expression: str) -> None:
    deadline = time.monotonic() + 60
    while not browser.value(expression):
        assert time.monotonic() < deadline, browser.complaints
        time.sleep(0.05)


def test_the_notebook_is_saved_without_outputs() -> None:
    saved = json.loads(NOTEBOOK.read_text())
    assert all(not cell.get("outputs") for cell in saved["cells"])
