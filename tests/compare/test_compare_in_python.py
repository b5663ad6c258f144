"""`cfgraph.compare` and `cfgraph.transform` find what `diff --run` finds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import UsageError
from tests.shell import run
from tests.test_docs import BLOCK, ROOT

MODEL = """
x = Placeholder() {dtype=float32, shape=[2]}
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
read = ReadVariableOp(w) {dtype=float32}
y = Mul(x, read)
z = Neg(y)
"""


@pytest.fixture
def graph() -> cfgraph.Graph:
    return cfgraph.loads(MODEL.encode(), "graph")


@pytest.fixture
def counter(fixtures: Path) -> cfgraph.Graph:
    return cfgraph.load(fixtures / "graphs" / "counter.pb")


def one_more(graph: cfgraph.Graph) -> int:
    graph.insert_after(graph["while/add"], "AddV2", graph["while/add/y"])
    return 1


def copied(graph: cfgraph.Graph) -> str:
    graph.insert_after(graph["while/add"], "Identity")
    return "copied"


def test_equal_graphs_have_no_difference(counter: cfgraph.Graph) -> None:
    runs = cfgraph.compare(counter, cfgraph.loads(cfgraph.dumps(counter)), cases=2)
    assert (bool(runs), runs.cases, runs.fetches) == (False, 2, ("count:0",))
    assert str(runs) == "no differences: 1 fetch agrees in 2 cases"


def test_a_difference_is_what_the_command_prints(
    counter: cfgraph.Graph, fixtures: Path, tmp_path: Path, command: Any
) -> None:
    other = cfgraph.loads(cfgraph.dumps(counter))
    one_more(other)
    runs = cfgraph.compare(counter, other, {"n": 5})
    assert runs
    (gap,) = runs.gaps
    assert (gap.what, gap.before, gap.after) == ("count:0", 5, 6)
    assert runs.first is not None
    assert runs.first.node == "while/NextIteration"
    assert runs.inputs["n:0"] == 5
    cfgraph.save(other, tmp_path / "other.pb")
    files = fixtures / "graphs" / "counter.pb", tmp_path / "other.pb"
    assert str(runs) == command("diff", *files, "--run", "--feed", "n=5").out.rstrip()
    assert str(cfgraph.compare(*files, {"n": 5})) == str(runs)
    assert not cfgraph.compare(counter, other, {"n": 6}, fetches="count")


def test_fetches_are_names(counter: cfgraph.Graph) -> None:
    count = counter["count"]
    for fetch in (count, count.output(), 5):
        fetches: Any = [fetch]
        with pytest.raises(UsageError, match="a name is expected"):
            cfgraph.compare(counter, counter, {"n": 5}, fetches=fetches)
    assert not cfgraph.compare(counter, counter, {"n": 5}, fetches=["count=count:0"])


def test_variables_are_those_of_a_state(graph: cfgraph.Graph) -> None:
    other = cfgraph.loads(cfgraph.dumps(graph))
    states = []
    for value in (2.0, 3.0):
        b = cfgraph.Builder()
        variable = b.variable(np.float32(value), name="w")
        session = cfgraph.Session(b.graph)
        session.run(targets=[variable.initializer.name])
        states.append(session.state)
    feeds = {"x": [1.0, 2.0]}
    assert not cfgraph.compare(graph, other, feeds, state=states[0])
    runs = cfgraph.compare(graph, other, feeds, state=states[0], state_of_b=states[1])
    assert [gap.after.tolist() for gap in runs.gaps if gap.what == "z:0"] == [[-3.0, -6.0]]
    assert not cfgraph.compare(graph, other, feeds, state=states[0], rtol=1.0, fetches=["read"])


def test_saved_models_are_compared_by_their_signatures(fixtures: Path, tmp_path: Path) -> None:
    for name in ("lstm", "lstm_retrained"):
        shutil.unpack_archive(fixtures / "verdicts" / f"{name}.zip", tmp_path)
    a, b = tmp_path / "lstm", str(tmp_path / "lstm_retrained")
    assert cfgraph.compare(a, b, fetches=["output_0"])
    assert not cfgraph.compare(a, a, {"keras_tensor": np.ones((1, 6, 4))}, cases=1)


@pytest.mark.parametrize(
    ("feeds", "fetches", "message"),
    [
        ({"m": 1}, None, "feed m: no node 'm' in the graph"),
        ({"n": "text"}, None, "feed n:0: the value contains strings, expected int32"),
        (None, ["cuont"], "no node 'cuont' in the graph"),
    ],
)
def test_names_and_values_that_do_not_fit_are_refused(
    feeds: Any, fetches: Any, message: str, counter: cfgraph.Graph
) -> None:
    with pytest.raises(cfgraph.UsageError, match=message):
        cfgraph.compare(counter, counter, feeds, fetches=fetches)


def test_a_function_is_applied_and_verified(counter: cfgraph.Graph) -> None:
    report = cfgraph.transform(counter, copied, feeds={"n": 5})
    assert report
    assert report.result == "copied"
    assert [node.name for node in report.changes.nodes.added] == ["while/add/Identity"]
    assert str(report).splitlines() == [
        "+ while/add/Identity = Identity(while/add)",
        "~ while/NextIteration (NextIteration)",
        "    input 0: - while/add:0  + while/add/Identity:0",
        "1 node added, 1 node changed",
        "no differences: 1 fetch agrees in 4 cases",
    ]
    assert not cfgraph.transform(counter, len, verify=False)
    assert cfgraph.transform(counter, cfgraph.optimize).result.rewrites == 1


def test_other_values_are_an_error_and_the_graph_stays(counter: cfgraph.Graph) -> None:
    before = cfgraph.dumps(counter)
    with pytest.raises(cfgraph.ValuesDiffer, match="computes other values: count:0") as caught:
        cfgraph.transform(counter, one_more, feeds={"n": 5})
    assert (caught.value.code, caught.value.node) == ("CFG804", "while/NextIteration")
    assert caught.value.runs.gaps[0].after == 6
    assert cfgraph.dumps(counter) == before
    assert cfgraph.transform(counter, one_more, verify=False).runs is None
    assert "while/add/AddV2" in counter


def test_an_invalid_result_is_an_error_and_the_graph_stays(counter: cfgraph.Graph) -> None:
    before = cfgraph.dumps(counter)

    def loop(graph: cfgraph.Graph) -> None:
        graph.replace_uses(graph["while/add"], graph.add("Identity", graph["while/add"]))

    def fail(graph: cfgraph.Graph) -> None:
        graph.rename(graph["count"], "other")
        raise KeyError("other")

    for function, error in ((loop, cfgraph.InvalidInput), (fail, KeyError)):
        with pytest.raises(error):
            cfgraph.transform(counter, function)
        assert cfgraph.dumps(counter) == before


def test_renamed_inputs_and_outputs_are_compared(counter: cfgraph.Graph) -> None:
    def rename(graph: cfgraph.Graph) -> None:
        graph.rename(graph["n"], "limit")
        graph.rename(graph["count"], "result")

    report = cfgraph.transform(counter, rename, feeds={"n": 7})
    assert report.runs is not None
    assert report.runs.paired == {"count:0": "result:0", "n:0": "limit:0"}
    assert not report.runs


@pytest.mark.slow
def test_the_passes_of_the_page_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    page = (ROOT / "docs" / "edit.md").read_text()
    for number, (kind, block) in enumerate(BLOCK.findall(page)):
        if kind == "python":
            (tmp_path / f"block_{number}.py").write_text(block)
    files = sorted(map(str, tmp_path.glob("*.py")))
    done = run([sys.executable, "-m", "mypy", "--strict", *files], ROOT)
    assert done.returncode == 0, done.stdout


def test_inputs_without_counterparts_name_the_argument_that_feeds_them() -> None:
    a = cfgraph.loads(b"x = Placeholder() {dtype=float32, shape=[]}\ny = Neg(x)\n")
    pair = b"p = Placeholder() {dtype=float32, shape=[]}\nq = Placeholder() {dtype=float32}\n"
    b = cfgraph.loads(pair + b"y = Add(p, q)\n")
    with pytest.raises(cfgraph.errors.UsageError, match=r"feeds=\{NAME: array\}"):
        cfgraph.compare(a, b)
    assert not cfgraph.compare(a, b, feeds={"x": 2.0, "p": -1.0, "q": -1.0})
