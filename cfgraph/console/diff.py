"""Compare two graphs from files, node by node unless they are run, and print what differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.analysis.findings import Finding
from cfgraph.compare.diff import IGNORABLE_PARTS, MATCH_MODES, diff
from cfgraph.compare.differences import diff_findings
from cfgraph.console.answer import print_document
from cfgraph.console.ci_formats import CI_FORMATS, Subject
from cfgraph.console.diff_nodes import nodes_summary, print_diff, side_text, to_json
from cfgraph.console.given import Given
from cfgraph.console.graphs import STDIN, Source, read_graph
from cfgraph.console.page import page
from cfgraph.errors import UsageError
from cfgraph.options import Color

FORMATS: Final = ("text", "json", *CI_FORMATS)
Sources = tuple[Source, Source]


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What counts, whether to run both graphs and at which inputs, and how it is printed."""

    by: str = "name"
    ignore: tuple[str, ...] = ()
    run: bool = False
    given: Given = field(default_factory=Given)
    format: str = "text"
    full: bool = False
    quiet: bool = False
    color: Color = Color.auto


Compare = Callable[[Sources, DiffOptions], int]


def diff_files(a: str, b: str, options: DiffOptions, compare: Compare) -> int:
    """Read two graphs and `compare` them; returns the exit code, 1 where they differ.

    Raises UsageError for options that do not fit each other.
    """
    _require_sense(options)
    if a == b == STDIN:
        raise UsageError("standard input can be read once only")
    sources = read_graph(a, quiet=options.quiet), read_graph(b, quiet=options.quiet)
    return compare(sources, options)


def _require_sense(options: DiffOptions) -> None:
    if options.format not in FORMATS:
        raise UsageError(f"unknown format {options.format!r}", hint=f"one of {', '.join(FORMATS)}")
    if options.run and (options.by != MATCH_MODES[0] or options.ignore):
        message = "--by and --ignore are for nodes, which --run does not compare"
        raise UsageError(message, hint=f"--ignore {','.join(IGNORABLE_PARTS)} without --run")
    if options.given.said and not options.run:
        message = "feeds, fetches and other things that concern runs are for --run"
        raise UsageError(message, hint="add --run")


def compare_nodes(sources: Sources, options: DiffOptions) -> int:
    """Compare node by node."""
    found = diff(sources[0].graph, sources[1].graph, by=options.by, ignore=options.ignore)
    return print_answer(
        sources,
        options,
        Answer(
            differs=bool(found),
            findings=diff_findings(found, side_text),
            document=lambda: {
                "summary": nodes_summary(found),
                "result": {"structure": to_json(found), "runs": None},
            },
            text=lambda: print_diff(page(options.color), found, sources, options.full),
        ),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a comparison found: its findings, what a document has of it, how it prints as text."""

    differs: bool
    findings: Sequence[Finding]
    document: Callable[[], dict[str, Any]]
    text: Callable[[], None]


def print_answer(sources: Sources, options: DiffOptions, answer: Answer) -> int:
    """Print in the format that was asked for; returns the exit code.

    For a CI service the second graph is the one that is looked at.
    """
    code = int(answer.differs)
    if options.format in CI_FORMATS:
        subject = Subject(sources[1].path, answer.findings)
        print(CI_FORMATS[options.format]("diff", [subject], "error"), end="")
    elif options.format == "json":
        members = {"inputs": sources, "findings": answer.findings, "exit_code": code}
        print_document("diff", **members, **answer.document())
    else:
        answer.text()
    return code
