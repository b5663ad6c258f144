"""Runs on several devices have the same values and errors in generated code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session
from tests.analysis.graph_text import graph as graph_of
from tests.conformance import recorded
from tests.recorder import Recorder
from tests.runtime.compiled.agreement import ENGINES, Pair, difference
from tests.runtime.partitioned_graphs import counting, nesting, partitioned
from tests.runtime.test_deadlock import without
from tests.runtime.test_devices import CONDITIONAL, GATED
from tests.sampled import sampled


def pair_of(text: str, **options: Any) -> Pair:
    return Pair(lambda: graph_of(text), **options)


@pytest.mark.parametrize("count", [0, 1, 57])
def test_a_loop_on_two_devices_is_one_loop(count: int) -> None:
    pair = pair_of(counting())
    assert pair.run(["out:0"], {"n:0": np.int32(count)}) == [count]
    assert not pair.fallback


def test_an_iteration_limit_names_the_device_that_exceeds_it_first() -> None:
    pair = pair_of(counting())
    assert pair.run(["out:0"], {"n:0": np.int32(7)}, max_iterations=7) == [7]
    assert pair.run(["out:0"], {"n:0": np.int32(8)}, max_iterations=7)[1] == "CFG704"
    assert not pair.fallback


def test_nested_loops_on_two_devices_are_nested_loops() -> None:
    pair = pair_of(nesting())
    for outer, inner in ((0, 3), (3, 0), (2, 5)):
        pair.run(["out:0"], {"n_outer:0": np.int32(outer), "n_inner:0": np.int32(inner)})
        assert not pair.fallback


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("message", [False, True])
def test_a_merge_reads_a_message_whatever_the_control_inputs_of_its_recv(
    gate: bool, message: bool
) -> None:
    feeds = {"x:0": np.float32(2), "p:0": np.bool_(gate), "q:0": np.bool_(message)}
    # a Merge that reads one message twice has two live inputs
    text = GATED.replace("Merge(recv, recv)", "Merge(recv)")
    pair = pair_of(text)
    pair.run(["out:0", "plain:0"], feeds, allow_dead=True)
    assert not pair.fallback
    pair_of(GATED).run(["out:0", "plain:0"], feeds, allow_dead=True)


FIVE = partitioned(C="five = Const() {dtype=int32, value=int32[]:5}")


@pytest.mark.parametrize("fetch", ["out", "merge:1", "square", "r_s", "r_f", "after", "late"])
@pytest.mark.parametrize("p", [False, True])
def test_messages_carry_deadness(fetch: str, p: bool) -> None:
    feeds = {"p:0": np.bool_(p), "x:0": np.int32(5)}
    name = fetch if ":" in fetch else f"{fetch}:0"
    for text in (CONDITIONAL, CONDITIONAL.replace("_Send(square)", "_Send(five, ^square)") + FIVE):
        pair = pair_of(text)
        pair.run([name], feeds, allow_dead=True)
        pair.run([name], feeds)
    pair = pair_of(CONDITIONAL)
    pair.run([name], feeds, allow_dead=True)
    assert not pair.fallback


def test_a_message_can_be_fed() -> None:
    pair = pair_of(CONDITIONAL)
    feeds = {"r_s:0": np.int32(3), "sw:0": np.int32(4), "p:0": np.bool_(True)}
    assert pair.run(["out:0"], feeds) == [3]
    assert pair.run(["r_s:0", "neg:0"], {"r_s:0": np.int32(3), "r_f:0": np.int32(4)}) == [3, -4]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (without(counting(), "s_sum"), "no _Send has the key of a _Recv ('add')"),
        (
            without(counting(), "cn_B").replace("Merge(ce_B, cn_B)", "Merge(ce_B)"),
            "a loop does not iterate on each device ('ce_B')",
        ),
        (
            counting().replace("r_body = _Recv(^cm_B)", "r_body = _Recv()"),
            "",  # an invalid graph
        ),
        (
            counting()
            .replace("r_body = _Recv(^cm_B)", "r_body = _Recv()")
            .replace("one = Const(^cm_B)", "one = Const()"),
            "a _Recv is in another frame than its _Send",
        ),
        (counting().replace("Switch(cm_B, r_cond)", "Switch(cm_B, yes)") + partitioned(
            B="yes = Const(^cm_B) {dtype=bool, value=bool[]:true}"
        ), "a loop variable is not updated in every iteration"),
    ],
)  # fmt: skip
def test_a_wait_that_may_not_end_uses_tokens(text: str, reason: str) -> None:
    pair = pair_of(text)
    outcome = pair.run(["out:0"], {"n:0": np.int32(3)}, max_iterations=50)
    assert isinstance(outcome, tuple)
    assert pair.fallback.startswith(reason)


def test_devices_that_wait_for_each_other_use_tokens() -> None:
    text = partitioned(
        A="x = _Recv() {RECV B->A x float32}\ny = Neg(x)\ns_y = _Send(y) {SEND A->B y}",
        B="z = _Recv() {RECV A->B y float32}\nout = Neg(z)\ns_x = _Send(out) {SEND B->A x}",
    )
    pair = pair_of(text)
    assert pair.run(["out:0"])[1] == "CFG708"
    assert pair.fallback.startswith("devices wait for each other in a cycle")


EXCHANGE = partitioned(
    A="""
x = Placeholder() {dtype=int32, shape=[]}
s_x = _Send(x) {SEND A->B x}
early = Neg(x)
s_late = _Send(late) {SEND A->B late}
late = Neg(r_y)
r_y = _Recv(^early) {RECV B->A y int32}
""",
    B="""
r_late = _Recv() {RECV A->B late int32}
out = Sub(r_late, y)
s_y = _Send(y) {SEND B->A y}
y = FloorDiv(seven, r_x)
r_x = _Recv() {RECV A->B x int32}
seven = Const() {dtype=int32, value=int32[]:7}
""",
)


def test_devices_without_control_flow_are_joined(generated: list[Any]) -> None:
    session = Session(graph_of(EXCHANGE))
    for runs in range(2):
        assert session.run(["out:0", "late:0"], {"x:0": np.int32(2)}) == [-6, -3]
        assert session.is_interpreted == (runs == 0)
        assert len(generated) == runs
    pair = pair_of(EXCHANGE)
    for _ in range(2):
        assert pair.run(["out:0"], {"r_x:0": np.int32(1), "x:0": np.int32(2)}) == [-14]
        assert pair.run(["out:0"], {"y:0": np.int32(1), "x:0": np.int32(2)}) == [-2]
        assert pair.run(["out:0"], {"x:0": np.int32(0)})[3:6] == ("y", "/", "cpu:1")
    assert not pair.fallback


def test_an_error_names_the_device_of_its_node() -> None:
    text = counting().replace("AddV2(r_body, one)", "FloorDiv(one, r_body)")
    outcome = pair_of(text).run(["out:0"], {"n:0": np.int32(3)})
    assert outcome[3:6] == ("sum", "/loop[0]", "cpu:1")


def _placed(graph: Graph, seed: int) -> Graph:
    graph = copy_graph(graph)
    cfgraph.lower(graph)
    cfgraph.place(graph, devices="cpu:0-2", seed=seed, soft_placement=True)
    cfgraph.partition(graph)
    return graph


@pytest.mark.parametrize("case", sampled(recorded.parameters("session"), 25))
def test_recorded_sessions_on_random_devices_agree(case: dict[str, Any]) -> None:
    states, alone = {engine: State() for engine in ENGINES}, State()
    for seed, run in enumerate(case["runs"]):
        tensors, feeds, targets = recorded.run_arguments(run)
        try:
            graph = _placed(recorded.graph(run["graph"]), seed)
        except CfgraphError:
            return  # not valid on purpose, or a reference would cross
        pair = Pair(lambda graph=graph: graph, states)
        outcome = pair.run(tensors, feeds, targets, timeout=60)
        if isinstance(outcome, tuple):
            return
        whole = Session(recorded.graph(run["graph"]), engine="tokens", state=alone)
        values = whole.run(tensors, feeds, targets, timeout=60)
        assert not any(map(difference, outcome, values))


def test_a_session_on_several_devices_partitions_only_for_the_token_executor() -> None:
    graph = cfgraph.load(Path(__file__).parents[3] / "fixtures" / "graphs" / "eight_devices.pb")
    pair = Pair(lambda: graph, devices="cpu:0-7")
    fetches = [f"out{number}:0" for number in range(8)]
    assert pair.run(fetches, {"n:0": np.int32(5)}) == [5] * 8
    assert not pair.fallback
    tokens, compiled = (pair.sessions[engine].ran for engine in ENGINES)
    assert tokens is not None
    assert compiled is not None
    assert cfgraph.dumps(tokens) == cfgraph.dumps(compiled)
    recorder = Recorder()
    session = pair.sessions["compiled"]
    session.run(fetches, {"n:0": np.int32(5)}, trace=recorder)
    assert len({event.device for event in recorder.events}) == 8
    assert session.fallback == "the run is traced"


def test_an_error_of_a_placed_run_names_the_device_of_its_node() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]} @"/cpu:1"
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"} @"/cpu:0"
write = AssignVariableOp(v, x) {dtype=int32} @"/cpu:0"
zero = Sub(x, x) @"/cpu:1"
bad = FloorDiv(x, zero, ^write) @"/cpu:1"
"""
    outcome = pair_of(text, devices="cpu:0-1").run(["bad:0"], {"x:0": np.int32(3)})
    assert outcome[3:6] == ("bad", "/", "cpu:1")


def test_a_dead_fetch_of_a_placed_run_is_explained() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]} @"/cpu:0"
p = Placeholder() {dtype=bool, shape=[]} @"/cpu:0"
switch = Switch(x, p) @"/cpu:0"
y = Neg(switch:1) @"/cpu:1"
"""
    pair = pair_of(text, devices="cpu:0-1")
    feeds = {"x:0": np.float32(3), "p:0": np.bool_(False)}
    assert pair.run(["y:0"], feeds)[1] == "CFG702"
    assert not pair.fallback
