"""Whole loops and conditionals in clusters: accepted and rejected regions, and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from benchmarks.families import FAMILIES
from cfgraph.passes.cluster.formation.report import Clustering

COUNTER = """
n = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=[2]}
zero = Const() {dtype=int32, value=int32[]:0}
i_in = Enter(zero) {frame_name="loop"}
x_in = Enter(x) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
i = Merge(i_in, i_next)
y = Merge(x_in, y_next)
less = Less(i, limit)
cond = LoopCond(less)
i_switch = Switch(i, cond)
y_switch = Switch(y, cond)
one = Const(^i_switch) {dtype=int32, value=int32[]:1}
i_more = AddV2(i_switch:1, one)
y_more = BODY
i_next = NextIteration(i_more)
y_next = NextIteration(y_more)
count = Exit(i_switch)
result = Exit(END)
out = Identity(result)
"""

BRANCH = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[2]}
s = Switch(x, p)
neg = Neg(s)
abs = Abs(s:1)
m = Merge(neg, abs)
out = Identity(m)
"""


def counter_text(
    body: str = "AddV2(y_switch:1, y_switch:1)", end: str = "y_switch", more: str = ""
) -> str:
    """Build a loop that counts to n and updates x with a body."""
    return COUNTER.replace("BODY", body).replace("END", end) + more


def clustered(text: str, **options: Any) -> tuple[cfgraph.Graph, Clustering]:
    """Cluster a graph with whole regions."""
    graph = cfgraph.loads(text.encode(), "graph")
    return graph, cfgraph.cluster(graph, regions=True, **options)


def region_rejections(report: Clustering) -> dict[str, str]:
    """Return the kind of reason against each rejected region."""
    return {
        region.name: region.reason.kind for region in report.regions if region.reason is not None
    }


def values(text: str, fetches: list[str], feeds: dict[str, Any], **options: Any) -> list[Any]:
    """Return the values of a run."""
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"), **options)
    return session.run(fetches, feeds, allow_dead=True)


def assert_same_values(text: str, fetches: list[str], **feeds: Any) -> None:
    """Compare the values with regions with those without."""
    plain = values(text, fetches, feeds)
    for actual, expected in zip(
        values(text, fetches, feeds, jit="numpy", regions=True), plain, strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_a_loop_is_one_cluster_and_its_exits_keep_their_names() -> None:
    graph, report = clustered(counter_text())
    assert [node.op for node in graph if node.op != "Placeholder"] == [
        "XlaLaunch",
        "Identity",
        "Identity",
    ]
    assert {"count", "out"} <= set(graph.nodes)
    (cluster,) = report.clusters
    assert {"i", "y", "cond", "i_switch", "y_more", "y_next"} <= set(cluster.nodes)
    assert report.names["less"] == (cluster.name,)
    assert report.clustered == report.nodes - 2
    assert region_rejections(report) == {}
    assert_same_values(counter_text(), ["count", "out"], n=np.int32(3), x=np.float32([1, 2]))
    assert_same_values(counter_text(), ["count", "out"], n=np.int32(0), x=np.float32([1, 2]))


def test_without_regions_loops_stay_lowered() -> None:
    graph = cfgraph.loads(counter_text().encode(), "graph")
    report = cfgraph.cluster(graph)
    assert report.regions == ()
    assert "cond" in graph


TWO = "two = Const(^i_switch) {dtype=int32, value=int32[1]:[2]}\n"
TURN = "turn = Reshape(i_switch:1, one_long)\n" + TWO.replace("two", "one_long").replace(
    "[2]", "[1]"
)
AWAY = "p = Placeholder() {dtype=bool, shape=[]}\naway = Switch(x, p)\n"
ADD = "y_more = AddV2(y_switch:1, y_switch:1)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (counter_text("Print(y_switch:1, y_switch:1)"), "effects"),
        (counter_text("Tile(y_switch:1, two)", more=TWO), "shape changes"),
        (counter_text("Tile(y_switch:1, turn)", more=TURN), "constant varies"),
        (counter_text("AddV2(y, y)"), "form"),
        (counter_text().replace(ADD, f'{ADD} @"/device:GPU:0"'), "several devices"),
        (counter_text(more=AWAY).replace("Enter(x)", "Enter(away:1)"), "entered apart"),
    ],
)
def test_a_rejected_loop_has_a_reason(text: str, reason: str) -> None:
    graph, report = clustered(text)
    assert region_rejections(report)["/loop"] == reason
    assert "cond" in graph


def test_a_call_does_not_wait_for_inputs_of_unread_enters() -> None:
    away = AWAY + 'unread = Enter(n, ^yes) {frame_name="loop", is_constant=true}\n'
    graph, report = clustered(counter_text(more=away + "yes = Identity(away:1)\n"))
    assert region_rejections(report) == {}
    assert not graph["yes"].uses


def test_a_loop_with_a_fetched_node_inside_is_rejected() -> None:
    _, report = clustered(counter_text(), fetches=["out", "y_more"])
    assert region_rejections(report) == {"/loop": "fed"}


def test_a_loop_that_exceeds_the_maximum_size_is_rejected() -> None:
    _, report = clustered(counter_text(), max_size=5)
    assert region_rejections(report) == {"/loop": "size"}


def test_inner_loops_are_functionalized_first(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "nested.pb")
    report = cfgraph.cluster(graph, regions=True)
    (region,) = report.regions
    assert (region.name, region.replacement is not None) == ("/while/while_context", True)
    assert "while/while/LoopCond" in region.ops
    assert report.coverage == 1
    assert [node.op for node in graph] == ["XlaLaunch", "Identity", "Identity"]


@pytest.mark.parametrize("p", [False, True])
def test_a_conditional_is_one_call(p: bool) -> None:
    graph, report = clustered(BRANCH)
    assert not any(node.op in ("Switch", "Merge") for node in graph)
    assert {"s", "neg", "abs"} <= set(report.clusters[0].nodes)
    assert_same_values(BRANCH, ["out"], p=np.bool_(p), x=np.float32([-1, 2]))
    index = BRANCH + "index = Identity(m:1)\n"
    assert_same_values(index, ["out", "index"], p=np.bool_(p), x=np.float32([-1, 2]))


def test_a_conditional_that_is_live_when_its_input_is_dead_is_rejected() -> None:
    text = BRANCH.replace("neg = Neg(s)", "neg = AddV2(s, t)") + (
        "q = Placeholder() {dtype=bool, shape=[]}\nt = Switch(x, q)\n"
    )
    graph, report = clustered(text)
    assert region_rejections(report) == {"m": "entered apart"}
    assert "m" in graph


def test_the_call_keeps_the_control_inputs_of_branches() -> None:
    text = """
        p = Placeholder() {dtype=bool, shape=[]}
        x = Placeholder() {dtype=float32, shape=[]}
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        set = AssignVariableOp(v, x) {dtype=float32}
        s = Switch(x, p, ^set)
        neg = Neg(s)
        abs = Abs(s:1)
        m = Merge(neg, abs)
        read = ReadVariableOp(v, ^m) {dtype=float32}
    """
    _, report = clustered(text)
    assert region_rejections(report) == {}
    assert_same_values(text, ["read", "m"], p=np.bool_(True), x=np.float32(3))


def test_a_conditional_in_a_loop_is_functionalized_with_it() -> None:
    text = (
        counter_text("Merge(low, high)")
        + """
        half = Const(^i_switch) {dtype=int32, value=int32[]:2}
        early = Less(i_switch:1, half)
        s = Switch(y_switch:1, early)
        low = Neg(s)
        high = AddV2(s:1, s:1)
    """
    )
    _, report = clustered(text)
    assert region_rejections(report) == {}
    assert [region.kind for region in report.regions] == ["loop"]
    assert_same_values(text, ["out"], n=np.int32(5), x=np.float32([1, 2]))


def test_the_gradient_of_an_lstm_is_one_cluster(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "lstm_grad.pb")
    report = cfgraph.cluster(graph, regions=True)
    assert len(report.clusters) == 1
    # a constant that only the loops read can still be fetched
    assert set(report.outside) == {"W", "x", "gradients/b_count"}
    ops = {node.op for f in graph.functions.values() for node in f.definition.nodes}
    assert {"TensorListPushBack", "TensorListPopBack", "TensorListGetItem"} <= ops
    assert not {"StackV2", "TensorArrayV3"} & ops


def test_the_loops_of_a_gradient_are_one_cluster() -> None:
    body = "Mul(y_switch:1, y_switch:1)"
    graph = cfgraph.loads(counter_text(body).encode(), "graph")
    (gradient,) = cfgraph.gradients(graph, ys=["out"], xs=["x"])
    feeds = {"n": np.int32(3), "x": np.float32([1, 1.5])}
    plain = cfgraph.Session(graph).run([gradient], feeds)[0]
    session = cfgraph.Session(graph, jit="numpy", regions=True)
    np.testing.assert_allclose(session.run([gradient], feeds)[0], plain)
    (cluster,) = session.cluster_runner.clusters.values()
    assert cluster.calls == 1


def test_functionalizing_again_changes_nothing() -> None:
    graph, _ = clustered(counter_text())
    once = cfgraph.dumps(graph)
    assert not cfgraph.cluster(graph, regions=True)
    assert cfgraph.dumps(graph) == once


FILLS = """
any = Const() {dtype=int32, value=int32[]:-1}
list = MADE
l_in = Enter(list) {frame_name="loop"}
l = Merge(l_in, l_next)
l_switch = Switch(l, cond)
l_more = PUT
l_next = NextIteration(l_more)
full = Exit(l_switch)
all = TensorListStack(full, any) {element_dtype=float32}
"""
RESERVE = "TensorListReserve(any, n) {element_dtype=float32}"
EIGHT = "eight = Const() {dtype=int32, value=int32[]:8}"
EMPTY = f"EmptyTensorList(any, eight) {{element_dtype=float32}}\n{EIGHT}"
PUT = "TensorListSetItem(l_switch:1, i_switch:1, y_switch:1)"
PUSH = "TensorListPushBack(l_switch:1, y_switch:1)"


def fills(creation: str, put: str) -> str:
    """Build a loop that fills a list, which is stacked after the loop."""
    return counter_text(more=FILLS.replace("MADE", creation).replace("PUT", put))


def test_a_reserved_list_is_a_loop_variable_in_a_cluster() -> None:
    text = fills(RESERVE, PUT)
    _, report = clustered(text)
    assert region_rejections(report) == {}
    assert_same_values(text, ["all", "out"], n=np.int32(3), x=np.float32([1, 2]))


def test_stacking_a_list_of_unknown_length_is_rejected() -> None:
    _, report = clustered(fills(EMPTY, PUSH))
    assert region_rejections(report)["list"] == "list"
    assert region_rejections(report)["/loop"] == "not traced"


def test_a_tensor_array_becomes_a_list_and_keeps_its_names() -> None:
    text = counter_text(
        more="""
        array = TensorArrayV3(n) {dtype=float32}
        handle = Enter(array) {frame_name="loop", is_constant=true}
        f_in = Enter(array:1) {frame_name="loop"}
        f = Merge(f_in, f_next)
        f_switch = Switch(f, cond)
        write = TensorArrayWriteV3(handle, i_switch:1, y_switch:1, f_switch:1)
        f_next = NextIteration(write)
        flow = Exit(f_switch)
        zero_ = Const() {dtype=int32, value=int32[]:0}
        one_ = Const() {dtype=int32, value=int32[]:1}
        places = Range(zero_, n, one_)
        all = TensorArrayGatherV3(array, places, flow) {dtype=float32}
        size = TensorArraySizeV3(array, flow)
        """
    )
    graph, report = clustered(text, fetches=["all", "size"])
    assert region_rejections(report) == {}
    assert {"all", "size"} <= set(graph.nodes)
    assert_same_values(text, ["all", "size"], n=np.int32(3), x=np.float32([1, 2]))


@pytest.mark.parametrize(
    ("family", "depth", "kind"),
    [
        ("nested_conditionals", 16, "conditional"),
        pytest.param("nested_loops", 60, "loop", marks=pytest.mark.slow),
    ],
)
def test_regions_in_each_other_become_one_call(family: str, depth: int, kind: str) -> None:
    graph, clustering = clustered(FAMILIES[family](depth))
    assert [region.kind for region in clustering.regions if region.replacement] == [kind]
    assert not any(region.reason for region in clustering.regions)
    assert cfgraph.Session(graph).run(["y"], {"x": np.float32(3)}) == [-3]


def test_loops_that_are_nested_too_deeply_stay_lowered_from_the_outside() -> None:
    graph, clustering = clustered(FAMILIES["nested_loops"](62))
    (region,) = (region for region in clustering.regions if region.replacement)
    assert region.name == "/w0/w1/w2"
    reasons = {region.name: region.reason for region in clustering.regions if region.reason}
    assert reasons["/w0"].kind == "inner loop"
    assert reasons["/w0/w1"].kind == "nesting"
    assert cfgraph.Session(graph).run(["y"], {"x": np.float32(3)}) == [-3]
