"""The `check` command: check graphs and print the findings."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from cfgraph.analysis.check import CheckReport, check, report_load_error
from cfgraph.analysis.findings import LEVELS, Finding, catalog, similar_code_hint
from cfgraph.cli.json_output import InputFile, print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, Page, page, report_table, tab_separated
from cfgraph.cli.transform_options import STDIN
from cfgraph.console.ci_formats import CI_FORMATS, FindingSubject
from cfgraph.console.graph_files import Source, read_graph
from cfgraph.errors import FindingReport, InvalidInput, UsageError
from cfgraph.ir.printable import clean_lines
from cfgraph.reports import Count, DocumentResult, Record

# late imports: few checks name what is fetched

FORMATS: Final = ("text", "json", "tsv", *CI_FORMATS)
MAX_PER_CODE: Final = 10
_UNREADABLE_PREFIX: Final = "CFG0"
_PART_CODE: Final = "CFG434"
_STYLES: Final = {"error": "red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Filters, fail level, and output format of `check`."""

    fail_level: str = "error"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    format: str = "text"
    exit_zero: bool = False
    full: bool = False
    color: Color = Color.auto
    fetches: tuple[str, ...] = ()


@dataclass(slots=True)
class CheckedGraph:
    """One input: its findings, or the reason why it is not a graph."""

    path: str
    report: CheckReport
    source: Source | None = None
    failure: InvalidInput | None = None


def check_graphs(paths: Sequence[str], options: CheckOptions) -> int:
    """Check graphs; returns the exit code: 3 if a graph cannot be read, 1 if there are findings."""
    if options.format not in FORMATS:
        raise UsageError(
            f"unknown format {options.format!r}", hint=f"use one of {', '.join(FORMATS)}"
        )
    if options.fail_level not in LEVELS:
        hint = f"use one of {', '.join(LEVELS)}"
        raise UsageError(f"unknown level {options.fail_level!r}", hint=hint)
    if list(paths).count(STDIN) > 1:
        raise UsageError("standard input can be read only once")
    for pattern in (*options.select, *options.ignore):
        _require_known_code(pattern)
    checked = [_check_graph(path, options) for path in paths]
    code = _exit_code(checked, options)
    if options.format == "json":
        _print_json(checked, code)
        return code
    for item in checked:
        if item.failure is not None:
            _print_input_error(item.failure)
    if options.format in CI_FORMATS:
        subjects = [FindingSubject(item.path, item.report.findings) for item in checked]
        print(CI_FORMATS[options.format]("check", subjects, options.fail_level), end="")
    elif options.format == "tsv":
        print("\n".join(tab_separated(_findings_table(checked))))
    else:
        _print_text(page(options.color), checked, options.full)
    return code


def _require_known_code(pattern: str) -> None:
    """Raise UsageError for a pattern that matches no code: it would hide findings."""
    if not any(fnmatchcase(code, pattern.upper()) for code in catalog()):
        hint = similar_code_hint(pattern) or "write codes as CFG201 or CFG2*"
        raise UsageError(f"unknown code {pattern!r}", hint=hint)


def _check_graph(path: str, options: CheckOptions) -> CheckedGraph:
    try:
        source = read_graph(path, quiet=options.format != "text")
    except InvalidInput as error:
        error.path = error.path or path
        failure = (
            error if (error.code or _UNREADABLE_PREFIX).startswith(_UNREADABLE_PREFIX) else None
        )
        report = report_load_error(error)
        if failure is None:
            report = report.only(options.select, options.ignore)
        return CheckedGraph(path, report, failure=failure)
    names: Mapping[str, str] = {}
    if options.fetches:
        from cfgraph.console.signatures import signature_names

        names = signature_names(source).outputs
    fetches = [names.get(name, name) for name in options.fetches]
    report = check(source.graph, fetches)
    if source.format == "parts":
        report = _of_all_parts(report)
    return CheckedGraph(path, report.only(options.select, options.ignore), source)


def _of_all_parts(report: CheckReport) -> CheckReport:
    """The findings on a folder, which is to contain all parts: a missing one is a warning."""
    findings = (
        replace(item, level="warning") if item.code == _PART_CODE else item
        for item in report.findings
    )
    return CheckReport(tuple(sorted(findings, key=lambda item: LEVELS.index(item.level))))


def _exit_code(checked: Sequence[CheckedGraph], options: CheckOptions) -> int:
    if any(item.failure is not None for item in checked):
        return InvalidInput.exit_code
    if options.exit_zero:
        return 0
    return int(any(item.report.reaches(options.fail_level) for item in checked))


def _print_input_error(error: InvalidInput) -> None:
    code = f"[{error.code}]" if error.code else ""
    print(clean_lines(f"error{code}: {error}"), file=sys.stderr)


def _print_text(out: Page, checked: Sequence[CheckedGraph], full: bool) -> None:
    for item in checked:
        if item.failure is None:
            print_findings(out, item.report, item.path, full=full)


def print_findings(out: Page, report: CheckReport, path: str = "", *, full: bool = False) -> None:
    """Print the first findings of each code, or all, and their number; `path` is the graph's."""
    seen: Counter[str] = Counter()
    for finding in report.findings:
        seen[finding.code] += 1
        if full or seen[finding.code] <= MAX_PER_CODE:
            _print_finding(out, path, finding)
    option = "; --full prints them" if path else ""
    for code, count in seen.items():
        if not full and count > MAX_PER_CODE:
            out.line(f"and {count - MAX_PER_CODE} more of {code}{option}", "dim")
    out.line(": ".join(filter(None, (path, _counts_text(report)))), "" if seen else "green")


def _print_finding(out: Page, path: str, finding: Finding) -> None:
    level = f"{finding.level}[{finding.code}]"
    message = out.wrapped(clean_lines(f"{level}: {finding.message}")).removeprefix(level)
    out.spans([(level, _STYLES[finding.level]), (message, "")])
    where = [path] if path else []
    if finding.node:
        where.append(f"node '{finding.node}'")
    if finding.frame:
        where.append(f"frame '{finding.frame}'")
    if where:
        out.line(f"  at {', '.join(where)}")
    if finding.related:
        out.line(f"  with {', '.join(finding.related)}")
    if finding.hint:
        out.line(f"  hint: {finding.hint}", "green")


def _counts_text(report: CheckReport) -> str:
    counts = [(level, report.count(level)) for level in LEVELS]
    counted = [f"{count} {level}{'s' * (count > 1)}" for level, count in counts if count]
    return ", ".join(counted) or "no findings"


def _findings_table(checked: Sequence[CheckedGraph]) -> OutputTable:
    names = ("where.path", "level", "code", "where.node", "where.frame", "message", "hint")
    return report_table(FindingReport, _findings(checked), *names)


class CheckSummary(Record):
    """The number of findings of each level."""

    error: Count
    warning: Count
    note: Count


class CheckResult(DocumentResult, command="check", summary=CheckSummary):
    """Nothing but the findings of the document."""


def _print_json(checked: Sequence[CheckedGraph], code: int) -> None:
    failures = [item.failure for item in checked if item.failure is not None]
    counts = (sum(item.report.count(level) for item in checked) for level in LEVELS)
    print_document(
        CheckResult(),
        inputs=[InputFile(item.path) if item.source is None else item.source for item in checked],
        summary=CheckSummary(*counts),
        findings=_findings(checked),
        error=failures[0].report() if failures else None,
        exit_code=code,
    )


def _findings(checked: Sequence[CheckedGraph]) -> list[FindingReport]:
    return [finding.report(item.path) for item in checked for finding in item.report.findings]
