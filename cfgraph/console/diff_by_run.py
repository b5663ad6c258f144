"""Compare two graphs from files by running them, and print what differs."""

from __future__ import annotations

from dataclasses import replace

from cfgraph.compare.differences import run_findings
from cfgraph.compare.equivalence import ComparisonRunOptions, compare_runs
from cfgraph.console.diff import Answer, DiffOptions, Sources, print_answer
from cfgraph.console.diff_run import print_runs, run_side_text, runs_json, runs_summary
from cfgraph.console.graphs import require_one_stdin
from cfgraph.console.page import page
from cfgraph.console.run_given import run_options
from cfgraph.console.run_saved import Restoring
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import node_name


def compare_by_run(sources: Sources, options: DiffOptions) -> int:
    """Compare what both compute."""
    for source in sources:
        require_one_stdin(source, options.given.feeds)
    graphs = sources[0].graph, sources[1].graph
    found = compare_runs(*graphs, _options(sources, options))
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


def _options(sources: Sources, options: DiffOptions) -> ComparisonRunOptions:
    """What is asked for; variables that are beside one graph alone are those of both."""
    asked = run_options(options.given, sources[0], options.quiet)
    if options.given.variables is not None:
        return asked
    graph = sources[1].graph
    beside = Restoring(quiet=options.quiet).state(sources[1], _wanted(graph, asked))
    if asked.setting.state is None:
        return replace(asked, setting=replace(asked.setting, state=beside))
    return replace(asked, state_of_b=beside)


def _wanted(graph: Graph, asked: ComparisonRunOptions) -> list[Node] | None:
    """What is run of a graph by name; None for its outputs."""
    names = [*asked.fetches, *asked.targets, *asked.setting.inits]
    nodes = [graph.nodes.get(node_name(name)) for name in names]
    named = asked.fetches or asked.targets
    return [node for node in nodes if node is not None] if named else None
