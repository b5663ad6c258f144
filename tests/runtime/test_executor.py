"""The rules of the executor, each on the smallest graph that shows it."""

from __future__ import annotations

import numpy as np
import pytest

from cfgraph.errors import ExecutionError, InvalidInput, RunTimeout, Unsupported, UsageError
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.preparation.prepared_runs import MAX_PREPARED_RUNS
from tests.recorder import Recorder
from tests.runtime.graphs import loop, session

CONDITIONAL = """
p = Placeholder() {dtype=bool, shape=[]}
x = Const() {dtype=float32, value=float32[]:3}
y = Const() {dtype=float32, value=float32[]:10}
sx = Switch(x, p)
sy = Switch(y, p)
f = Neg(sx)
t = Square(sy:1)
m = Merge(f, t)
"""


@pytest.mark.parametrize(("pred", "value", "index"), [(False, -3, 0), (True, 100, 1)])
def test_a_merge_forwards_the_live_input_and_its_slot(pred: bool, value: int, index: int) -> None:
    assert session(CONDITIONAL).run(["m:0", "m:1"], {"p": pred}) == [value, index]


def test_a_fetch_of_the_untaken_side_names_the_switch_and_its_predicate() -> None:
    with pytest.raises(
        ExecutionError, match=r"t:0 is dead: Switch 'sy' .* output 1, as p:0 is fal"
    ):
        session(CONDITIONAL).run(["t:0"], {"p": False})


def test_a_dead_target_is_no_error() -> None:
    assert session(CONDITIONAL).run([], {"p": False}, ["t"]) == []


def test_a_control_edge_from_a_switch_says_nothing_of_the_branch() -> None:
    text = CONDITIONAL + "after = Const(^sx) {dtype=int32, value=int32[]:7}\n"
    assert session(text).run(["after:0"], {"p": True}) == [7]


def test_a_control_edge_from_a_dead_node_kills() -> None:
    text = CONDITIONAL + "after = Const(^f) {dtype=int32, value=int32[]:7}\n"
    assert session(text).run(["after:0"], {"p": False}) == [7]
    with pytest.raises(ExecutionError, match="after:0 is dead"):
        session(text).run(["after:0"], {"p": True})


def test_a_merge_waits_for_a_dead_control_input_and_ignores_its_deadness() -> None:
    text = CONDITIONAL + "late = Merge(f, t, ^f, ^t)\n"
    assert session(text).run(["late:0"], {"p": True}) == [100]


def test_a_control_trigger_is_live_behind_dead_nodes_and_a_no_op_is_not() -> None:
    text = CONDITIONAL + (
        "trigger = ControlTrigger(^f, ^t)\nnoop = NoOp(^f)\n"
        "revived = Const(^trigger) {dtype=int32, value=int32[]:1}\n"
        "killed = Const(^noop) {dtype=int32, value=int32[]:1}\n"
    )
    assert session(text).run(["revived:0"], {"p": True}) == [1]
    with pytest.raises(ExecutionError, match="killed:0 is dead"):
        session(text).run(["killed:0"], {"p": True})


def test_a_dead_predicate_kills_both_sides_of_a_switch() -> None:
    text = CONDITIONAL + "q = Switch(p, p)\ns = Switch(x, q)\nboth = Merge(s:0, s:1)\n"
    with pytest.raises(ExecutionError, match=r"both:0 is dead: Switch 'q'"):
        session(text).run(["both:0"], {"p": True})
    assert session(text).run(["both:0"], {"p": False}) == [3]


def test_a_merge_with_one_tensor_in_two_slots_counts_it_twice() -> None:
    text = CONDITIONAL + "twice = Merge(f, f)\nafter = Merge(twice, t)\n"
    assert session(text).run(["after:0", "after:1"], {"p": True}) == [100, 1]


def test_a_merge_with_two_live_inputs_takes_the_lowest_slot_that_came_in_time() -> None:
    text = CONDITIONAL + "race = Merge(x, y)\n"
    assert session(text).run(["race:0", "race:1"]) == [3, 0]


@pytest.mark.parametrize("parallel", [1, 2, 10])
@pytest.mark.parametrize("count", [0, 1, 2, 57])
def test_a_loop_counts(parallel: int, count: int) -> None:
    assert session(loop(parallel)).run(["out:0"], {"n": count}) == [count]


def test_a_session_runs_again_and_again_on_one_plan() -> None:
    counting = session(loop())
    assert [counting.run(["out"], {"n": count})[0] for count in (5, 0, 3)] == [5, 0, 3]


def test_a_loop_in_an_untaken_branch_has_dead_exits() -> None:
    text = loop().replace("Enter(zero)", "Enter(start)") + (
        "p = Placeholder() {dtype=bool, shape=[]}\nstart = Switch(zero, p)\n"
        "both = Merge(out, start:1)\n"
    )
    assert session(text).run(["both:0", "both:1"], {"p": True, "n": 3}) == [0, 1]
    assert session(text).run(["both:0", "both:1"], {"p": False, "n": 3}) == [3, 0]
    with pytest.raises(ExecutionError, match=r"out:0 is dead: Switch 'start'"):
        session(text).run(["out:0"], {"p": True, "n": 3})


def test_a_dead_enter_counts_although_a_control_input_of_the_merge_comes_later() -> None:
    text = loop().replace("Enter(zero)", "Enter(start)").replace(
        "Merge(enter, next)", "Merge(enter, next, ^limit)"
    ) + (
        "p = Placeholder() {dtype=bool, shape=[]}\nstart = Switch(zero, p)\n"
        "both = Merge(out, start:1)\n"
    )
    assert session(text).run(["both:0"], {"p": True, "n": 3}) == [0]


def test_an_invariant_that_comes_late_reaches_all_iterations() -> None:
    text = loop() + (
        "slow = Neg(n)\nslower = Neg(slow)\nslowest = Neg(slower)\n"
        'late = Enter(slowest) {frame_name="loop", is_constant=true, parallel_iterations=10}\n'
        "sum = AddV2(body, late)\nkeep = Merge(enter2, next2)\n"
        'enter2 = Enter(zero) {frame_name="loop", parallel_iterations=10}\n'
        "s2 = Switch(keep, cond)\nmore = AddV2(s2:1, sum)\nnext2 = NextIteration(more)\n"
        "exit2 = Exit(s2)\n"
    )
    assert session(text).run(["exit2:0"], {"n": 4}) == [-4 * 4 + 0 + 1 + 2 + 3]


def test_a_frame_with_nothing_but_enter_and_exit_works() -> None:
    text = """
x = Const() {dtype=float32, value=float32[2]:[1,2]}
five = Const() {dtype=float32, value=float32[]:5}
a = Enter(x) {frame_name="f"}
b = Enter(five) {frame_name="f"}
c = Mul(a, b)
out = Exit(c)
"""
    (value,) = session(text).run(["out:0"])
    assert value.tolist() == [5, 10]


def test_a_body_on_the_false_side_leaves_its_next_iteration_incomplete() -> None:
    text = """
false = Const() {dtype=bool, value=bool[]:false}
ten = Const() {dtype=int32, value=int32[]:10}
e = Enter(ten) {frame_name="f"}
p = Enter(false) {frame_name="f"}
m = Merge(e, n)
s = Switch(m, p)
n = NextIteration(s)
out = Exit(s)
"""
    assert session(text).run(["out:0"]) == [10]


def test_one_next_iteration_may_feed_two_merges() -> None:
    text = loop() + (
        'second = Enter(zero) {frame_name="loop", parallel_iterations=10}\n'
        "m2 = Merge(second, next)\ns2 = Switch(m2, cond)\nexit2 = Exit(s2)\n"
    )
    assert session(text).run(["out:0", "exit2:0"], {"n": 6}) == [6, 6]


def test_nested_loops_of_one_name_under_two_parents_are_two_loops() -> None:
    inner = loop().replace("n = Placeholder() {dtype=int32, shape=[]}\n", "")
    first = inner.replace("(zero)", "(outer)").replace("Enter(n)", "Enter(outer_n)")
    text = (
        "n = Placeholder() {dtype=int32, shape=[]}\n"
        'outer = Enter(n) {frame_name="outer"}\nouter_n = Enter(n) {frame_name="outer"}\n'
        "o = Exit(out)\n" + first.replace("zero = Const() {dtype=int32, value=int32[]:0}\n", "")
    )
    again = loop().replace("n = Placeholder() {dtype=int32, shape=[]}\n", "")
    names = ["zero", "enter", "limit", "merge", "less", "cond", "switch", "body", "one", "add"]
    for name in [*names, "next", "exit", "out"]:
        for before, after in (("\n", " "), ("(", ","), ("(", ")"), (" ", ")"), ("^", ")")):
            again = again.replace(f"{before}{name}{after}", f"{before}{name}_b{after}")
        again = again.replace(f"({name}:", f"({name}_b:")
    assert session(text + again).run(["o:0", "out_b:0"], {"n": 4}) == [4, 4]


def test_iterations_may_begin_no_further_ahead_than_the_bound() -> None:
    """The slow branch of iteration 0 delays iteration 2 if two iterations may be in flight."""
    recorder = Recorder(values=True)
    session(loop(1)).run(["out:0"], {"n": 4}, trace=recorder)
    order = [event.frame for event in recorder.events if event.frame != "/"]
    assert order == sorted(order)


def test_a_fetch_inside_a_loop_that_runs_once_has_a_value() -> None:
    assert session(loop()).run(["less:0"], {"n": 0}) == [False]


def test_a_fetch_inside_a_loop_that_runs_on_has_several() -> None:
    with pytest.raises(ExecutionError, match="merge:0 is inside a loop"):
        session(loop()).run(["merge:0"], {"n": 2})


def test_a_second_live_exit_is_an_error() -> None:
    text = loop().replace("exit = Exit(switch)", "exit = Exit(merge)")
    with pytest.raises(ExecutionError, match="second value") as caught:
        session(text).run(["out:0"], {"n": 2})
    assert caught.value.node == "exit"
    assert caught.value.frame == "/loop[1]"


def test_a_run_away_loop_stops_at_the_limit() -> None:
    text = loop().replace("add = AddV2(body, one)", "add = Sub(body, one)")
    with pytest.raises(ExecutionError, match="more than 100 iterations") as caught:
        session(text).run(["out:0"], {"n": 1}, max_iterations=100)
    assert caught.value.frame == "/loop[100]"


def test_a_run_away_loop_stops_in_time() -> None:
    text = loop().replace("add = AddV2(body, one)", "add = Sub(body, one)")
    with pytest.raises(RunTimeout):
        session(text).run(["out:0"], {"n": 1}, timeout=0.05)


def test_a_loop_without_a_live_exit_leaves_the_fetch_missing() -> None:
    text = loop().replace("exit = Exit(switch)", "stop = Switch(switch, less)\nexit = Exit(stop:1)")
    with pytest.raises(ExecutionError, match=r"out:0 (got no value|is dead): .*'exit'"):
        session(text).run(["out:0"], {"n": 2})


def test_a_failing_kernel_is_named_with_frame_and_iteration() -> None:
    text = loop().replace("add = AddV2(body, one)", "q = FloorDiv(one, body)\nadd = AddV2(q, one)")
    with pytest.raises(ExecutionError) as caught:
        session(text).run(["out:0"], {"n": 5})
    assert (caught.value.node, caught.value.frame) == ("q", "/loop[0]")
    assert caught.value.device == "cpu:0"


def test_all_ops_without_a_kernel_are_named_before_anything_runs() -> None:
    text = "x = Frobnicate()\ny = Frobnicate()\nz = Whatever(x, y)\nout = Identity(z) {T=float32}\n"
    with pytest.raises(Unsupported, match=r"Frobnicate \(nodes 'x', 'y'\); Whatever \(node 'z'\)"):
        session(text).run(["out:0"])


def test_a_fed_tensor_replaces_what_computes_it() -> None:
    fed = session(CONDITIONAL)
    assert fed.run(["m:0"], {"p": True, "sy:1": np.float32(4)}) == [16]
    assert fed.run(["t:0", "sy:1"], {"p": False, "sy:1": np.float32(4)}) == [16, 4]


def test_a_fed_placeholder_lets_its_control_readers_run() -> None:
    text = CONDITIONAL + "after = Const(^p) {dtype=int32, value=int32[]:7}\n"
    assert session(text).run(["after:0"], {"p": True}) == [7]
    assert session(text).run(["after:0", "m:0"], {"p": True}) == [7, 100]


def test_a_fed_constant_still_waits_for_what_it_waited_for() -> None:
    text = """
v = VariableV2() {dtype=int32, shape=[]}
seven = Const() {dtype=int32, value=int32[]:7}
init = Assign(v, seven)
c = Const(^init) {dtype=int32, value=int32[]:1}
read = Identity(v, ^c)
"""
    assert session(text).run(["read:0", "c:0"], {"c": 5}, ["c"]) == [7, 5]


def test_a_fed_placeholder_is_a_target_that_is_done() -> None:
    assert session(CONDITIONAL).run([], {"p": True}, ["p"]) == []


def test_a_fed_variable_is_a_value_to_its_readers() -> None:
    text = """
v = VariableV2() {dtype=int32, shape=[]}
yes = Const() {dtype=bool, value=bool[]:true}
through = RefSwitch(v, yes)
read = Identity(v)
read_through = Identity(through:1)
"""
    fed = session(text)
    assert fed.run(["read:0", "v:0"], {"v": 5}) == [5, 5]
    assert fed.run(["read_through:0"], {"through:1": 6}) == [6]
    with pytest.raises(UsageError, match="expects the variable"):
        fed.run(["read_through:0"], {"v": 5})


@pytest.mark.parametrize("name", ["enter", "limit", "merge"])
def test_what_is_inside_a_loop_cannot_be_fed(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}:0 is inside the loop /loop"):
        session(loop()).run(["out:0"], {"n": 1, name: 1})


def test_what_no_fetch_needs_does_not_run() -> None:
    text = CONDITIONAL + "bad = Frobnicate()\n"
    assert session(text).run(["m:0"], {"p": True}) == [100]


@pytest.mark.parametrize(
    ("fetches", "feeds", "message"),
    [
        (["nothing:0"], {}, "no node 'nothing'"),
        (["m:2"], {}, "so output 2 does not exist"),
        (["m:0"], {"p": True, "p:0": True}, "fed more than once"),
        (["m:0"], {"q": 1}, "no node 'q'"),
        ([], {}, "nothing to fetch"),
    ],
)
def test_names_that_do_not_fit_are_usage_errors(
    fetches: list[str], feeds: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        session(CONDITIONAL).run(fetches, feeds)


def test_a_placeholder_that_is_not_fed_is_named() -> None:
    with pytest.raises(ExecutionError, match="'p'"):
        session(CONDITIONAL).run(["m:0"])


def test_inputs_from_two_frames_are_refused_before_the_run() -> None:
    with pytest.raises(InvalidInput):
        session(loop() + "mixed = AddV2(body, zero)\nout2 = Exit(mixed)\n").run(
            ["out2:0"], {"n": 1}
        )


def test_variables_outlive_the_session_that_made_them() -> None:
    text = """
v = VariableV2() {dtype=int32, shape=[]}
one = Const() {dtype=int32, value=int32[]:1}
init = Assign(v, one)
more = AssignAdd(v, one)
read = Identity(v)
"""
    state = State()
    session(text, state=state).run([], {}, ["init"])
    assert session(text, state=state).run(["more:0"]) == [2]
    assert session(text + "again = AddV2(read, one)\n", state=state).run(["again:0"]) == [3]
    with pytest.raises(ExecutionError, match="uninitialized"):
        session(text).run(["read:0"])


def test_what_the_caller_writes_into_its_arrays_changes_no_variable() -> None:
    text = """
v = VarHandleOp() {dtype=float32, shape=[2], shared_name="v"}
x = Placeholder() {dtype=float32, shape=[2]}
init = AssignVariableOp(v, x) {dtype=float32}
read = ReadVariableOp(v) {dtype=float32}
"""
    sharing = session(text)
    fed = np.ones(2, np.float32)
    sharing.run([], {"x": fed}, ["init"])
    fed[:] = 5
    (got,) = sharing.run(["read:0"])
    got[:] = 7
    assert sharing.run(["read:0"])[0].tolist() == [1, 1]
    (echo,) = sharing.run(["x:0"], {"x": np.ones(2, np.float32)}, ["init"])
    echo[:] = 9
    assert sharing.run(["read:0"])[0].tolist() == [1, 1]


def test_a_graph_and_its_functions_may_change_between_runs() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
y = PartitionedCall(x) {Tin=(int32), Tout=(int32), f=@f}

function f(a: int32) -> (b: int32) {
  k = Const() {dtype=int32, value=int32[]:2}
  m = Mul(a, k:output:0) {T=int32}
  return b = m:z:0
}
"""
    changing = session(text)
    assert changing.run(["y:0"], {"x": 3}) == [6]
    other = session(text.replace("int32[]:2", "int32[]:10")).graph
    changing.graph.functions["f"] = other.functions["f"]
    assert changing.run(["y:0"], {"x": 3}) == [30]
    changing.graph.add("Neg", changing.graph.tensor("y"), name="z")
    assert changing.run(["z:0", "y:0"], {"x": 3}) == [-30, 30]


def test_random_numbers_differ_by_run_and_iteration_and_not_by_schedule() -> None:
    text = loop() + (
        "shape = Const(^body) {dtype=int32, value=int32[0]:[]}\n"
        "draw = RandomUniform(shape) {dtype=float32, seed=1, seed2=2}\n"
        "gather = Neg(draw)\nkeep = NoOp(^gather)\n"
    )

    def drawn(**options: object) -> list[object]:
        recorder = Recorder(values=True)
        made = session(text, **options)
        for _ in range(2):
            made.run(["out:0"], {"n": 3}, ["keep"], trace=recorder)
        events = [event for event in recorder.events if event.node == "draw" and not event.dead]
        return sorted((event.frame, float(event.outputs[0])) for event in events)

    first = drawn()
    assert len({value for _, value in first}) == len(first) == 6
    assert drawn(schedule="random", schedule_seed=3) == first
    assert drawn(seed=1) != first


@pytest.mark.parametrize("seed", range(5))
def test_no_schedule_changes_a_value(seed: int) -> None:
    counting = session(loop(3), schedule="random", schedule_seed=seed)
    assert counting.run(["out:0"], {"n": 25}) == [25]


def test_a_trace_has_every_token_with_its_place() -> None:
    recorder = Recorder(values=True)
    session(loop()).run(["out:0"], {"n": 1}, trace=recorder)
    switch = [event for event in recorder.events if event.node == "switch"]
    assert [(e.frame, e.iteration, e.dead, e.outputs) for e in switch] == [
        ("/loop[0]", 0, False, (None, 0)),
        ("/loop[1]", 1, False, (1, None)),
    ]
    exits = [event for event in recorder.events if event.node == "exit"]
    assert [(event.dead, event.outputs) for event in exits] == [(True, (None,)), (False, (1,))]


def test_a_traced_run_returns_the_same_values() -> None:
    counting = session(loop())
    assert counting.run(["out:0"], {"n": 9}, trace=Recorder()) == counting.run(["out:0"], {"n": 9})


@pytest.mark.parametrize("timeout", [None, 100])
def test_a_long_queue_is_fired_first_in_first_out(timeout: float | None) -> None:
    count = 2000
    lines = ["c = Const() {dtype=int32, value=int32[]:1}"]
    lines += [f"a{k} = Identity(c)\nb{k} = Identity(a{k})" for k in range(count)]
    text = "\n".join([*lines, f"n = NoOp({', '.join(f'^b{k}' for k in range(count))})", ""])
    seen = Recorder()
    session(text).run([], {}, ["n"], trace=seen, timeout=timeout)
    assert [event.node for event in seen.events] == [
        "c",
        *(f"a{k}" for k in range(count)),
        *(f"b{k}" for k in range(count)),
        "n",
    ]


def test_what_killed_a_fetch_is_found_through_many_loops() -> None:
    lines = ["p = Placeholder() {dtype=bool, shape=[]}", "s = Switch(p, p)", "x0 = Identity(s:1)"]
    for k in range(500):
        lines.append(f'e{k} = Enter(x{k}) {{frame_name="f{k}"}}\nx{k + 1} = Exit(e{k})')
    with pytest.raises(ExecutionError, match="Switch 's' forwards nothing to output 1"):
        session("\n".join([*lines, ""])).run(["x500:0"], {"p": False})


def test_a_session_keeps_a_bounded_number_of_plans() -> None:
    text = "x = Placeholder() {dtype=int32, shape=[]}\n" + "".join(
        f"y{place} = Neg(x)\n" for place in range(MAX_PREPARED_RUNS + 5)
    )
    many = session(text)
    for place in range(MAX_PREPARED_RUNS + 5):
        assert many.run([f"y{place}:0"], {"x": place}) == [-place]
    assert len(many._prepared) == MAX_PREPARED_RUNS


def test_finished_iterations_are_let_go() -> None:
    counting = session(loop())
    counting.run(["out:0"], {"n": 500})
    (prepared,) = counting._prepared
    (executor,) = prepared.idle[0].executors
    assert executor.root is not None
    assert not executor.root.newest.children
    assert not executor.ready
