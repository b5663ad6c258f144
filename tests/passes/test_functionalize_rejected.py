"""Regions that keep their form: the code, the node, and what is functionalized next to them."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.passes.functionalize.functionalize import Functionalization

INPUTS = """
p = Placeholder() {dtype=bool, shape=[]}
q = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[2]}
s = Switch(x, p)
"""
# a conditional that has nothing to do with the others
OTHER = """
o = Switch(x, q)
o_neg = Neg(o)
o_abs = Abs(o:1)
other = Merge(o_neg, o_abs)
"""
BRANCHES = "a = Neg(s)\nb = Abs(s:1)\n"
LOOP = """
zero = Const() {dtype=int32, value=int32[]:0}
ten = Const() {dtype=int32, value=int32[]:10}
enter = Enter(zero) {frame_name="loop"}
limit = Enter(ten) {frame_name="loop", is_constant=true}
i = Merge(enter, next)
less = Less(i, limit)
cond = LoopCond(less)
switch = Switch(i, cond)
one = Const(^switch) {dtype=int32, value=int32[]:1}
add = AddV2(switch:1, one)
next = NextIteration(add)
exit = Exit(switch)
"""
VARIABLE = 'v = VarHandleOp() {dtype=float32, shape=[2], shared_name="v"}\n'


def functionalized(text: str, *fetches: str, **options: str) -> Functionalization:
    graph = cfgraph.loads((INPUTS + text).encode(), "graph")
    return cfgraph.functionalize(graph, fetches or None, **options)


CASES = {
    "two predicates": (
        "CFG601",
        "m",
        "t = Switch(x, q)\na = Neg(s)\nb = Abs(t:1)\nm = Merge(a, b)\nout = Identity(m)\n",
        ["out", "other"],
    ),
    "an Enter that the body reads": (
        "CFG601",
        "/loop",
        LOOP.replace("AddV2(switch:1, one)", "AddV2(switch:1, enter)"),
        ["exit"],
    ),
    "a NextIteration that the body reads": (
        "CFG601",
        "/loop",
        LOOP.replace("AddV2(switch:1, one)", "AddV2(late, one)")
        + "late = NextIteration(switch:1)\n",
        ["exit"],
    ),
    "a loop inside": (
        "CFG602",
        "/loop",
        LOOP.replace(
            "NextIteration(add)",
            """NextIteration(inner_exit)
inner = Enter(add) {frame_name="inner"}
j = Merge(inner, j_next)
j_limit = Enter(limit) {frame_name="inner", is_constant=true}
j_less = Less(j, j_limit)
j_cond = LoopCond(j_less)
j_switch = Switch(j, j_cond)
j_add = AddV2(j_switch:1, inner)
j_next = NextIteration(j_add)
inner_exit = Exit(j_switch)""",
        ),
        ["exit"],
    ),
    "an effect that is read elsewhere": (
        "CFG604",
        "m",
        VARIABLE
        + """
v_switch = Switch(v, p)
read = ReadVariableOp(v_switch:1) {dtype=float32}
t = Switch(read, q)
d = Neg(t)
e = Abs(t:1)
n = Merge(d, e)
a = Neg(s)
m = Merge(a, read)
k = AddV2(n, s:1)
sum = Merge(s, k)
write = AssignVariableOp(v, m) {dtype=float32}
after = Switch(sum, p, ^write)
back = Neg(after)
forth = AddV2(after:1, n)
end = Merge(back, forth)
""",
        ["end"],
    ),
    "a fetch in a branch": ("CFG605", "b", BRANCHES + "m = Merge(a, b)\n", ["m", "b"]),
    "references": (
        "CFG606",
        "m",
        """
v = VariableV2() {dtype=float32, shape=[2]}
w = VariableV2() {dtype=float32, shape=[2]}
v_switch = RefSwitch(v, p)
w_switch = RefSwitch(w, p)
m = RefMerge(v_switch, w_switch:1)
out = Identity(m)
""",
        ["out"],
    ),
    "a value of unknown type": (
        "CFG607",
        "m",
        "u = Unregistered(x)\na = UnregisteredToo(s, u)\nb = Abs(s:1)\nm = Merge(b, a)\n",
        ["m"],
    ),
    "a loop that is entered after its exit": (
        "CFG609",
        "/loop",
        LOOP
        + """
late_enter = Enter(exit) {frame_name="loop"}
late = Merge(late_enter, late_next)
late_switch = Switch(late, cond)
late_next = NextIteration(late_switch:1)
late_exit = Exit(late_switch)
""",
        ["late_exit"],
    ),
    "an input inside": (
        "CFG608",
        "m",
        "a = PlaceholderWithDefault(s) {shape=[2]}\nb = Abs(s:1)\nm = Merge(a, b)\n",
        ["m"],
    ),
    "a fetch in a loop": ("CFG608", "/loop", LOOP, ["exit", "add"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_region_that_keeps_its_form_has_a_code(name: str) -> None:
    code, region, text, fetches = CASES[name]
    report = functionalized(text + OTHER, *fetches, "other")
    assert region in {each.name for each in report.rejected if each.code == code}, report.rejected
    assert "other" in {each.name for each in report.regions if each.replacement is not None}


def test_zeros_take_the_place_of_a_dead_fetch() -> None:
    graph = cfgraph.loads((INPUTS + BRANCHES + "n = Neg(b)\n").encode(), "graph")
    report = cfgraph.functionalize(graph, "n", dead_as="zeros")
    assert not report.rejected
    assert report.warnings == ("n is zeros where it was dead",)
    session = cfgraph.Session(graph)
    assert session.run(["n"], {"x": [1, 2], "p": True})[0].tolist() == [-1, -2]
    assert session.run(["n"], {"x": [1, 2], "p": False})[0].tolist() == [0, 0]


def test_zeros_of_unknown_shape_are_rejected() -> None:
    text = "y = Placeholder() {dtype=float32, shape=?}\nt = Switch(y, p)\n"
    report = functionalized(text, "t:1", dead_as="zeros")
    assert [each.code for each in report.rejected] == ["CFG605"]


@pytest.mark.parametrize("option", ["tensor_arrays", "dead_as"])
def test_an_unknown_mode_is_a_usage_error(option: str) -> None:
    with pytest.raises(cfgraph.UsageError, match="unknown"):
        functionalized(BRANCHES, **{option: "x"})


@pytest.mark.parametrize("fetches", [("u:1",), ("u:0", "u:1")])
def test_zeros_replace_no_single_output_of_several(fetches: tuple[str, ...]) -> None:
    graph = cfgraph.loads((INPUTS + "u = Unpack(s) {num=2, axis=0}\n").encode(), "graph")
    report = cfgraph.functionalize(graph, fetches, dead_as="zeros")
    assert {each.code for each in report.rejected} == {"CFG605"}
    assert graph["u"].op == "Unpack"


def test_two_spellings_of_a_dead_fetch_share_its_zeros() -> None:
    graph = cfgraph.loads((INPUTS + BRANCHES).encode(), "graph")
    report = cfgraph.functionalize(graph, ("a", "a:0", "^a"), dead_as="zeros")
    assert report.warnings == ("a is zeros where it was dead",)
    assert not report.rejected
    assert [node.op for node in graph if node.inputs] == ["StatelessIf", "Identity"]


UNDECIDED = """
r = Placeholder() {dtype=bool, shape=[]}
e = Switch(x, r)
t = Switch(e:1, p)
u = Switch(e:1, q)
a = Neg(t)
b = Abs(u:1)
inner = Merge(a, b)
"""


def test_a_fetched_merge_that_keeps_its_form_remains() -> None:
    graph = cfgraph.loads((INPUTS + UNDECIDED + "outer = Merge(inner, e)\n").encode(), "graph")
    before = cfgraph.dumps(graph)
    assert not cfgraph.functionalize(graph, ("outer", "inner", "s:1"))
    assert cfgraph.dumps(graph) == before


def test_a_merge_of_the_index_of_another_is_not_flattened() -> None:
    outer = """
seven = Const() {dtype=int32, value=int32[]:7}
k = Switch(seven, r)
outer = Merge(inner:1, k)
"""
    graph = cfgraph.loads((INPUTS + UNDECIDED + outer).encode(), "graph")
    cfgraph.functionalize(graph, "outer")
    run = cfgraph.Session(graph).run
    feeds = {"x": [1, 2], "p": True, "q": True}
    assert [run("outer", {**feeds, "r": r})[0] for r in (False, True)] == [7, 1]


LATE = LOOP.replace("exit = ", 'h = Enter(v) {frame_name="loop", is_constant=true}\nexit = ')


def test_an_effect_of_each_iteration_after_one_of_the_body_keeps_the_loop() -> None:
    effects = """
two = Const(^switch) {dtype=float32, value=float32[2]:[2, 2]}
a = AssignAddVariableOp(h, two, ^add) {dtype=float32}
after = ControlTrigger(^a)
m = AssignSubVariableOp(h, two, ^after) {dtype=float32}
"""
    report = functionalized(VARIABLE + LATE + effects)
    assert [each.code for each in report.rejected] == ["CFG604"]


def test_a_fetched_exit_that_is_live_in_more_runs_than_the_loop_keeps_it() -> None:
    text = LOOP.replace("exit = ", "y = Merge(y_enter, y_next)\nexit = ")
    text += """
y_enter = Enter(s:1) {frame_name="loop"}
y_switch = Switch(y, cond)
y_next = NextIteration(y_switch:1)
out = Exit(y_switch)
"""
    for fetches in [(), ("exit", "out")]:
        report = functionalized(text, *fetches)
        assert "CFG603" in {each.code for each in report.rejected}


def test_an_effect_behind_the_result_of_a_loop_that_it_follows_keeps_its_form() -> None:
    # the loop is in a branch; its result leaves the branch, and comes back into it for `last`
    report = functionalized("""
enter = Enter(s:1) {frame_name="loop"}
i = Merge(enter, next)
stop = Const(^i) {dtype=bool, value=bool[]:false}
cond = LoopCond(stop)
switch = Switch(i, cond)
said = Print(switch:1, switch:1)
next = NextIteration(said)
exit = Exit(switch)
m = Merge(s, exit)
n = Neg(m)
t = Switch(n, p)
last = Print(t:1, t:1, ^exit)
""")
    replaced = [region.name for region in report.regions if region.replacement is not None]
    assert replaced == ["m", "/loop"]
    assert [region.name for region in report.rejected] == ["last"]
