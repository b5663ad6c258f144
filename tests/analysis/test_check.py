from __future__ import annotations

import pytest

import cfgraph
from cfgraph.analysis.check import CheckReport, check, report_load_error
from cfgraph.analysis.findings import Finding
from tests.analysis.graph_text import LOOP, codes_and_nodes, findings, graph

MIXED = CheckReport(
    (
        Finding("CFG201", "error", "one"),
        Finding("CFG211", "warning", "two"),
        Finding("CFG213", "note", "three"),
        Finding("CFG101", "warning", "four"),
    )
)


def test_a_sound_graph_has_no_findings() -> None:
    report = cfgraph.check(graph(LOOP))
    assert report == CheckReport(())
    assert not report.reaches("note")


def test_errors_come_first_then_warnings_then_notes() -> None:
    report = check(
        graph(
            "x = Placeholder() {dtype=float32}",
            "_y = Neg(x)",
            'w = Neg(x) @"nowhere"',
            "z = Neg(x:1) {T=float32}",
        )
    )
    assert [finding.level for finding in report.findings] == ["error", "warning", "note"]
    assert report.reaches("error")


def test_a_misspelled_op_is_named_where_it_hides_a_type() -> None:
    report = check(graph("x = Placeholdr() {dtype=float32}", "y = Neg(x)"))
    first = report.findings[0]
    assert (first.code, first.node) == ("CFG110", "y")
    assert first.message.startswith("its input 'x' has the unknown op 'Placeholdr'; Neg needs")
    assert first.hint == "did you mean 'Placeholder'?"


def test_a_report_says_how_bad_it_is() -> None:
    assert (MIXED.count("error"), MIXED.count("warning"), MIXED.count("note")) == (1, 2, 1)
    warned = MIXED.only(ignore=["CFG201"])
    assert not warned.reaches("error")
    assert warned.reaches("warning")
    assert warned.reaches("note")


def test_findings_are_chosen_by_code() -> None:
    assert codes_and_nodes(MIXED.only(["CFG2*"]).findings) == [
        ("CFG201", None),
        ("CFG211", None),
        ("CFG213", None),
    ]
    assert codes_and_nodes(MIXED.only(["cfg2*"], ["CFG21?"]).findings) == [("CFG201", None)]
    assert MIXED.only() == MIXED


def test_a_file_that_is_no_graph_is_reported_with_all_its_faults() -> None:
    reported = findings("x = Neg(a)\nx = Neg(b)\ny = Neg(c)")
    assert codes_and_nodes(reported) == [("CFG104", "x"), ("CFG105", "x"), ("CFG105", "y")]
    assert {finding.level for finding in reported} == {"error"}


def test_an_error_alone_is_a_report_of_one() -> None:
    error = cfgraph.InvalidInput("the file is empty", code="CFG002", hint="try another")
    (finding,) = report_load_error(error).findings
    assert (finding.code, finding.message, finding.hint) == (
        "CFG002",
        "the file is empty",
        "try another",
    )


def test_shapes_that_do_not_fit_are_warnings_also_in_functions() -> None:
    product = "MatMul(a:output:0, b:output:0) {T=float32}"
    report = check(
        graph(
            "y = f()",
            f"""
            function f() -> (c: float32) {{
              a = Placeholder() {{dtype=float32, shape=[2,3]}}
              b = Placeholder() {{dtype=float32, shape=[4,5]}}
              m = {product}
              return c = m:product:0
            }}
            """,
        )
    )
    assert codes_and_nodes(report.findings) == [("CFG303", "f/m")]
    assert not report.reaches("error")


def test_a_check_does_not_change_the_graph() -> None:
    of = graph(LOOP)
    before, edits = cfgraph.dumps(of), of.edits
    check(of)
    assert (cfgraph.dumps(of), of.edits) == (before, edits)


def test_a_finding_reads_as_one_line_and_as_json() -> None:
    finding = Finding("CFG201", "error", "what", "n", "do", ("a",), "/loop")
    assert str(finding) == "error[CFG201]: what at node 'n'"
    assert finding.to_json() == {
        "code": "CFG201",
        "level": "error",
        "message": "what",
        "hint": "do",
        "where": {"node": "n", "frame": "/loop"},
        "related": ["a"],
    }


@pytest.mark.parametrize("level", ["error", "warning", "note"])
def test_an_empty_graph_reaches_no_level(level: str) -> None:
    assert not check(cfgraph.Graph()).reaches(level)
