"""Clusters: their members, the order of their inputs, and the reasons of other nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.graph import Graph
from cfgraph.passes.cluster.cluster import cluster_traced
from cfgraph.passes.cluster.formation import cluster_plan
from cfgraph.passes.cluster.formation.merge_conflicts import merge_conflict
from cfgraph.passes.cluster.formation.report import Clustering, ClusterInputs
from cfgraph.passes.functionalize.report import RejectionReason
from cfgraph.runtime.session import Session
from tests.analysis.graph_text import graph as written


def clustered(text: str, **options: Any) -> tuple[Graph, Clustering]:
    program = written(text)
    return program, cfgraph.cluster(program, explain=True, **options)


def groups(report: Clustering) -> list[set[str]]:
    return [set(cluster.nodes) for cluster in report.clusters]


def edge(report: Clustering, source: str, target: str) -> str:
    (kind,) = [e.reason.kind for e in report.edges if (e.source, e.target) == (source, target)]
    return kind


def test_a_path_over_an_uncompiled_node_separates_its_ends() -> None:
    program, report = clustered("""
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
    run = Session(program).run(["d:0"], {"x:0": np.float32([1, 2])})
    assert run[0].tolist() == [-2, -4]


def test_a_path_through_a_loop_separates_its_ends() -> None:
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


def test_devices_and_sizes_limit_clusters() -> None:
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


def test_siblings_merge_unless_a_message_would_wait_longer() -> None:
    _, report = clustered("""
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Abs(x)
        c = Neg(a)
        d = Neg(b)
    """)
    assert groups(report) == [{"a", "b", "c", "d"}]


SQUARES = """
    x = Placeholder() {dtype=float32, shape=[]}
    y = Placeholder() {dtype=float32, shape=[]}
    a = Square(x)
    b = Square(a)
    c = Square(y)
    d = Square(c)
"""
TEXT = """
    text = AsString(b) {T=float32}
    e = StringToNumber(text)
    f = AddV2(d, e)
    g = Square(f)
"""
ON_A_GPU = """
    e = Square(d) @"/gpu:0"
    f = Square(e) @"/gpu:0"
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SQUARES, ["ab", "cd"]),
        (SQUARES.replace("y)", "x)"), ["abcd"]),
        (SQUARES + "e = AddV2(b, d)", ["abcde"]),
        (SQUARES + "e = Print(b, d) {U=(float32)}", ["abcd"]),
        (SQUARES.replace("y)", "b)") + TEXT, ["ab", "cdfg"]),
        (SQUARES.replace("y)", "b)") + ON_A_GPU, ["abcd", "ef"]),
    ],
    ids=["apart", "one producer", "an edge", "one consumer", "a path outside", "two devices"],
)
def test_what_nothing_keeps_apart_is_one_cluster(text: str, expected: list[str]) -> None:
    graph = written(text)
    ends = [node.name for node in graph if not node.uses]
    report = cluster_traced(graph, fetches=ends, feeds=[])
    assert groups(report) == list(map(set, expected))


VARIABLES = """
    v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
    w = VarHandleOp() {dtype=float32, shape=[], shared_name="OTHER"}
    x = Placeholder() {dtype=float32, shape=[]}
    y = Neg(x)
    set = AssignVariableOp(v, y) {dtype=float32}
    read = ReadVariableOp(w, ^set) {dtype=float32}
    sum = Neg(read)
"""


def test_a_variable_is_not_read_after_its_write_in_one_cluster() -> None:
    _, report = clustered(VARIABLES.replace("OTHER", "u"))
    assert groups(report) == [{"y", "set", "read", "sum"}]
    _, report = clustered(
        VARIABLES.replace("w = ", "u = ").replace("OTHER", "u").replace("w,", "v,")
    )
    assert groups(report) == [{"y", "set"}, {"read", "sum"}]
    assert edge(report, "set", "read") == "resource"


TWO_WRITES = """
    v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
    x = Placeholder() {dtype=float32, shape=[]}
    add = AssignAddVariableOp(v, x) {dtype=float32}
    after = ReadVariableOp(v, ^add) {dtype=float32}
    less = Neg(after)
    plain = ReadVariableOp(v) {dtype=float32}
    more = Neg(plain)
"""


def test_a_node_fetched_without_a_write_does_not_wait_for_it() -> None:
    program, report = clustered(TWO_WRITES)
    assert groups(report) == [{"after", "less"}, {"plain", "more"}]
    session = cfgraph.Session(program)
    session.run("more", {"v:0": 1.0})
    assert session.run(["more", "less"], {"v:0": 1.0, "x": 2.0}) == [-1, -3]


def test_nodes_fetched_together_may_wait_for_a_write() -> None:
    _, report = clustered(TWO_WRITES, fetches=["less", "more"])
    assert {"plain", "more", "after", "less"} in groups(report)


def test_a_cluster_receives_a_variable_by_one_handle() -> None:
    _, report = clustered(VARIABLES.replace("OTHER", "v"))
    assert groups(report) == [{"y", "set"}, {"read", "sum"}]
    assert edge(report, "set", "read") == "handles"


def test_arguments_that_must_be_constant_come_first_and_handles_last() -> None:
    program, report = clustered("""
        v = VarHandleOp() {dtype=float32, shape=[4], shared_name="v"}
        x = Placeholder() {dtype=float32, shape=[4]}
        shape = Placeholder() {dtype=int32, shape=[2]}
        read = ReadVariableOp(v) {dtype=float32}
        sum = AddV2(read, x)
        back = Neg(shape)
        there = Neg(back)
        y = Reshape(sum, there)
    """)
    launch = program["cluster_0"]
    assert [tensor.node.name for tensor in launch.inputs] == ["shape", "x", "v"]
    assert [str(dtype) for dtype in launch.attrs["Tconstants"]] == ["int32"]
    (cluster,) = report.clusters
    assert cluster.inputs == ClusterInputs(1, 1, 1)


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


def test_a_constant_input_that_varies_in_a_loop_is_rejected() -> None:
    varying = "first = Mul(add, one)"
    _, report = clustered(LOOP.replace("SHAPE", varying))
    reason = report.outside["again"]
    assert (reason.kind, reason.data["source"]) == ("constant varies", "i_go")
    of_shapes = "first = Size(neg) {out_type=int32}"
    _, report = clustered(LOOP.replace("SHAPE", of_shapes))
    assert any("again" in nodes for nodes in groups(report))


def test_fetched_names_remain_and_fed_nodes_stay_outside() -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Abs(a)
        c = Neg(b)
        unneeded = Abs(c)
    """
    program, report = clustered(text, fetches=["b", "c:0"])
    assert {"b", "c"} <= set(program.nodes)
    assert "a" not in program
    assert report.outside["unneeded"].kind == "not needed"
    assert report.names["b:0"] == ("cluster_0:0",)
    program, report = clustered(text, feeds=["a"])
    assert (report.outside["a"].kind, groups(report)) == ("fed", [{"b", "c", "unneeded"}])


def test_ops_can_be_included_excluded_and_marked() -> None:
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


def test_clustering_again_changes_nothing(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "lstm_grad.pb")
    assert cfgraph.cluster(graph)
    once = cfgraph.dumps(graph)
    assert not cfgraph.cluster(graph)
    assert cfgraph.dumps(graph) == once


@pytest.mark.parametrize("options", [{"deadness": "?"}, {"min_size": 0}, {"feeds": ["no"]}])
def test_invalid_options_are_rejected_before_any_change(
    fixtures: Path, options: dict[str, Any]
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "while_functional.pb")
    before = cfgraph.dumps(graph)
    with pytest.raises(UsageError):
        cfgraph.cluster(graph, **options)
    assert cfgraph.dumps(graph) == before


def test_an_invalid_graph_is_rejected() -> None:
    with pytest.raises(InvalidInput):
        clustered("a = Neg(b) {T=float32}\nb = Neg(a) {T=float32}")


@pytest.mark.parametrize(
    ("name", "minimum"),
    # what TensorFlow 2.21 puts into clusters of two and more, its own optimizer off
    [("lstm", 29), ("lstm_grad", 61)],
)
def test_at_least_as_much_is_clustered_as_by_tensorflow(
    fixtures: Path, name: str, minimum: int
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / f"{name}.pb")
    fetches = ["loss", "dW"] if "dW" in graph else ["loss"]
    assert cfgraph.cluster(graph, fetches=fetches).clustered >= minimum


def test_a_growing_cluster_does_not_retry_rejected_neighbors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    def counted(*args: Any, **options: Any) -> RejectionReason | None:
        nonlocal calls
        calls += 1
        return merge_conflict(*args, **options)

    monkeypatch.setattr(cluster_plan, "merge_conflict", counted)
    lines = ["n0 = Placeholder() {dtype=float32, shape=[]}"]
    for i in range(100):
        lines.append(f"n{i + 1} = Neg(n{i}) {{T=float32}}")
        lines.append(f'v{i} = VarHandleOp() {{dtype=float32, shape=[], shared_name="v{i}"}}')
        lines.append(f"write{i} = AssignVariableOp(v{i}, n{i + 1}) {{dtype=float32}}")
    report = cfgraph.cluster(written("\n".join(lines)))
    assert len(report.clusters) == 2
    assert calls < 20 * 100
