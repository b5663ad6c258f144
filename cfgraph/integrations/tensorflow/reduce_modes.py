"""The `reduce mode` command: the smallest graph in which a mode is wrong."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from cfgraph.cli.output import is_quiet, note, page
from cfgraph.cli.transform_options import ComparedRuns, OutputOptions
from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.reduce.search import Search
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.console.comparisons.diff_run import print_runs, runs_report
from cfgraph.console.comparisons.reduce import (
    ReducedFiles,
    ReduceResult,
    ReduceSummary,
    print_reduction,
    print_reduction_json,
    require_file,
)
from cfgraph.console.comparisons.run_options import comparison_options
from cfgraph.console.graph_files import read_graph, require_single_stdin
from cfgraph.errors import UsageError
from cfgraph.integrations.tensorflow.diff_modes import ModeOptions
from cfgraph.integrations.tensorflow.mode_oracle import ModeOracle
from cfgraph.integrations.tensorflow.mode_report import ModeFault, simplest_fault, write_report
from cfgraph.integrations.tensorflow.reduce_mode import reduce_mode, start_oracle

_OUTPUT_HINT: Final = "name it with -o FILE, or the folder of a report with --report DIR"


def reduce_in_mode(
    path: str,
    modes: ModeOptions,
    runs: ComparedRuns,
    outputs: OutputOptions,
    report: str | None = None,
) -> int:
    """Reduce a graph that a mode of TensorFlow runs wrongly. Returns the exit code, 0.

    Raises UsageError if the mode agrees.
    """
    if len(modes.modes) > 1:
        message = "a graph is reduced in one mode"
        raise UsageError(message, hint="write --with tensorflow:autojit")
    if report is not None and outputs.output is None:
        outputs = outputs.replace(output=str(Path(report, "graph.pb")))
    output = require_file(outputs, path, hint=_OUTPUT_HINT)
    source = read_graph(path)
    require_single_stdin(source, runs.inputs.feed)
    options = replace(comparison_options(runs, source), locate=False)
    files = ReducedFiles((output,), outputs.to)
    with modes.pool() as pool, files.kept_on_interruption():
        oracle, delta = start_oracle(pool, source.graph, modes.modes[0], modes.against, options)
        if report is not None:
            Path(report).mkdir(parents=True, exist_ok=True)
        search = reduce_mode(oracle, source.graph, delta, files.on_success)
        files.write(search.best)
        final = oracle.reproduced(search.best.graphs[0])
        version = pool.version
        if report is not None and final:
            fault = ModeFault(oracle, search.best.graphs[0], final, version)
            simplest = simplest_fault(fault)
            write_report(simplest, report)
    before = Subject((source.graph,)).nodes
    if not is_quiet():
        print_reduction(before, search.best.nodes, search.tests)
        print_mode_difference(search, oracle, final, version)
        if not final:
            without = ", and no report is written" if report is not None else ""
            note(f"note: the difference of the smallest graph was not reproduced{without}")
        elif report is not None:
            simpler = f", for {simplest.mode.text}" * (simplest.mode != oracle.mode)
            page(stream=sys.stderr).line(f"the report is in {report}{simpler}", "dim")
    summary = ReduceSummary(before, search.best.nodes, search.tests)
    result = ReduceResult(runs=runs_report(final, search.best.graphs * 2))
    print_reduction_json(outputs, [source], files, summary, result)
    return 0


def print_mode_difference(search: Search, oracle: ModeOracle, delta: RunDiff, version: str) -> None:
    """Print how the modes differ in the smallest graph."""
    out = page(stream=sys.stderr)
    reference = oracle.against.text if oracle.against else "cfgraph"
    out.line(f"A: {reference}, B: {oracle.mode.text} {version}", "bold")
    print_runs(out, delta, search.best.graphs * 2)
