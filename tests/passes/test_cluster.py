"""Clusters: what may be in one, how its inputs are ordered, what is told of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.graph import Graph
from cfgraph.passes.cluster.formation import grow
from cfgraph.passes.cluster.formation.merge_conflicts import merge_conflict
from cfgraph.passes.cluster.formation.rejection_reasons import RejectionReason
from cfgraph.passes.cluster.formation.report import Clustering
from cfgraph.runtime.session import Session
from tests.analysis.graph_text import graph as written


def clustered(text: str, **options: Any) -> tuple[Graph, Clustering]:
    made = written(text)
    return made, cfgraph.cluster(made, explain=True, **options)


def groups(report: Clustering) -> list[set[str]]:
    return [set(one.nodes) for one in report.clusters]


def edge(report: Clustering, source: str, target: str) -> str:
    (found,) = [e.reason.kind for e in report.edges if (e.source, e.target) == (source, target)]
    return found


def test_a_path_over_what_does_not_compile_keeps_its_ends_apart() -> None:
    made, report = clustered("""
        x = Placeholder() {dtype=float32, shape=[2]}
        a = Neg(x)
        b = Abs(a)
        out = CheckNumerics(b) {message=""}
        c = AddV2(b, out)
        d = Neg(c)
    """)
    assert groups(report) == [{"a", "b"}, {"c", "d"}]
    assert edge(report, "b", "c") == "cycle"
    assert report.outside["out"].kind == "effects"
    run = Session(made).run(["d:0"], {"x:0": np.float32([1, 2])})
    assert run[0].tolist() == [-2, -4]


def test_a_path_through_a_loop_counts_though_it_goes_round() -> None:
    _, report = clustered("""
        x = Placeholder() {dtype=float32, shape=[]}
        n = Placeholder() {dtype=int32, shape=[]}
        a = Neg(x)
        b = Abs(a)
        zero = Const() {dtype=int32, value=int32[]:0}
        enter = Enter(zero) {frame_name="f"}
        late = Enter(b) {frame_name="f", is_constant=true}
        top = Enter(n) {frame_name="f", is_constant=true}
        m = Merge(enter, next) {T=int32, N=2}
        less = Less(m, top)
        go = LoopCond(less)
        s = Switch(m, go)
        one = Const(^s) {dtype=int32, value=int32[]:1}
        use = Cast(late, ^s) {SrcT=float32, DstT=int32}
        add = AddV2(s:1, one)
        more = AddV2(add, use)
        next = NextIteration(more) {T=int32}
        out = Exit(s)
        f = Cast(out) {SrcT=int32, DstT=float32}
        c = AddV2(f, b)
        d = Neg(c)
    """)
    assert {"a", "b"} in groups(report)
    assert {"f", "c", "d"} in groups(report)
    assert edge(report, "b", "c") == "cycle"


def test_devices_and_sizes_bound_clusters() -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x) @"/cpu:0"
        b = Abs(a) @"/device:CPU:0"
        c = Neg(b) @"/gpu:0"
        d = Abs(c) @"/gpu:0"
    """
    _, report = clustered(text)
    assert groups(report) == [{"a", "b"}, {"c", "d"}]
    assert edge(report, "b", "c") == "device"
    _, report = clustered(text.replace("gpu", "cpu"), max_size=3)
    assert sorted(map(len, groups(report))) == [3]
    assert edge(report, "a", "b") == "size"
    assert not clustered(text, min_size=3)[1].clusters


def test_adjacent_clusters_merge_where_nothing_waits_longer() -> None:
    _, report = clustered("""
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Abs(x)
        c = Neg(a)
        d = Neg(b)
    """)
    assert groups(report) == [{"a", "b", "c", "d"}]


VARIABLES = """
    v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
    w = VarHandleOp() {dtype=float32, shape=[], shared_name="OTHER"}
    x = Placeholder() {dtype=float32, shape=[]}
    y = Neg(x)
    set = AssignVariableOp(v, y) {dtype=float32}
    read = ReadVariableOp(w, ^set) {dtype=float32}
    sum = Neg(read)
"""


def test_a_variable_is_not_read_behind_its_write_in_one_cluster() -> None:
    _, report = clustered(VARIABLES.replace("OTHER", "u"))
    assert groups(report) == [{"y", "set", "read", "sum"}]
    _, report = clustered(
        VARIABLES.replace("w = ", "u = ").replace("OTHER", "u").replace("w,", "v,")
    )
    assert groups(report) == [{"y", "set"}, {"read", "sum"}]
    assert edge(report, "set", "read") == "resource"


APART = """
    v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
    x = Placeholder() {dtype=float32, shape=[]}
    add = AssignAddVariableOp(v, x) {dtype=float32}
    after = ReadVariableOp(v, ^add) {dtype=float32}
    less = Neg(after)
    plain = ReadVariableOp(v) {dtype=float32}
    more = Neg(plain)
"""


def test_what_may_be_run_without_a_write_waits_for_none_in_a_cluster() -> None:
    made, report = clustered(APART)
    assert groups(report) == [{"after", "less"}, {"plain", "more"}]
    session = cfgraph.Session(made)
    session.run("more", {"v:0": 1.0})
    assert session.run(["more", "less"], {"v:0": 1.0, "x": 2.0}) == [-1, -3]


def test_what_is_fetched_together_may_wait_for_a_write_together() -> None:
    _, report = clustered(APART, fetches=["less", "more"])
    assert {"plain", "more", "after", "less"} in groups(report)


def test_a_variable_comes_in_by_one_handle() -> None:
    _, report = clustered(VARIABLES.replace("OTHER", "v"))
    assert groups(report) == [{"y", "set"}, {"read", "sum"}]
    assert edge(report, "set", "read") == "handles"


def test_arguments_that_must_be_constant_come_first_and_handles_last() -> None:
    made, report = clustered("""
        v = VarHandleOp() {dtype=float32, shape=[4], shared_name="v"}
        x = Placeholder() {dtype=float32, shape=[4]}
        shape = Placeholder() {dtype=int32, shape=[2]}
        read = ReadVariableOp(v) {dtype=float32}
        sum = AddV2(read, x)
        back = Neg(shape)
        there = Neg(back)
        y = Reshape(sum, there)
    """)
    launch = made["cluster_0"]
    assert [item.node.name for item in launch.inputs] == ["shape", "x", "v"]
    assert [str(dtype) for dtype in launch.attrs["Tconstants"]] == ["int32"]
    (one,) = report.clusters
    assert (one.constants, one.arguments, one.resources) == (1, 1, 1)


LOOP = """
    x = Placeholder() {dtype=float32, shape=[4]}
    zero = Const() {dtype=int32, value=int32[]:0}
    i_in = Enter(zero) {frame_name="f"}
    x_in = Enter(x) {frame_name="f"}
    i = Merge(i_in, i_next) {T=int32, N=2}
    y = Merge(x_in, y_next) {T=float32, N=2}
    three = Const(^i) {dtype=int32, value=int32[]:3}
    less = Less(i, three)
    go = LoopCond(less)
    i_go = Switch(i, go)
    y_go = Switch(y, go)
    one = Const(^i_go) {dtype=int32, value=int32[]:1}
    add = AddV2(i_go:1, one)
    neg = Neg(y_go:1)
    SHAPE
    dims = Pack(first) {N=1, T=int32, axis=0}
    again = Reshape(neg, dims)
    i_next = NextIteration(add) {T=int32}
    y_next = NextIteration(again) {T=float32}
    out = Exit(y_go)
"""


def test_a_constant_that_varies_in_a_loop_keeps_its_reader_out() -> None:
    varying = "first = Mul(add, one)"
    _, report = clustered(LOOP.replace("SHAPE", varying))
    reason = report.outside["again"]
    assert (reason.kind, reason.data["source"]) == ("constant varies", "i_go")
    of_shapes = "first = Size(neg) {out_type=int32}"
    _, report = clustered(LOOP.replace("SHAPE", of_shapes))
    assert any("again" in nodes for nodes in groups(report))


def test_names_that_are_fetched_stay_and_what_is_fed_stays_out() -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Abs(a)
        c = Neg(b)
        unneeded = Abs(c)
    """
    made, report = clustered(text, fetches=["b", "c:0"])
    assert {"b", "c"} <= set(made.nodes)
    assert "a" not in made
    assert report.outside["unneeded"].kind == "not needed"
    assert report.names["b:0"] == ("cluster_0:0",)
    made, report = clustered(text, feeds=["a"])
    assert (report.outside["a"].kind, groups(report)) == ("fed", [{"b", "c", "unneeded"}])


def test_ops_can_be_chosen_and_left_out_and_marked() -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Abs(a)
        c = Neg(b) MARK
        d = Abs(c)
    """
    plain = text.replace("MARK", "")
    assert not clustered(plain, only_ops=["Neg"])[1].clusters
    assert not clustered(plain, exclude_ops=["Neg"])[1].clusters
    _, report = clustered(text.replace("MARK", "{_XlaCompile=false}"))
    assert (report.outside["c"].kind, groups(report)) == ("marked", [{"a", "b"}])


def test_a_second_time_nothing_is_left_to_do(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "lstm_grad.pb")
    assert cfgraph.cluster(graph)
    once = cfgraph.dumps(graph)
    assert not cfgraph.cluster(graph)
    assert cfgraph.dumps(graph) == once


@pytest.mark.parametrize("options", [{"deadness": "?"}, {"min_size": 0}, {"feeds": ["no"]}])
def test_what_makes_no_sense_is_refused_before_anything_changes(
    fixtures: Path, options: dict[str, Any]
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "while_functional.pb")
    before = cfgraph.dumps(graph)
    with pytest.raises(UsageError):
        cfgraph.cluster(graph, **options)
    assert cfgraph.dumps(graph) == before


def test_a_graph_that_is_not_valid_is_refused() -> None:
    with pytest.raises(InvalidInput):
        clustered("a = Neg(b) {T=float32}\nb = Neg(a) {T=float32}")


@pytest.mark.parametrize(
    ("name", "mode", "theirs"),
    [
        # what TensorFlow 2.21 puts into clusters of two and more, its own optimizer off
        ("lstm", "exact", 29),
        ("lstm_grad", "exact", 61),
        ("lstm", "tf", 29),
        ("lstm_grad", "tf", 61),
    ],
)
def test_no_less_is_clustered_than_by_tensorflow(
    fixtures: Path, name: str, mode: str, theirs: int
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / f"{name}.pb")
    fetches = ["loss", "dW"] if "dW" in graph else ["loss"]
    assert cfgraph.cluster(graph, fetches=fetches, deadness=mode).clustered >= theirs


def test_a_rejected_neighbor_of_a_growing_cluster_is_not_tried_again_for_each_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    def counted(*args: Any, **options: Any) -> RejectionReason | None:
        nonlocal calls
        calls += 1
        return merge_conflict(*args, **options)

    monkeypatch.setattr(grow, "merge_conflict", counted)
    lines = ["n0 = Placeholder() {dtype=float32, shape=[]}"]
    for i in range(100):
        lines.append(f"n{i + 1} = Neg(n{i}) {{T=float32}}")
        lines.append(f'v{i} = VarHandleOp() {{dtype=float32, shape=[], shared_name="v{i}"}}')
        lines.append(f"write{i} = AssignVariableOp(v{i}, n{i + 1}) {{dtype=float32}}")
    report = cfgraph.cluster(written("\n".join(lines)))
    assert len(report.clusters) == 2
    assert calls < 20 * 100
