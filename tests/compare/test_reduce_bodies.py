"""Operators on the bodies of functions, and on the variables of functional loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.verify.verify import verify
from cfgraph.comparison.reduce.body_operators import BodyOperator, FunctionalVariableOperator
from cfgraph.comparison.reduce.node_operators import BypassOperator, NodeOperator
from cfgraph.comparison.reduce.removal import StandIns
from cfgraph.comparison.reduce.search import Operator
from cfgraph.comparison.reduce.subject import Subject

X1 = {"x1:0": np.float32([4, 5, 6, 7])}
COUNTERS = {"while/loop_counter:0": np.int32(0), "while/maximum_iterations:0": np.int32(-1)}
OPERATORS = [
    BodyOperator(NodeOperator(StandIns(fallback="zeros"))),
    BodyOperator(BypassOperator()),
    FunctionalVariableOperator({**COUNTERS, "Const:0": np.int32(0)}),
]


@pytest.fixture
def subject(root: Path) -> Subject:
    path = root / "fixtures" / "tensorflow_modes" / "while_reshape.graph"
    return Subject((cfgraph.load(path),))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_candidate_is_valid_and_keeps_the_calls(operator: Operator, subject: Subject) -> None:
    before = cfgraph.dumps(subject.graphs[0])
    candidates = [operator.candidate(subject, [item]) for item in operator.items(subject)]
    changed = [item.graphs[0] for item in candidates if item is not None]
    assert changed
    assert not [
        finding for graph in changed for finding in verify(graph) if finding.level == "error"
    ]
    assert all(graph["while"].op == "StatelessWhile" for graph in changed)
    assert cfgraph.dumps(subject.graphs[0]) == before


def test_a_loop_without_its_counters_computes_the_same(subject: Subject) -> None:
    operator = FunctionalVariableOperator(COUNTERS)
    items = [item for item in operator.items(subject) if not item[1].startswith("while_placeh")]
    smaller = operator.candidate(subject, items)
    assert smaller is not None
    (graph,) = smaller.graphs
    assert len(graph["while"].inputs) == 2
    assert graph["Identity"].inputs[0].name == "while:1"
    (value,) = cfgraph.Session(graph).run(["Identity:0"], X1)
    assert value.ravel().tolist() == [128, 160, 192, 224]


def test_a_variable_that_was_dropped_is_no_item_of_the_rest(subject: Subject) -> None:
    operator = FunctionalVariableOperator(COUNTERS)
    items = operator.items(subject)
    smaller = operator.candidate(subject, items[:1])
    assert smaller is not None
    assert operator.candidate(smaller, items[:1]) is None
    assert operator.items(smaller) == items[1:]


def test_a_bypass_in_a_body_removes_what_only_it_needs(subject: Subject) -> None:
    operator = BodyOperator(BypassOperator())
    smaller = operator.candidate(subject, [("while_body_8", ("while/add_2", 0))])
    assert smaller is not None
    names = [node.name for node in smaller.graphs[0].functions["while_body_8"].definition.nodes]
    assert "while/add_2/y" not in names


LOOP = """versions producer=1
x = Const() {dtype=int32, value=int32[]:3}
y = StatelessWhile(x, x) {T=(int32, int32), body=@body, cond=@cond}

function body(a: int32, b: int32) -> (c: int32, d: int32) {
  r = Add(a, b) {T=int32}
  return c = r:z:0
  return d = b
}

function cond(COND) -> (z: bool) {
  LESS
  return z = less:z:0
}
"""


@pytest.mark.parametrize(
    ("cond", "less"),
    [
        ("a: int32, b: int32", "less = Less(a, nosuch:z:0) {T=int32}"),
        ("a: int32", "less = Less(a, a) {T=int32}"),
        ("a: int32, b: int32", "less = Less(a, a) {T=$T}"),
    ],
    ids=["inconsistent", "one argument", "polymorphic"],
)
def test_functions_that_cannot_be_edited_are_skipped(cond: str, less: str) -> None:
    text = LOOP.replace("COND", cond).replace("LESS", less)
    broken = Subject((cfgraph.loads(text.encode()),))
    assert FunctionalVariableOperator({}).items(broken) == []
    items = BodyOperator(NodeOperator(StandIns(fallback="zeros"))).items(broken)
    assert "body" in {name for name, _ in items}
    assert FunctionalVariableOperator({}).candidate(broken, [("y", "a")]) is None


def test_a_loop_without_its_functions_has_no_variables() -> None:
    graph = cfgraph.loads(LOOP.partition("function")[0].encode())
    operator = FunctionalVariableOperator({})
    assert operator.items(Subject((graph,))) == []
    assert operator.candidate(Subject((graph,)), [("y", "a")]) is None
    assert BodyOperator(BypassOperator()).candidate(Subject((graph,)), [("body", "r")]) is None
