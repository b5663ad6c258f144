"""TensorFlow's functionalizer accepts and rejects, and its answers are counted with ours."""

from __future__ import annotations

import signal
from types import ModuleType

import pytest

import cfgraph
from benchmarks import functionalizing
from benchmarks.tensorflow_functionalizer import Source, _ending, errors

FLOAT = 1
CONDITIONAL = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[2]}
s = Switch(x, p)
neg = Neg(s)
abs = Abs(s:1)
m = Merge(neg, abs)
"""
THREE_WAY = """
p = Placeholder() {dtype=bool, shape=[]}
q = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[2]}
s = Switch(x, p)
inner = Switch(s:1, q)
neg = Neg(s)
abs = Abs(inner)
square = Square(inner:1)
m = Merge(neg, abs, square)
"""


def source(text: str) -> Source:
    """A graph as bytes, with the output of its Merge."""
    return cfgraph.dumps(cfgraph.loads(text.encode(), "graph")), (("m:0", FLOAT),)


@pytest.mark.interop
def test_tensorflow_functionalizes_one_conditional_and_not_a_merge_of_three() -> None:
    pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    accepted, rejected = source(CONDITIONAL), source(THREE_WAY)
    messages = errors([accepted, rejected, accepted])
    assert messages.keys() == {accepted, rejected}
    assert messages[accepted] == ""
    assert "Failed to functionalize Control Flow V1 ops" in messages[rejected]
    for data, _ in (accepted, rejected):
        assert not cfgraph.functionalize(cfgraph.loads(data), "m:0").rejected


def test_a_graph_that_tensorflow_rejects_counts_with_all_its_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepted, rejected = source(CONDITIONAL), source(THREE_WAY)
    recorded = [(data, cfgraph.loads(data), ["m:0"]) for data, _ in (accepted, rejected)]
    monkeypatch.setattr(functionalizing, "graphs", lambda *, tiny: iter(recorded))
    answers = {accepted: "", rejected: "Merge of {{node m}} Failed to functionalize x"}
    monkeypatch.setattr(functionalizing, "errors", lambda sources: answers)
    rows = {row.work: row for row in functionalizing.measure(ModuleType("tf"), tiny=True)}
    conditionals = rows["conditionals of 3 functionalized"]
    assert conditionals.ours == 100
    assert conditionals.peer == pytest.approx(100 / 3)
    assert rows["graphs of 2 without Switch, Merge, Enter"].peer == 50
    assert (rows["TensorFlow: Merge of …"].ours, rows["TensorFlow: Merge of …"].peer) == (0, 1)


def test_a_process_without_an_answer_is_named() -> None:
    assert _ending(-signal.SIGALRM) == "no answer in 10 s"
    assert _ending(-signal.SIGABRT) == "ended by SIGABRT"
    assert _ending(1) == "ended with status 1"
