"""`--format github|sarif|junit|markdown` of check and diff."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cfgraph.analysis.findings import Finding
from cfgraph.console.ci_formats import FindingSubject, github, junit, markdown, sarif


@pytest.fixture
def faulty(fixtures: Path) -> Path:
    return fixtures / "errors" / "CFG201_tensors_of_two_loops.graph"


@pytest.fixture
def other(command: Any, counter: Path, tmp_path: Path) -> Path:
    text = command("convert", counter, "--to", "graph").out.replace("= Less(", "= LessEqual(")
    (tmp_path / "other.graph").write_text(text)
    return tmp_path / "other.graph"


HOSTILE = Finding(
    "CFG201", "error", "100 %\r\n<b>]]>\x00\x1b[31m\ud800\uffff", "n\x07", 'say "&"', (), "/l[0]"
)


def test_github_gets_a_command_a_finding(command: Any, faulty: Path, counter: Path) -> None:
    done = command("check", counter, faulty, "--format", "github")
    assert done.code == 1
    (line,) = done.lines
    assert line.startswith(f"::error file={faulty},title=CFG201::inputs come from different frames")
    assert "%0Ahint: " in line


def test_what_github_would_take_for_its_own_is_escaped() -> None:
    (line,) = github("check", [FindingSubject("a,b:c%.pb", [HOSTILE])], "error").splitlines()
    assert line.startswith("::error file=a%2Cb%3Ac%25.pb,title=CFG201::100 %25\\x0d%0A<b>]]>\\x00")
    assert not set(line) & set(map(chr, range(32)))


@pytest.mark.parametrize("level", ["error", "warning", "note"])
def test_levels_have_the_names_of_each_service(level: str) -> None:
    subjects = [FindingSubject("g.pb", [Finding("CFG101", level, "no such op")])]
    word = {"note": "notice"}.get(level, level)
    assert github("check", subjects, "error").startswith(f"::{word} file=g.pb")
    assert json.loads(sarif("check", subjects, "error"))["runs"][0]["results"][0]["level"] == level
    failures = ElementTree.fromstring(junit("check", subjects, "warning")).get("failures")
    assert failures == ("0" if level == "note" else "1")


def test_sarif_holds_the_rules_and_where_it_is(command: Any, faulty: Path) -> None:
    done = command("check", faulty, "--format", "sarif")
    assert (done.code, done.json["version"]) == (1, "2.1.0")
    (run,) = done.json["runs"]
    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    assert rule["id"] == result["ruleId"] == "CFG201"
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == str(faulty)
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "/first:a"


def test_sarif_is_sound_where_names_are_not() -> None:
    document = json.loads(sarif("check", [FindingSubject("a b\udc80#.pb", [HOSTILE])], "error"))
    place = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b%80%23.pb"


def test_junit_has_a_case_a_finding_and_one_for_a_sound_file(
    command: Any, faulty: Path, counter: Path
) -> None:
    done = command("check", counter, faulty, "--format", "junit")
    top = ElementTree.fromstring(done.data)
    assert (done.code, top.get("tests"), top.get("failures")) == (1, "2", "1")
    sound, bad = top.findall("testsuite")
    assert (sound.get("name"), sound.get("failures")) == (str(counter), "0")
    case = bad.find("testcase")
    assert case is not None
    assert case.get("name") == "CFG201 a"
    assert case[0].get("type") == "CFG201"


def test_junit_is_sound_where_names_are_not() -> None:
    top = ElementTree.fromstring(junit("check", [FindingSubject("a\x00.pb", [HOSTILE])], "error"))
    assert top[0].get("name") == "a\\u0000.pb"
    assert "<b>]]>\\u0000\\u001b[31m\\ud800\\uffff" in (top[0][0][0].text or "")


def test_markdown_has_a_table_for_each_file_with_findings(
    command: Any, faulty: Path, counter: Path, other: Path
) -> None:
    done = command("check", counter, faulty, "--format", "markdown")
    assert done.code == 1
    sound, table = done.out.split("\n\n", 1)
    assert (sound.startswith("**"), sound.endswith("counter.pb**: no findings")) == (True, True)
    assert (
        ": 1 error\n\n| level | code | finding |\n| --- | --- | --- |\n| error | [CFG201](" in table
    )
    done = command("diff", counter, other, "--format", "markdown")
    assert (done.code, len(done.lines)) == (1, 5)
    done = command("diff", counter, counter, "--format", "markdown")
    assert (done.code, "counter.pb**: no differences\n" in done.out) == (0, True)


def test_markdown_is_sound_where_names_are_not() -> None:
    subject = FindingSubject("a|b`.pb", [HOSTILE] * 60)
    lines = markdown("check", [subject], "error").splitlines()
    assert lines[0] == r"**a\|b\`.pb**: 60 errors"
    assert (len(lines), lines[-1]) == (4 + 50 + 2, "and 10 more")
    cells = re.split(r"(?<!\\)\|", lines[4])
    assert len(cells) == 5
    assert r"\<b\>" in cells[3]
    assert "\x1b" not in lines[4]


def test_a_file_that_is_no_graph_is_among_the_findings(command: Any, empty: Path) -> None:
    done = command("check", empty, "--format", "github")
    assert (done.code, done.out[:8]) == (3, "::error ")
    assert command("check", empty, "--format", "junit").code == 3


@pytest.mark.parametrize("format", ["github", "sarif", "junit", "markdown"])
@pytest.mark.parametrize("run", [[], ["--run", "--feed", "n=3"]])
def test_diff_has_the_same_formats(
    format: str, run: list[str], command: Any, counter: Path, other: Path
) -> None:
    done = command("diff", counter, other, "--format", format, *run)
    assert done.code == 1
    assert ("CFG804" if run else "CFG802") in done.out
    assert "while/Less" in done.out
    alike = command("diff", counter, counter, "--format", format, *run)
    assert alike.code == 0
    assert "CFG8" not in alike.out


def test_the_document_of_diff_has_the_findings_too(
    command: Any, counter: Path, other: Path
) -> None:
    (found,) = command("diff", counter, other, "--json").json["findings"]
    assert found["code"] == "CFG802"
    assert found["message"] == "Less node while/Less: op was Less, is LessEqual"


def test_expected_values_are_reported_as_junit(command: Any, counter: Path) -> None:
    expect = ["--expect", "count=3", "--expect", "while/Exit=4"]
    done = command("run", counter, "--feed", "n=3", *expect, "--format", "junit")
    suite = ElementTree.fromstring(done.out).find("testsuite")
    cases = {case.get("name"): case.find("failure") is not None for case in suite}
    assert (done.code, cases) == (1, {"count:0": False, "while/Exit": True})
    passed = command("run", counter, "--feed", "n=3", "--expect", "count=3", "--format", "github")
    assert (passed.code, passed.out) == (0, "")
    assert command("run", counter, "--format", "xml").code == 2


def test_markdown_says_that_there_are_no_differences_beside_a_note(
    command: Any, tmp_path: Path
) -> None:
    text = "x = Placeholder() {dtype=float32, shape=[2]}\ny = Neg(x)\n"
    a, b = tmp_path / "a.graph", tmp_path / "b.graph"
    a.write_text(text)
    b.write_text(text.replace("x", "z"))
    done = command("diff", a, b, "--run", "--fetch", "y", "--format", "markdown")
    assert (done.code, "b.graph**: no differences, 1 note\n" in done.out) == (0, True)
    assert "input paired by type and shape: x is z in B" in done.out
