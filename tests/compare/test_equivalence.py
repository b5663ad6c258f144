"""Comparison by running: every planted miscompilation is found, with its first wrong node."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cfgraph
from cfgraph.comparison.divergence import first_divergence
from cfgraph.comparison.equivalence import ComparisonRunOptions, compare_runs
from cfgraph.comparison.sample_point import DimensionSizes, SampleOptions, sample_point
from cfgraph.errors import ExecutionError, UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.runtime.preparation.prepare import PlannedRun, plan_run

LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
unit = Const() {dtype=int32, value=int32[]:1}
i = Enter(zero) {frame_name="loop"}
p = Enter(unit) {frame_name="loop"}
bound = Enter(n) {frame_name="loop", is_constant=true}
two = Enter(unit) {frame_name="loop", is_constant=true}
i/Merge = Merge(i, i/Next)
p/Merge = Merge(p, p/Next)
less = Less(i/Merge, bound)
cond = LoopCond(less)
i/Switch = Switch(i/Merge, cond)
p/Switch = Switch(p/Merge, cond)
i/add = AddV2(i/Switch:1, two)
p/add = AddV2(p/Switch:1, i/Switch:1)
i/Next = NextIteration(i/add)
p/Next = NextIteration(p/add)
i/Exit = Exit(i/Switch)
p/Exit = Exit(p/Switch)
count = Identity(i/Exit)
sum = Identity(p/Exit)
"""

CHOICE = """
x = Placeholder() {dtype=float32, shape=[2,2]}
y = Placeholder() {dtype=float32, shape=[2,2]}
p = Placeholder() {dtype=bool, shape=[]}
x/Switch = Switch(x, p)
y/Switch = Switch(y, p)
no = Neg(x/Switch)
yes = MatMul(y/Switch:1, y/Switch:1)
out = Merge(no, yes)
side = Identity(out:1)
value = Identity(out)
"""

STATE = """
x = Placeholder() {dtype=float32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
assign = AssignVariableOp(v, x)
read = ReadVariableOp(v, ^assign) {dtype=float32}
more = AssignAddVariableOp(w, x)
out = Identity(read, ^more)
"""


class PlantedMistake(NamedTuple):
    """A planted error: a replacement of text, and the first node with a wrong value."""

    text: str
    mistakes: dict[str, str]
    first: str
    iteration: int = 0
    message: str = "differ"

    def wrong(self) -> Graph:
        text = self.text
        for old, new in self.mistakes.items():
            assert old in text
            text = text.replace(old, new)
        return cfgraph.loads(text.encode())


PLANTED_MISTAKES = {
    "a dropped control edge": PlantedMistake(STATE, {"(v, ^assign)": "(v)"}, "read"),
    "a write to another variable": PlantedMistake(
        STATE, {"AddVariableOp(w, x": "AddVariableOp(v, x"}, "read"
    ),
    "swapped Switch outputs": PlantedMistake(
        CHOICE,
        {"(x/Switch)": "(x/Switch:1)", "(y/Switch:1, y/Switch:1)": "(y/Switch, y/Switch)"},
        "no",
        message="dead in B",
    ),
    "deadness that is lost": PlantedMistake(
        CHOICE, {"(x/Switch)": "(x)"}, "no", message="live in B"
    ),
    "swapped Merge inputs": PlantedMistake(CHOICE, {"(no, yes)": "(yes, no)"}, "out"),
    "a wrong constant": PlantedMistake(LOOP, {"int32[]:1": "int32[]:2"}, "unit"),
    "a wrong predicate": PlantedMistake(LOOP, {"= Less(": "= Greater("}, "less"),
    "a loop bound off by one": PlantedMistake(LOOP, {"= Less(": "= LessEqual("}, "less", 3),
    "a dropped update": PlantedMistake(
        LOOP, {"p/Next = NextIteration(p/add)": "p/Next = NextIteration(p/Switch:1)"}, "p/Next", 1
    ),
    "a wrong Exit": PlantedMistake(
        LOOP, {"p/Exit = Exit(p/Switch)": "p/Exit = Exit(i/Switch)"}, "p/Exit", 3
    ),
    "a wrong attribute": PlantedMistake(
        CHOICE, {"y/Switch:1)": "y/Switch:1) {transpose_a=true}"}, "yes"
    ),
}


def comparison_options(graph: Graph) -> ComparisonRunOptions:
    feeds = {"n:0": np.int32(3)} if "n" in graph else {}
    return ComparisonRunOptions(SampleOptions(feeds, max_iterations=100))


@pytest.mark.parametrize("name", PLANTED_MISTAKES)
def test_a_planted_miscompile_is_found_and_its_first_node_named(name: str) -> None:
    plant = PLANTED_MISTAKES[name]
    graph, again = cfgraph.loads(plant.text.encode()), cfgraph.loads(plant.text.encode())
    assert not compare_runs(graph, again, comparison_options(graph))
    delta = compare_runs(graph, plant.wrong(), comparison_options(graph))
    assert delta
    assert delta.first is not None
    assert (delta.first.node, delta.first.iteration) == (plant.first, plant.iteration)
    assert plant.message in delta.first.message


def test_a_lost_send_is_found_and_the_receiver_named() -> None:
    graph = cfgraph.loads(LOOP.encode())
    cfgraph.place(graph, devices="cpu:0-1", rules={"i/*": "cpu:0", "p/*": "cpu:1"})
    cfgraph.partition(graph)
    assert not compare_runs(cfgraph.loads(LOOP.encode()), graph, comparison_options(graph))
    wrong = copy_graph(graph)
    send = next(
        node for node in wrong if node.op == "_Send" and node.inputs[0].node.name == "i/Switch"
    )
    wrong.remove(send)
    delta = compare_runs(graph, wrong, comparison_options(graph))
    assert delta.failure is not None
    assert delta.first is not None
    assert (delta.first.op, wrong[delta.first.node].attr("tensor_name")) == (
        "_Recv",
        send.attr("tensor_name"),
    )


def test_a_cluster_that_ignores_deadness_is_found(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "deadness_mismatch.pb")
    for deadness, wrong in (("exact", False), ("off", True)):
        clustered = copy_graph(graph)
        cfgraph.cluster(clustered, deadness=deadness)
        delta = compare_runs(graph, clustered)
        assert bool(delta) is wrong
    assert delta.first is not None
    assert delta.first.message == "live in A, dead in B"


def test_a_long_run_is_compared_window_by_window() -> None:
    right = cfgraph.loads(LOOP.encode())
    wrong = PLANTED_MISTAKES["a loop bound off by one"].wrong()
    setting = SampleOptions({"n:0": np.int32(9)})
    a, b = (sample_point(item, [item["sum"]], setting, 0) for item in (right, wrong))
    divergences = [
        first_divergence(
            a,
            b,
            lambda point, trace: point.run(["sum:0"], trace=trace),
            wrong.nodes.keys(),
            None,
            None,
            room,
        )
        for room in (1000, 5000, 1 << 20)
    ]
    assert {(item.node, item.iteration) for item in divergences if item} == {("less", 9)}


def test_unknown_sizes_are_set_by_name_or_for_all() -> None:
    graph = cfgraph.loads(
        b"x = Placeholder() {dtype=float32, shape=[?,3,?]}\n"
        b"y = Placeholder() {dtype=float32, shape=[?]}\nz = Neg(x)\nu = Neg(y)\n"
    )
    sizes = DimensionSizes(7, {"x:0": (4, 5)})
    required = [graph["z"], graph["u"]]
    z, u = sample_point(graph, required, SampleOptions(sizes=sizes), 0).run(["z:0", "u:0"])
    assert (z.shape, u.shape) == ((4, 3, 5), (7,))


def test_variables_start_equal_and_are_compared_after_the_run() -> None:
    text = STATE.replace("AssignAddVariableOp(w, x)", "AssignSubVariableOp(w, x)")
    delta = compare_runs(cfgraph.loads(STATE.encode()), cfgraph.loads(text.encode()))
    assert [gap.what for gap in delta.gaps] == ["variable w"]


BORROWED = """
x = Placeholder() {dtype=float32, shape=[]}
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
set = AssignVariableOp(w, x) {dtype=float32}
y = Identity(x, ^set)
read = ReadVariableOp(w) {dtype=float32}
"""


@pytest.mark.parametrize(("fetch", "warnings"), [("y:0", 0), ("read:0", 1)])
def test_values_that_one_graph_lends_are_reported_if_they_are_read(
    fetch: str, warnings: int
) -> None:
    a, b = (cfgraph.loads(BORROWED.encode()) for _ in range(2))
    session = cfgraph.Session(a)
    session.run([], {"x": 3}, ["set"])
    setting = SampleOptions(state=session.state)
    options = ComparisonRunOptions(setting, (fetch,), independent=True)
    delta = compare_runs(a, b, options)
    assert (bool(delta), len(delta.notices)) == (False, warnings)


def test_without_fetches_side_effects_are_compared() -> None:
    text = STATE[: STATE.index("read = ")] + "more = AssignAddVariableOp(w, x, ^assign)\n"
    graph = cfgraph.loads(text.encode())
    delta = compare_runs(graph, copy_graph(graph))
    assert not delta
    assert delta.fetches == ()
    wrong = cfgraph.loads(text.replace("AssignAdd", "AssignSub").encode())
    assert [gap.what for gap in compare_runs(graph, wrong).gaps] == ["variable w"]


def test_a_failure_of_the_first_graph_is_an_error_and_of_the_second_a_difference() -> None:
    text = 'x = Placeholder() {dtype=float32, shape=[]}\ny = CheckNumerics(x) {message="no"}\n'
    good, bad = text.replace("CheckNumerics", "Identity").replace('{message="no"}', ""), text
    setting = SampleOptions({"x:0": np.float32(np.nan)})
    a, b = cfgraph.loads(good.encode()), cfgraph.loads(bad.encode())
    with pytest.raises(ExecutionError):
        compare_runs(b, a, ComparisonRunOptions(setting))
    delta = compare_runs(a, b, ComparisonRunOptions(setting))
    assert delta.failure is not None
    assert delta.first is not None
    assert delta.first.node == "y"


def test_outputs_of_only_one_graph_are_reported() -> None:
    a = cfgraph.loads(b"x = Const() {dtype=int32, value=int32[]:1}\ny = Neg(x)\nz = Abs(x)\n")
    b = cfgraph.loads(b"x = Const() {dtype=int32, value=int32[]:1}\ny = Neg(x)\n")
    delta = compare_runs(a, b)
    assert (bool(delta), delta.missing, delta.cases) == (True, ("z:0",), 4)
    assert not compare_runs(a, b, ComparisonRunOptions(fetches=("y:0",)))
    assert not compare_runs(b, a)
    c = cfgraph.loads(b"q = Const() {dtype=int32, value=int32[]:1}\n")
    with pytest.raises(UsageError, match="no outputs in common"):
        compare_runs(a, c)


def test_a_variable_of_only_the_second_graph_is_compared() -> None:
    text = "x = Placeholder() {dtype=float32, shape=[]}\nout = Identity(x)\n"
    more = text.replace("(x)", "(x, ^u)") + (
        'v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}\n'
        "u = AssignAddVariableOp(v, x)\n"
    )
    a, b = (cfgraph.loads(item.encode()) for item in (text, more))
    for graphs in ((a, b), (b, a)):
        delta = compare_runs(*graphs, ComparisonRunOptions(fetches=("out:0",)))
        assert [gap.what for gap in delta.gaps] == ["variable v"]


def test_a_string_variable_is_not_randomized() -> None:
    text = """
s = Const() {dtype=string, value=string[]:"one"}
v = VarHandleOp() {dtype=string, shape=[], shared_name="v"}
u = AssignVariableOp(v, s)
out = ReadVariableOp(v, ^u) {dtype=string}
"""
    right, wrong, without = (
        cfgraph.loads(item.encode())
        for item in (text, text.replace("one", "two"), text.replace(", ^u", ""))
    )
    assert not compare_runs(right, copy_graph(right))
    assert [gap.what for gap in compare_runs(right, wrong).gaps] == ["out:0", "variable v"]
    with pytest.raises(ExecutionError) as caught:
        compare_runs(without, right, ComparisonRunOptions(fetches=("out:0",)))
    assert "--init" in (caught.value.hint or "")


def test_all_cases_share_the_plans_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[object] = []

    def plan(*args: Any, **options: Any) -> PlannedRun:
        planned.append(args[0].graph)
        return plan_run(*args, **options)

    monkeypatch.setattr("cfgraph.runtime.preparation.prepared_runs.plan_run", plan)
    text = STATE + "\nr = RandomUniform(shape) {T=int32, dtype=float32, seed=1}\n"
    for source in (CHOICE, text + "shape = Const() {dtype=int32, value=int32[1]:[2]}\n"):
        planned.clear()
        a, b = (cfgraph.loads(source.encode(), "graph") for _ in range(2))
        assert not compare_runs(a, b, ComparisonRunOptions(cases=4))
        assert len(planned) <= 4


def test_the_index_of_a_merge_is_no_output_if_one_graph_lacks_it() -> None:
    text = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
s = Switch(x, p)
neg = Neg(s)
double = AddV2(s:1, s:1)
m = Merge(neg, double)
"""
    before = cfgraph.loads(text.encode(), "graph")
    after = copy_graph(before)
    cfgraph.functionalize(after, fetches=["m:0"])
    delta = compare_runs(before, after)
    assert not delta
    assert delta.missing == ()
    assert delta.fetches == ("m:0",)


def test_an_invalid_constant_that_nothing_needs_is_not_compared() -> None:
    text = "x = Placeholder() {dtype=float32, shape=[2]}\ny = Neg(x)\n"
    more = "unread = Const() {dtype=int32, value=VALUE}\n"
    a, b = (
        cfgraph.loads((text + more.replace("VALUE", value)).encode(), "graph")
        for value in ("true", "int32[]:2")
    )
    assert not compare_runs(a, b, ComparisonRunOptions(fetches=("y",)))


def test_inputs_of_strings_are_drawn_with_the_constants_of_the_graph() -> None:
    text = """
s = Placeholder() {dtype=string, shape=[8]}
key = Const() {dtype=string, value=string[]:"key"}
y = Equal(s, key)
"""
    same, renamed, other = (
        cfgraph.loads(item.encode(), "graph")
        for item in (
            text,
            text.replace("s = ", "t = ").replace("(s,", "(t,"),
            text.replace('"key', '"k'),
        )
    )
    options = ComparisonRunOptions(independent=True)
    assert not compare_runs(same, renamed, options)
    assert [gap.what for gap in compare_runs(same, other, options).gaps] == ["y:0"]


def test_random_initializers_of_other_names_draw_the_same_numbers() -> None:
    text = """
shape = Const() {dtype=int32, value=int32[1]:[2]}
r = RandomUniform(shape) {T=int32, dtype=float32, seed=1}
w = VarHandleOp() {dtype=float32, shape=[2], shared_name="w"}
init = AssignVariableOp(w, r)
y = ReadVariableOp(w) {dtype=float32}
"""
    a, b, seeded = (
        cfgraph.loads(item.encode(), "graph")
        for item in (text, text.replace("r = ", "q = ").replace(", r)", ", q)"), text)
    )
    seeded.set_attr(seeded["r"], "seed", 2)
    options = ComparisonRunOptions(
        SampleOptions(inits=["init"]), fetches=("y:0",), independent=True
    )
    delta = compare_runs(a, b, options)
    assert not delta
    messages = [notice.message for notice in delta.notices]
    assert messages == ["random stream paired by op and seed: r is q in B"]
    assert compare_runs(a, seeded, options)


def test_texts_of_a_variable_are_not_taken_for_its_liveness() -> None:
    one, two = (
        cfgraph.loads(
            b'versions producer=1\nv = VarHandleOp() {dtype=string, shape=[1], shared_name="v"}\n'
            b'c = Const() {dtype=string, value=string[1]:["%s"]}\n'
            b"a = AssignVariableOp(v, c) {dtype=string}\n" % word
        )
        for word in (b"dead", b"live")
    )
    delta = compare_runs(one, two, ComparisonRunOptions(targets=("a",)))
    assert [gap.message for gap in delta.gaps if gap.what == "variable v"] == [
        "1 of 1 elements differ, the first at [0]: 'dead' and 'live'"
    ]
