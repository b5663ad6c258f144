"""Tensors outside of functionalized regions remain if nothing says what will be fetched."""

from __future__ import annotations

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.ir.files import loads
from cfgraph.ir.graph import Graph
from cfgraph.ops.opdef.op import role_of
from tests.passes.random_programs import random_program

BRANCH = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
two = Const() {dtype=float32, value=float32[]:2}
square = Mul(x, x)
switch = Switch(square, p)
unread = Neg(switch)
xs = Switch(x, p)
double = Mul(xs:1, two)
minus = Neg(xs)
y = Merge(minus, double)
"""
LOOP = """
x = Placeholder() {dtype=float32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
three = Const() {dtype=int32, value=int32[]:3}
square = Mul(x, x)
enter = Enter(zero) {frame_name="loop"}
limit = Enter(three) {frame_name="loop", is_constant=true}
factor = Enter(square) {frame_name="loop", is_constant=true}
i = Merge(enter, next)
less = Less(i, limit)
cond = LoopCond(less)
switch = Switch(i, cond)
one = Const(^switch) {dtype=int32, value=int32[]:1}
add = AddV2(switch:1, one)
unread = Neg(factor)
next = NextIteration(add)
exit = Exit(switch)
"""
# the index of a Merge keeps the dead branch, and with it the Switch that the other nodes read
CONSTANT = """
x = Placeholder() {dtype=float32, shape=[]}
q = Placeholder() {dtype=bool, shape=[]}
never = Const() {dtype=bool, value=bool[]:false}
switch = Switch(x, never)
minus = Neg(switch)
abs = Abs(switch:1)
indexed = Merge(minus, abs)
root = Sqrt(switch)
sin = Sin(switch:1)
merged = Merge(root, sin)
y = Identity(merged)
only = Merge(root, sin)
again = Switch(only, q)
unread = Exp(again:1)
result = Sinh(switch)
"""
# with a constant that only regions read, and an operand of what nothing reads
CASES = {
    "branch": (BRANCH, ["two", "square", "y", "y:1"]),
    "loop": (LOOP, ["zero", "three", "square", "exit"]),
}


def outside_regions(graph: Graph) -> set[str]:
    """The nodes outside of loops that are live whatever the predicates are."""
    conditions = deadness(graph, free_constants=True)
    root = conditions.frames.root
    return {
        node.name
        for node in graph
        if role_of(node) is None
        and conditions.frames.of_outputs.get(node, root) is root
        and conditions.always_live(node)
    }


@pytest.mark.parametrize("form", ["tensorflow", "converter"])
@pytest.mark.parametrize("name", CASES)
def test_a_tensor_outside_of_regions_keeps_its_name_and_value(name: str, form: str) -> None:
    text, fetches = CASES[name]
    graph = loads(text.encode(), "graph")
    feeds = {"x": np.float32(3), "p": np.array(True)}
    feeds = {name: value for name, value in feeds.items() if name in graph}
    expected = cfgraph.Session(graph).run(fetches, feeds)
    assert cfgraph.functionalize(graph, target=form).regions
    assert cfgraph.Session(graph).run(fetches, feeds) == expected


def test_a_branch_that_never_runs_takes_no_result_with_it() -> None:
    graph = loads(CONSTANT.encode(), "graph")
    fetches = ["indexed", "indexed:1", "merged", "y", "only", "result"]
    feeds = {"x": np.float32(4), "q": np.array(True)}
    expected = cfgraph.Session(graph).run(fetches, feeds)
    assert "unread" in cfgraph.functionalize(graph).dropped
    assert cfgraph.Session(graph).run(fetches, feeds) == expected


@pytest.mark.parametrize("name", CASES)
def test_with_fetches_it_is_dropped(name: str) -> None:
    graph = loads(CASES[name][0].encode(), "graph")
    cfgraph.functionalize(graph, CASES[name][1][-1])
    assert {"two", "three", "square"}.isdisjoint(graph.nodes)


def test_an_input_stays_with_what_it_waits_for() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
before = Neg(x)
later = Placeholder(^before) {dtype=float32, shape=[]}
unread = Exp(later)
y = Abs(x)
"""
    graph = loads(text.encode(), "graph")
    cfgraph.functionalize(graph, "y")
    assert list(graph.nodes) == ["x", "before", "later", "y"]


def test_random_programs_keep_all_tensors_outside_of_regions() -> None:
    for seed in range(40):
        graph = random_program(seed).graph
        cfgraph.lower(graph)
        before = outside_regions(graph)
        cfgraph.functionalize(graph)
        assert before <= graph.nodes.keys(), seed


# a body whose conditional reads `large` in one branch alone, which reads `h` last
CONDITIONAL_IN_A_LOOP = """
x = Placeholder() {dtype=float32, shape=[]}
i0 = Const() {dtype=int32, value=int32[]:0}
i1 = Enter(i0) {frame_name="loop"}
h1 = Enter(x) {frame_name="loop"}
i2 = Merge(i1, i7)
h2 = Merge(h1, h7)
three = Const(^i2) {dtype=int32, value=int32[]:3}
less = Less(i2, three)
cond = LoopCond(less)
i3 = Switch(i2, cond)
h3 = Switch(h2, cond)
i = Identity(i3:1)
h = Identity(h3:1)
two = Const(^i) {dtype=int32, value=int32[]:2}
p = Less(i, two)
large = Sinh(h)
s = Switch(large, p)
t = Switch(h, p)
sum = Add(s:1, t:1)
half = Cos(t)
m = Merge(half, sum)
one = Const(^i) {dtype=int32, value=int32[]:1}
i6 = Add(i, one)
i7 = NextIteration(i6)
h7 = NextIteration(m)
y = Exit(h3)
"""


def test_what_one_branch_alone_reads_is_computed_in_it() -> None:
    graph = loads(CONDITIONAL_IN_A_LOOP.encode(), "graph")
    feeds = {"x": np.float32(0.5)}
    expected = cfgraph.Session(graph).run("y", feeds)
    cfgraph.functionalize(graph, "y", target="converter")
    assert cfgraph.Session(graph).run("y", feeds) == expected
    ops = [{node.op for node in item.definition.nodes} for item in graph.functions.values()]
    assert sum("Sinh" in found for found in ops) == 1
    assert not any({"Sinh", "StatelessIf"} <= found for found in ops)
    assert not cfgraph.functionalize(graph, "y", target="converter")


# the first variable stays as it is
UNCHANGED_FIRST = """
x = Placeholder() {dtype=float32, shape=[]}
i0 = Const() {dtype=int32, value=int32[]:0}
k1 = Enter(x) {frame_name="loop"}
i1 = Enter(i0) {frame_name="loop"}
h1 = Enter(x) {frame_name="loop"}
k2 = Merge(k1, k7)
i2 = Merge(i1, i7)
h2 = Merge(h1, h7)
three = Const(^i2) {dtype=int32, value=int32[]:3}
less = Less(i2, three)
cond = LoopCond(less)
k3 = Switch(k2, cond)
i3 = Switch(i2, cond)
h3 = Switch(h2, cond)
k = Identity(k3:1)
h = Mul(h3:1, k)
one = Const(^k) {dtype=int32, value=int32[]:1}
i = Add(i3:1, one)
k7 = NextIteration(k)
i7 = NextIteration(i)
h7 = NextIteration(h)
y = Exit(h3)
z = Exit(k3)
n = Exit(i3)
"""


def test_variables_that_a_loop_does_not_change_come_last() -> None:
    graph = loads(UNCHANGED_FIRST.encode(), "graph")
    feeds, fetches = {"x": np.float32(2)}, ["y", "z", "n"]
    expected = cfgraph.Session(graph).run(fetches, feeds)
    cfgraph.functionalize(graph, fetches, target="converter")
    assert cfgraph.Session(graph).run(fetches, feeds) == expected
    (loop,) = (node for node in graph if node.op == "StatelessWhile")
    body = graph.functions[loop.attrs["body"].name].definition
    constant = {node.name for node in body.nodes if node.op == "Identity"}
    unchanged = [body.returns[out.name].partition(":")[0] in constant for out in body.outputs[2:]]
    assert unchanged == [False, False, True]


def test_lists_of_a_gradient_have_indices_for_converters() -> None:
    graph = loads(UNCHANGED_FIRST.encode(), "graph")
    (gradient,) = cfgraph.gradients(graph, "y", "x")
    assert gradient is not None
    feeds = {"x": np.float32(2)}
    expected = cfgraph.Session(graph).run(gradient, feeds)
    cfgraph.functionalize(graph, gradient, target="converter")
    assert cfgraph.Session(graph).run(gradient, feeds) == expected == [32], "of x^4"
    ops = {node.op for item in graph.functions.values() for node in item.definition.nodes}
    assert {"TensorListSetItem", "TensorListGetItem"} <= ops
    assert ops.isdisjoint({"TensorListPushBack", "TensorListPopBack"})
    assert not cfgraph.functionalize(graph, gradient, target="converter")
