"""Displays in notebooks: pages of graphs and runs in frames of their own, reports as tables.

A page is in an `iframe` without access to the notebook, whatever a graph names its nodes.
"""

from __future__ import annotations

import html
import io
import sys
import tempfile
import webbrowser
from collections import Counter
from collections.abc import Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any, Final

from cfgraph.analysis.check import CheckReport
from cfgraph.analysis.summary import summarize
from cfgraph.cli.output import OutputTable, Page, note
from cfgraph.comparison.differences import GraphDiff, RunDiff
from cfgraph.console.check import print_findings
from cfgraph.console.comparisons.diff import print_delta
from cfgraph.console.comparisons.diff_run import print_runs
from cfgraph.console.html_page import HtmlPage
from cfgraph.console.picture.model import AttributeFormatter, page_bytes, picture_model
from cfgraph.console.picture.pages import RunRecorder, run_model
from cfgraph.console.transforms.cluster import print_summary as print_clusters
from cfgraph.console.transforms.function_pass import TransformReport
from cfgraph.console.views.node_facts import edge_rows, op_description
from cfgraph.console.views.selection import GraphView, NodeSelection, function_bodies
from cfgraph.console.views.show_tables import frames_table, functions_table
from cfgraph.errors import CfgraphError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph, Node
from cfgraph.limits import limited
from cfgraph.passes.cluster.formation.report import Clustering
from cfgraph.passes.extract import Extraction
from cfgraph.passes.outcome import Report
from cfgraph.passes.partition.partition import Partitioning
from cfgraph.passes.place.place import Placement
from cfgraph.reports import Column
from cfgraph.runtime.trace.recording import RunTimeline

# the picture of a larger graph appears on request only: `graph.show()`
MAX_NODES: Final = 2_000
# bytes of the data of a page, and seconds for it, that a cell spends without a request
_MAX_BYTES: Final = 4_000_000
_MAX_SECONDS: Final = 10.0
_HEIGHT: Final = 520
_MAX_OPS: Final = 40


@singledispatch
def to_html(shown: Any) -> str:
    """The display of an object in a notebook."""
    out = HtmlPage()
    _print(shown, out)
    return out.text()


def to_text(shown: Any) -> str:
    """The text of a report, as the commands print it."""
    stream = io.StringIO()
    _print(shown, Page(stream))
    return stream.getvalue().rstrip("\n")


@singledispatch
def _print(shown: Any, out: Page) -> None:
    raise TypeError(f"no display for {type(shown).__name__}")


@to_html.register
def _(graph: Graph) -> str:
    try:
        with limited(timeout=_MAX_SECONDS):
            bodies = [item.definition.nodes for item in graph.functions.values()]
            size = len(graph) + sum(map(len, bodies))
            page = b"" if size > MAX_NODES else _graph_page(graph)
            if page and len(page) <= _MAX_BYTES:
                return _frame(page)
            return _summary(graph, f"{size} nodes, too many to draw unrequested")
    except CfgraphError as error:
        out = HtmlPage()
        out.heading(repr(graph))
        out.line(error.message, "yellow")
        return out.text()


@to_html.register
def _(timeline: RunTimeline) -> str:
    return _frame(_timeline_page(timeline))


@_print.register
def _(node: Node, out: Page) -> None:
    out.heading(f"{node.name}  {node.op}", op_description(node.op, unknown=""))
    device = [("device", node.device, "")] if node.device else []
    edges = edge_rows(node, lambda item: str(item.dtype or "?"))  # a node does not know its graph
    texts = AttributeFormatter()
    attrs = (("attr", name, texts.text(value)) for name, value in sorted(node.attrs.items()))
    out.facts([*device, *edges, *attrs])


@_print.register
def _(report: CheckReport, out: Page) -> None:
    print_findings(out, report)


@_print.register
def _(delta: GraphDiff, out: Page) -> None:
    print_delta(out, delta, hint="")


@_print.register
def _(delta: RunDiff, out: Page) -> None:
    print_runs(out, delta, delta.graphs)


@_print.register(TransformReport)
def _(report: TransformReport[Any], out: Page) -> None:
    print_delta(out, report.changes, hint="")
    if report.runs is not None:
        print_runs(out, report.runs, report.runs.graphs)


@_print.register
def _(report: Report, out: Page) -> None:
    _print_report(report, out)


@_print.register
def _(report: Placement, out: Page) -> None:
    _print_report(report, out)
    out.line(f"devices: {', '.join(map(short_device_name, report.devices))}")
    _add_counts(out, "reason for the device", Counter(report.decided.values()), "nodes")


@_print.register
def _(report: Partitioning, out: Page) -> None:
    _print_report(report, out)
    out.line(f"devices: {', '.join(map(short_device_name, report.devices))}")
    _add_counts(out, "frame", report.messages, "messages")
    if report.control_loops:
        columns = [Column("control loop", style="cyan"), Column("device")]
        loops = [(path, short_device_name(device)) for path, device in report.control_loops]
        out.table(OutputTable(columns, [*loops]))
    if report.moved:
        columns = [Column("moved node", style="cyan"), Column("from"), Column("to")]
        out.table(
            OutputTable(
                columns,
                [(name, *map(short_device_name, ends)) for name, ends in report.moved.items()],
            )
        )


@_print.register
def _(report: Clustering, out: Page) -> None:
    print_clusters(out, report)
    for warning in report.warnings:
        out.line(f"warning: {warning}", "yellow")


@_print.register
def _(report: Extraction, out: Page) -> None:
    _print_report(report, out)
    if report.frame != "/":
        out.line(f"one iteration of {report.frame}")
    columns = [Column("input", style="cyan"), Column("is now")]
    if report.inputs:
        out.table(OutputTable(columns, [*report.inputs.items()]))
    if report.loops:
        out.line(f"loops kept whole: {', '.join(report.loops)}")
    out.line(f"outputs: {', '.join(report.outputs)}")


def _print_report(report: Report, out: Page) -> None:
    """Print the name of a report, its warnings, and the ops whose number changed."""
    remark = f"{report.rewrites} rewrite{'s' * (report.rewrites != 1)}" if report else "no change"
    out.heading(type(report).__name__, remark)
    for warning in report.warnings:
        out.line(f"warning: {warning}", "yellow")
    changes = report.changes()
    if changes:
        columns = [Column("op"), Column("before", right=True), Column("after", right=True)]
        totals = ("total", sum(report.before.values()), sum(report.after.values()))
        out.table(OutputTable(columns, [*changes, totals]))


def _add_counts(out: Page, title: str, counts: Any, unit: str) -> None:
    if counts:
        rows: list[Sequence[Any]] = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        out.table(OutputTable([Column(title), Column(unit, right=True)], rows))


def _summary(graph: Graph, reason: str) -> str:
    """The display of a graph that is too large for a picture: its ops, loops, and functions."""
    summary = summarize(graph)
    out = HtmlPage()
    out.heading(repr(graph).strip("<>"), f"{reason}; graph.show() draws it")
    ops = sorted(summary.ops.items(), key=lambda item: -item[1])
    shown = [f"{op} {count}" for op, count in ops[:_MAX_OPS]]
    out.items([*shown, *(["…"] if len(ops) > _MAX_OPS else [])])
    if summary.frames:
        out.heading("loops")
        out.table(frames_table(summary.frames))
    if summary.functions:
        out.heading("functions")
        out.table(functions_table(summary.functions))
    return out.text()


def _graph_page(graph: Graph) -> bytes:
    whole = GraphView(graph)
    selection = NodeSelection(whole, list(graph))
    return page_bytes(picture_model("graph", selection, function_bodies(whole)))


def _timeline_page(timeline: RunTimeline) -> bytes:
    recorder = RunRecorder()
    for event in timeline.events:
        recorder.event(event)
    recorder.totals = timeline.totals
    assert timeline.graph is not None
    model = run_model(
        "run",
        recorder,
        timeline.graph,
        timeline.values,
        error=timeline.error,
        is_virtual=timeline.is_virtual,
    )
    return page_bytes({**model, "tab": "timeline"})


def _page(shown: Any) -> bytes:
    return _timeline_page(shown) if isinstance(shown, RunTimeline) else _graph_page(shown)


def _frame(page: bytes) -> str:
    """A page in a frame; `sandbox` without `allow-same-origin` separates it from the notebook."""
    text = html.escape(page.decode())
    style = "border:1px solid #8886;border-radius:4px;background:white"
    return (
        f'<iframe srcdoc="{text}" sandbox="allow-scripts allow-downloads" '
        f'width="100%" height="{_HEIGHT}" style="{style}"></iframe>'
    )


def show(shown: Any, path: str | None) -> str | None:
    """Write a page to `path`, else display it in a notebook, else open it in a browser."""
    if path is None and _is_in_notebook():
        from IPython.display import display

        display({"text/html": _frame(_page(shown)), "text/plain": repr(shown)}, raw=True)
        return None
    if path is None:
        with tempfile.NamedTemporaryFile(prefix="cfgraph-", suffix=".html", delete=False) as file:
            file.write(_page(shown))
        _open(file.name)
        return file.name
    page = _page(shown)
    with StagedFiles() as files:
        files.write(path, page)
    return path


def _is_in_notebook() -> bool:
    """True in a kernel of Jupyter, also that of Colab or VS Code; nothing is imported."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def _open(path: str) -> None:
    """Open a file in a browser with windows; one in the terminal would block the program."""
    try:
        browser: Any = webbrowser.get()
        is_graphical = type(browser) is not webbrowser.GenericBrowser
        opened = is_graphical and browser.open(Path(path).as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        note(f"wrote {path}; no browser opens it")
