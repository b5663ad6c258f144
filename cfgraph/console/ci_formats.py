"""Findings in CI formats: GitHub workflow commands, SARIF 2.1.0, JUnit XML, Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

from cfgraph.analysis.findings import LEVELS, Finding, catalog
from cfgraph.cli.json_output import render_json
from cfgraph.errors import UsageError
from cfgraph.ir.printable import clean_lines, clean_markdown
from cfgraph.version import __version__

_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB_LEVELS: Final = {"error": "error", "warning": "warning", "note": "notice"}
# a summary in Markdown has at most 1 MiB on GitHub; the other formats have all findings
_MAX_ROWS: Final = 50
# characters that XML does not allow, not even escaped
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class FindingSubject:
    """The findings on one file or pair of files, and the names of checks that passed."""

    path: str
    findings: Sequence[Finding]
    passed: Sequence[str] = ()


def github(command: str, subjects: Iterable[FindingSubject], fail_level: str) -> str:
    """Format one GitHub workflow command per finding, shown next to the file."""
    lines = [
        f"::{_GITHUB_LEVELS[item.level]} file={_escape_property(subject.path)},"
        f"title={_escape_property(title)}"
        f"::{_escape_data(_full_message(item))}"
        for subject in subjects
        for item in subject.findings
        for title in (item.code or command,)
    ]
    return "".join(f"{line}\n" for line in lines)


def _full_message(item: Finding) -> str:
    """Return the message with location and hint."""
    where = [f"node '{item.node}'"] if item.node else []
    where += [f"frame '{item.frame}'"] if item.frame else []
    at = f" (at {', '.join(where)})" if where else ""
    return f"{item.message}{at}" + (f"\nhint: {item.hint}" if item.hint else "")


def _escape_data(text: str) -> str:
    return clean_lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(command: str, subjects: Iterable[FindingSubject], fail_level: str) -> str:
    """Format one SARIF run with the rules of all reported codes."""
    pairs = [(subject.path, item) for subject in subjects for item in subject.findings]
    codes = sorted({item.code for _, item in pairs if item.code})
    results = [_sarif_result(path, item, codes) for path, item in pairs]
    driver = {
        "name": "cfgraph",
        "version": __version__,
        "rules": [_sarif_rule(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"cfgraph/{command}"},
        "results": results,
    }
    return render_json({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _sarif_rule(code: str) -> dict[str, Any]:
    entry = catalog().get(code)
    if entry is None:
        return {"id": code}
    return {
        "id": code,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.explanation},
        "help": {"text": entry.fix},
        "helpUri": entry.page,
        "defaultConfiguration": {"level": entry.level},
    }


def _sarif_result(path: str, item: Finding, codes: Sequence[str]) -> dict[str, Any]:
    location: dict[str, Any] = {
        # graphs have no lines, but GitHub shows only results that have one
        "physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": {"startLine": 1}}
    }
    if item.node:
        name = f"{item.frame}:{item.node}" if item.frame else item.node
        logical = {"name": item.node, "fullyQualifiedName": name, "kind": "member"}
        location["logicalLocations"] = [logical]
    text = item.message + (f"\nhint: {item.hint}" if item.hint else "")
    rule = {"ruleId": item.code, "ruleIndex": codes.index(item.code)} if item.code else {}
    return {**rule, "level": item.level, "message": {"text": text}, "locations": [location]}


def _uri(path: str) -> str:
    return quote(path.replace("\\", "/"), errors="surrogateescape")


def junit(command: str, subjects: Iterable[FindingSubject], fail_level: str) -> str:
    """Format one suite per file and one test case per finding.

    A case fails if its level is at least `fail_level`; a file without findings has one passing
    case.
    """
    bad = LEVELS[: LEVELS.index(fail_level) + 1]
    top = ElementTree.Element("testsuites", {"name": f"cfgraph {command}"})
    for subject in subjects:
        _add_suite(top, command, subject, bad)
    cases = top.findall("testsuite/testcase")
    _set_counts(top, cases)
    ElementTree.indent(top)
    text = ElementTree.tostring(top, "unicode", short_empty_elements=True)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_suite(top: Any, command: str, subject: FindingSubject, bad: Sequence[str]) -> None:
    path = _xml_text(subject.path)
    suite = ElementTree.SubElement(top, "testsuite", {"name": path})
    for name, item in _junit_cases(command, subject):
        case = ElementTree.SubElement(
            suite, "testcase", {"name": _xml_text(name), "classname": path}
        )
        if item is None:
            continue
        if item.level in bad:
            attributes = {"type": item.code or item.level, "message": _xml_text(item.message)}
            ElementTree.SubElement(case, "failure", attributes).text = _xml_text(
                _full_message(item)
            )
        else:
            output = ElementTree.SubElement(case, "system-out")
            output.text = _xml_text(f"{item.level}: {_full_message(item)}")
    _set_counts(suite, suite.findall("testcase"))


def _junit_cases(command: str, subject: FindingSubject) -> Iterator[tuple[str, Finding | None]]:
    if not subject.findings and not subject.passed:
        yield command, None
    for name in subject.passed:
        yield name, None
    for item in subject.findings:
        yield " ".join(word for word in (item.code, item.node) if word) or command, item


def _set_counts(element: Any, cases: Sequence[Any]) -> None:
    failures = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": len(cases), "failures": failures, "errors": 0, "skipped": 0}
    for key, count in counts.items():
        element.set(key, str(count))


def _xml_text(text: str) -> str:
    return clean_lines(_NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def markdown(command: str, subjects: Iterable[FindingSubject], fail_level: str) -> str:
    """Format one table of findings per file, for the summary of a job or a comment."""
    return "\n".join(_markdown_table(command, subject) for subject in subjects)


def _markdown_table(command: str, subject: FindingSubject) -> str:
    counts = [(sum(item.level == level for item in subject.findings), level) for level in LEVELS]
    words = [f"{count} {level}{'s' * (count > 1)}" for count, level in counts if count]
    if command == "diff" and all(item.level == "note" for item in subject.findings):
        words.insert(0, "no differences")
    lines = [f"**{clean_markdown(subject.path)}**: {', '.join(words) or 'no findings'}"]
    if subject.findings:
        lines += ["", "| level | code | finding |", "| --- | --- | --- |"]
    for item in subject.findings[:_MAX_ROWS]:
        entry = catalog().get(item.code or "")
        code = f"[{item.code}]({entry.page})" if entry else item.code or ""
        lines.append(f"| {item.level} | {code} | {clean_markdown(_full_message(item))} |")
    if (more := len(subject.findings) - _MAX_ROWS) > 0:
        lines += ["", f"and {more} more"]
    return "".join(f"{line}\n" for line in lines)


CI_FORMATS: Final[dict[str, Callable[[str, Iterable[FindingSubject], str], str]]] = {
    "github": github,
    "sarif": sarif,
    "junit": junit,
    "markdown": markdown,
}

CiReport = Callable[[str, Sequence[Finding], Sequence[str]], str]


def ci_report(command: str, format: str) -> CiReport:
    """Return the function that formats the findings and passed checks of a command on one file.

    Raises UsageError for an unknown format.
    """
    if format not in CI_FORMATS:
        known = ", ".join(("text", "json", *CI_FORMATS))
        raise UsageError(f"unknown format {format!r}", hint=f"use one of {known}")

    def report(path: str, findings: Sequence[Finding], passed: Sequence[str]) -> str:
        return CI_FORMATS[format](command, [FindingSubject(path, findings, passed)], "error")

    return report
