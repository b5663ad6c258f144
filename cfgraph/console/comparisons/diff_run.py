"""Comparison of two graphs by running both: report, case to repeat, and `diff --run`."""

from __future__ import annotations

import hashlib
import io
import shlex
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.summary import sinks
from cfgraph.cli.output import Page, page
from cfgraph.comparison.diff import diff
from cfgraph.comparison.differences import Change, Divergence, RunDiff, ValueMismatch, run_findings
from cfgraph.comparison.equivalence import first_race, has_output
from cfgraph.comparison.sample_point import is_random
from cfgraph.console.comparisons.diff import (
    Comparison,
    DiffOptions,
    DiffResult,
    DiffSummary,
    SourcePair,
    change_reports,
    print_changes,
    print_diff_result,
)
from cfgraph.console.comparisons.run_options import pair_runs
from cfgraph.console.documents import DifferenceReport, DivergenceReport, RunsReport, ValueReport
from cfgraph.console.graph_files import require_single_stdin
from cfgraph.console.values import summary_text, value_report, value_text
from cfgraph.errors import CfgraphError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import first_names
from cfgraph.ir.node import node_name
from cfgraph.ops.opdef.op import is_functional
from cfgraph.runtime.feeds.case_files import case_arrays, write_array
from cfgraph.runtime.feeds.parse_feeds import is_same_array, read_value

MAX_DIFFERENCES: Final = 10
_MAX_LISTED: Final = 4
# of a value that is printed as a feed, and of the name of a case
_MAX_FEED_ELEMENTS: Final = 32
_DIGITS: Final = 12


def print_runs(
    out: Page, delta: RunDiff, graphs: Sequence[Graph], full: bool = False, command: str = ""
) -> None:
    """Print the first diverging node, the differences, and the inputs, or report equality.

    If a `command` repeats the case, it is printed with the options that feed the inputs.
    """
    if delta.lowered:
        out.line(
            "A was lowered before the run: not all of its functions can be called directly",
            "yellow",
        )
        out.line("  mistakes of lowering itself are therefore not detected")
    _print_races(out, delta.races)
    for notice in delta.notices:
        _print_notice(out, notice)
    for name in delta.missing:
        out.line(out.wrapped(f"{name}: missing in B"), "red")
    if not delta:
        out.line(f"no differences: {_agreement_text(delta)}", "green")
        return
    if not delta.gaps and not delta.failure:
        if delta.cases:
            out.line(f"everything else agrees: {_agreement_text(delta)}", "dim")
        return
    if delta.first is not None:
        print_first_divergence(out, delta.first, graphs)
    for gap in delta.gaps if full else delta.gaps[:MAX_DIFFERENCES]:
        _print_difference(out, gap)
    if len(delta.gaps) > MAX_DIFFERENCES and not full:
        out.line(f"and {len(delta.gaps) - MAX_DIFFERENCES} more; --full prints them", "dim")
    if delta.failure is not None:
        out.line(out.wrapped(f"B fails: {delta.failure.message}"), "red")
        if where := delta.failure.where():
            out.line(f"  at {where}")
        for line in (delta.failure.hint or "").splitlines():
            out.line(f"  {line}", "dim")
    if delta.gaps and all(gap.what.startswith("constant ") for gap in delta.gaps):
        out.line(f"everything else agrees: {_agreement_text(delta)}", "dim")
        return
    if delta.first is None and len(graphs) > 1:
        out.line("no earlier node that both graphs contain diverges", "dim")
    words = [*filter(None, (command, case_options(delta, graphs)))]
    link = ("; to run it: " if command else ", with ") if words else ""
    out.line(f"found in case {delta.cases}{link}{' '.join(words)}", "dim")


def _print_races(out: Page, races: Mapping[str, Finding]) -> None:
    if races:
        names = first_names([name.removeprefix("^") for name in races], _MAX_LISTED)
        reason = first_race(races)
        if any(race.code == "CFG225" for race in races.values()):
            reason = f"two runs of A itself may differ: {reason}"
        text = f"not compared: {names}; {reason}"
        out.spans([(out.wrapped(text), "yellow")])


def _print_notice(out: Page, notice: Finding) -> None:
    style = "yellow" if notice.level == "warning" else "dim"
    out.spans([(out.wrapped(f"{notice.level}: {notice.message}"), style)])
    if notice.hint:
        out.line(out.wrapped(f"  hint: {notice.hint}"), "dim")


def _agreement_text(delta: RunDiff) -> str:
    count, without = len(delta.fetches), len(delta.no_value)
    what = f"{count} fetch{'es' * (count != 1)}" if count else "the runs"
    verb = "agrees" if count == 1 else "agree"
    some = f"{without} of them have" if without > 1 else "one of them has"
    exception = f"; {some if count > 1 else 'it has'} no value in either graph" * (without > 0)
    return f"{what} {verb} in {delta.cases} case{'s' * (delta.cases != 1)}{exception}"


def _print_difference(out: Page, gap: ValueMismatch) -> None:
    out.line(out.wrapped(f"{gap.what}: {gap.message}"), "red")
    _print_sides(out, gap.before, gap.after)


def _print_sides(out: Page, before: Any, after: Any) -> None:
    if before is not None or after is not None:
        sides = (f"{name} {run_side_text(value)}" for name, value in (("A", before), ("B", after)))
        out.line(f"  {', '.join(sides)}")


def run_side_text(value: Any) -> str:
    """Format a value that one of the graphs computed."""
    return "no value" if value is None else summary_text(value)


def case_options(delta: RunDiff, graphs: Sequence[Graph]) -> str:
    """Return the options that repeat the case that differs; empty if nothing is fed.

    A case with large values, values of variables, or random ops is written to a file.
    """
    if not delta.variables and not any(map(is_random, graphs)):
        texts = [_feed_text(name, value, graphs) for name, value in delta.inputs.items()]
        if None not in texts:
            return " ".join(f"--feed {shlex.quote(str(text))}" for text in texts)
    try:
        return f"--feeds {shlex.quote(write_case(delta))}"
    except (CfgraphError, OSError) as error:
        return f"inputs that cannot be stored: {error}"


def _feed_text(name: str, value: Any, graphs: Iterable[Graph]) -> str | None:
    """Return a feed that is read back as it is, or None for another value."""
    graph = next((graph for graph in graphs if node_name(name) in graph), None)
    if np.size(value) > _MAX_FEED_ELEMENTS or graph is None:
        return None
    text = " ".join(line.strip() for line in value_text(value, full=True).splitlines())
    try:
        read = read_value(text, graph, graph.tensor(name), name)
    except CfgraphError:
        return None
    return f"{name.removesuffix(':0')}={text}" if is_same_array(read, np.asarray(value)) else None


def write_case(delta: RunDiff) -> str:
    """Write the case into the folder of temporary files; returns its path, named by its content."""
    data = archive_bytes(case_arrays(delta.inputs, delta.variables, delta.seed))
    name = f"cfgraph-case-{hashlib.sha256(data).hexdigest()[:_DIGITS]}.npz"
    path = str(Path(tempfile.gettempdir(), name))
    with StagedFiles() as files:
        files.write(path, data)
    return path


def archive_bytes(arrays: Mapping[str, Any]) -> bytes:
    """An .npz archive, equal for equal arrays: without a date."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _npy_files(arrays):
            file = zipfile.ZipInfo(f"{name}.npy")
            file.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(file, data)
    return stream.getvalue()


def _npy_files(arrays: Mapping[str, Any]) -> Iterable[tuple[str, bytes]]:
    for name, value in arrays.items():
        stream = io.BytesIO()
        write_array(stream, name, value)
        yield name, stream.getvalue()


def print_first_divergence(out: Page, first: Divergence, graphs: Sequence[Graph]) -> None:
    """Print the first diverging node, and how it differs between the graphs."""
    port = "" if first.port is None else f", output {first.port}"
    out.spans(
        [
            ("first diverging node: ", "bold"),
            (f"{first.node} ({first.op}){_divergence_location(first)}", ""),
        ]
    )
    out.line(f"  {first.message}{port}")
    _print_sides(out, first.before, first.after)
    print_changes(out, node_changes(first.node, graphs), "  ")


def _divergence_location(first: Divergence) -> str:
    inside = first.frame != "/"
    return f" in {first.frame}, iteration {first.iteration}" if inside else ""


def node_changes(name: str, graphs: Sequence[Graph]) -> tuple[Change, ...]:
    """Return the structural differences of a node that both graphs contain."""
    changed = diff(*graphs, ignore=["notes", "order", "devices"]).nodes.changed
    return next((item.changes for item in changed if item.before.name == name), ())


def runs_summary(delta: RunDiff) -> DiffSummary:
    """Return the number of fetches, cases, and differences."""
    differ = len(delta.missing) + len(delta.gaps) + (delta.failure is not None)
    return DiffSummary(fetches=len(delta.fetches), cases=delta.cases, differences=differ)


def runs_report(delta: RunDiff, graphs: Sequence[Graph], full: bool = False) -> RunsReport:
    """Return the comparison as a member of a document."""
    return RunsReport.from_attributes(
        delta,
        equal=not delta,
        not_in_b=delta.missing,
        not_compared=list(delta.races),
        warnings=[item.message for item in delta.notices if item.level == "warning"],
        differences=[
            DifferenceReport(gap.what, gap.message, *_side_reports(gap, full)) for gap in delta.gaps
        ],
        failure=None if delta.failure is None else delta.failure.report(),
        first=None if delta.first is None else _divergence_report(delta.first, graphs, full),
        inputs={name: value_report(value, full) for name, value in delta.inputs.items()},
        case=case_options(delta, graphs) if delta.gaps or delta.failure else None,
    )


def _divergence_report(first: Divergence, graphs: Sequence[Graph], full: bool) -> DivergenceReport:
    a, b = _side_reports(first, full)
    changes = change_reports(node_changes(first.node, graphs))
    return DivergenceReport.from_attributes(first, a=a, b=b, changes=changes)


def _side_reports(
    sides: Divergence | ValueMismatch, full: bool
) -> tuple[ValueReport | None, ValueReport | None]:
    before, after = (
        None if value is None else value_report(value, full)
        for value in (sides.before, sides.after)
    )
    return before, after


def compare_by_run(sources: SourcePair, options: DiffOptions) -> int:
    """Compare the values that two graphs compute."""
    for source in sources:
        require_single_stdin(source, options.runs.inputs.feed)
    paired = pair_runs(sources, options.runs)
    graphs, delta = paired.graphs, paired.compare()
    if options.node_data:
        options.node_data.write_runs(sources, delta)
    return print_diff_result(
        sources,
        options,
        Comparison(
            differs=bool(delta),
            findings=run_findings(delta, run_side_text),
            document=lambda: (
                DiffResult(runs=runs_report(delta, graphs, options.full)),
                runs_summary(delta),
            ),
            text=lambda: _print_compared(page(options.color), delta, graphs, options.full),
        ),
    )


def _print_compared(out: Page, delta: RunDiff, graphs: Sequence[Graph], full: bool) -> None:
    """Print the comparison, and a hint if the values of a call are the first that diverge."""
    print_runs(out, delta, graphs, full)
    a, b = graphs
    if delta.missing and any(not has_output(a, tensor.name) for tensor in sinks(b)):
        advice = "--fetch NAME=NAME_B compares tensors that have different names"
        out.line(out.wrapped(f"hint: {advice}"), "dim")
    for graph in graphs:
        node = graph.nodes.get(delta.first.node) if delta.first else None
        for call in (node, *(tensor.node for tensor in node.inputs)) if node else ():
            if is_functional(graph, [call]):
                advice = f"to compare the nodes inside of {call.name}, `cfgraph lower` both graphs"
                out.line(out.wrapped(f"hint: {advice}"), "dim")
                return
