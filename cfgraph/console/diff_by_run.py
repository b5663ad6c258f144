"""Compare two graphs from files by running them, and print what differs."""

from __future__ import annotations

from cfgraph.compare.findings import run_findings
from cfgraph.compare.runs import compare_runs
from cfgraph.console.diff import Answer, DiffOptions, Sources, print_answer
from cfgraph.console.diff_run import print_runs, run_side_text, runs_json, runs_summary
from cfgraph.console.graphs import require_one_stdin
from cfgraph.console.page import page
from cfgraph.console.run_given import run_options


def compare_by_run(sources: Sources, options: DiffOptions) -> int:
    """Compare what both compute."""
    for source in sources:
        require_one_stdin(source, options.given.feeds)
    graphs = sources[0].graph, sources[1].graph
    found = compare_runs(*graphs, run_options(options.given, graphs[0]))
    return print_answer(
        sources,
        options,
        Answer(
            differs=bool(found),
            findings=run_findings(found, run_side_text),
            document=lambda: {
                "summary": runs_summary(found),
                "result": {"structure": None, "runs": runs_json(found, graphs, options.full)},
            },
            text=lambda: print_runs(page(options.color), found, graphs, options.full),
        ),
    )
