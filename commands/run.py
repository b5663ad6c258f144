"""Run a graph and print the fetched values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfgraph.cli import options
from cfgraph.cli.run_options import RunOptions

if TYPE_CHECKING:
    from cfgraph.console.ci_formats import CiReport
    from cfgraph.console.picture.pages import RunPage


def main(graph: options.Graph, request: RunOptions) -> None:
    """Run a graph and print the fetched values."""
    from cfgraph.console.run import run

    raise options.Exit(run(graph, request, _page_type(request), _ci_report(request)))


def _page_type(request: RunOptions) -> type[RunPage] | None:
    """The page that --html writes, or None without the option."""
    if request.observers.html is None:
        return None
    from cfgraph.console.picture.pages import RunPage

    return RunPage


def _ci_report(request: RunOptions) -> CiReport | None:
    """The report of --expect in a CI service's format; None for other formats."""
    format = request.printing.ci_format
    if format is None:
        return None
    from cfgraph.console.ci_formats import ci_report
    from cfgraph.errors import UsageError

    report = ci_report("run", format)
    if not request.expected.expect:
        message = f"--format {format} reports comparisons, and nothing is compared"
        raise UsageError(message, hint="add --expect NAME=VALUE, or use --format json")
    return report
