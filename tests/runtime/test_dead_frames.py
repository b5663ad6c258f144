"""Frames that a dead entry skips: answers are those of a traced run, which skips none."""

from __future__ import annotations

import cProfile
from typing import Any

import numpy as np
import pytest

import cfgraph
from benchmarks.families import FAMILIES
from cfgraph.errors import CfgraphError
from tests.recorder import Recorder

# a loop in the branch of a conditional; EXTRA are nodes in the loop
_BRANCH = """
p = Placeholder() {dtype=bool, shape=[]}
x = Const() {dtype=float32, value=float32[]:3}
sx = Switch(x, p)
enter = Enter(sx:1) {frame_name="loop"}
limit = Enter(LIMIT) {frame_name="loop", is_constant=CONSTANT}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
next = NextIteration(double)
double = AddV2(switch:1, switch:1)
exit = Exit(switch)
m = Merge(sx:0, exit)
late = Const(^m) {dtype=float32, value=float32[]:20}
high = Const() {dtype=float32, value=float32[]:20}
"""


def _answer(graph: cfgraph.Graph, fetch: str, feeds: dict[str, Any], trace: Any = None) -> object:
    session = cfgraph.Session(graph, engine="tokens")
    try:
        return session.run([fetch], feeds, trace=trace, allow_dead=True)
    except CfgraphError as error:
        return str(error)


def _both_answers(text: str, fetch: str, feeds: dict[str, Any]) -> tuple[object, object]:
    graph = cfgraph.loads(text.encode(), "graph")
    traced = _answer(graph, fetch, feeds, Recorder())
    return _answer(graph, fetch, feeds), traced


@pytest.mark.parametrize("pred", [False, True])
@pytest.mark.parametrize("constant", ["false", "true"])
@pytest.mark.parametrize("limit", ["sx:1", "high", "late"])
@pytest.mark.parametrize("fetch", ["m", "exit", "less", "limit", "merge:1"])
def test_answers_are_those_of_a_traced_run(
    pred: bool, constant: str, limit: str, fetch: str
) -> None:
    # live and dead Enters, in both orders; an Enter that waits for the loop; fetches inside
    text = _BRANCH.replace("LIMIT", limit).replace("CONSTANT", constant)
    skipping, traced = _both_answers(text, fetch, {"p": pred})
    assert skipping == traced


@pytest.mark.parametrize("pred", [False, True])
def test_a_trigger_in_a_dead_loop_is_live(pred: bool) -> None:
    text = _BRANCH.replace("LIMIT", "sx:1").replace("CONSTANT", "true") + (
        "trigger = ControlTrigger(^enter)\n"
        "one = Const(^trigger) {dtype=int32, value=int32[]:1}\n"
        "revived = Exit(one)\nout = Identity(revived)\n"
    )
    skipping, traced = _both_answers(text, "out", {"p": pred})
    assert skipping == traced == [1]


def test_a_merge_without_an_enter_waits_for_its_back_edge() -> None:
    text = (
        _BRANCH.replace("LIMIT", "sx:1").replace("CONSTANT", "true")
        + "outer = Identity(enter)\nm2 = Merge(outer, n2)\ns2 = Switch(m2, cond)\n"
        "n2 = NextIteration(s2:1)\nexit2 = Exit(s2)\nout = Identity(exit2)\n"
    )
    skipping, traced = _both_answers(text, "out", {"p": False})
    assert skipping == traced
    assert "has no value" in str(skipping) or "got no value" in str(skipping)


@pytest.mark.parametrize("family", ["nested_loops", "nested_whiles", "loops_in_conditionals"])
def test_nested_loops_end_in_linear_time(family: str) -> None:
    def calls(count: int) -> int:
        session = cfgraph.Session(
            cfgraph.loads(FAMILIES[family](count).encode(), "graph"), engine="tokens"
        )
        session.run(["y"], feeds)
        profile = cProfile.Profile()
        assert profile.runcall(session.run, ["y"], feeds) == [-1]
        return sum(entry.callcount for entry in profile.getstats())

    feeds = {"x": np.float32(1)}
    assert calls(48) < 4.2 * calls(12)


@pytest.mark.parametrize("node", ["merge", "exit", "m", "limit", "sx"])
@pytest.mark.parametrize("pred", [False, True])
def test_an_observer_of_one_node_gets_all_of_its_events(node: str, pred: bool) -> None:
    class OneNode(Recorder):
        only_node = node

    text = _BRANCH.replace("LIMIT", "sx:1").replace("CONSTANT", "true")
    graph = cfgraph.loads(text.encode(), "graph")
    events = []
    for recorder in (Recorder(), OneNode()):
        _answer(graph, "m", {"p": pred}, recorder)
        events.append([event for event in recorder.events if event.node == node])
    assert [event._replace(start_ns=0, end_ns=0) for event in events[0]] == [
        event._replace(start_ns=0, end_ns=0) for event in events[1]
    ]
    assert len(recorder.events) == len(events[0]) > 0


def _nested_loops(builder: cfgraph.Builder, limit: Any, depth: int) -> Any:
    """Loops inside of each other, of which the outermost has a limit."""

    def body(i: Any) -> Any:
        inner = _nested_loops(builder, builder.const(2), depth - 1) if depth > 1 else i
        return builder.AddV2(builder.AddV2(i, 1), builder.Mul(inner, 0))

    start = builder.const(0)
    return builder.while_loop(lambda i: builder.Less(i, limit), body, [start])[0]


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_dead_fetch_of_nested_loops_names_the_loop_that_did_not_run(depth: int) -> None:
    builder = cfgraph.Builder()
    _nested_loops(builder, builder.placeholder("n", "int32", []), depth)
    cfgraph.lower(builder.graph)
    exits = [node.name for node in builder.graph if node.op == "Exit"]
    innermost = max(exits, key=len)
    with pytest.raises(CfgraphError, match="was live in no iteration of 'while'") as caught:
        cfgraph.Session(builder.graph).run(innermost, {"n": 0})
    assert (caught.value.code, caught.value.node) == ("CFG702", innermost)
