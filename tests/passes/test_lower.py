from __future__ import annotations

from collections import Counter

import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import Graph
from tests.passes.functional_graphs import calls, conditional, graph_of, loop, lowered, nested

MACHINE = ("Enter", "Merge", "Switch", "NextIteration", "Exit")


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph)


@pytest.mark.parametrize("changed", [1, 2, 5])
@pytest.mark.parametrize(("invariants", "read"), [(0, 0), (1, 1), (3, 2), (2, 0)])
def test_a_loop_has_the_nodes_of_the_design_and_no_more(
    changed: int, invariants: int, read: int
) -> None:
    read_once = min(changed, read)
    counts = ops(lowered(loop(changed, invariants, read)))
    expected = Counter(dict.fromkeys(MACHINE, changed))
    expected["Enter"] += read_once
    expected["LoopCond"] = 1
    expected += Counter({"Placeholder": changed + invariants, "AddV2": changed, "Less": 1})
    if read:
        expected["Const"] = 1
    else:
        expected += Counter({"Const": 2, "Identity": 1})  # the body's constant, and its pivot
    if changed + invariants > 1:
        expected["IdentityN"] = 1  # the old name
    assert counts == expected


@pytest.mark.parametrize("tensors", [1, 2, 7])
@pytest.mark.parametrize("outputs", [1, 2, 7])
def test_a_conditional_has_the_nodes_of_the_design_and_no_more(tensors: int, outputs: int) -> None:
    counts = ops(lowered(conditional(tensors, outputs)))
    read = min(tensors, outputs + 1)
    expected = Counter({"Switch": read, "Merge": outputs, "Placeholder": tensors + 1})
    expected += Counter({"AddV2": outputs, "Mul": outputs})
    if outputs > 1:
        expected["IdentityN"] = 1
    assert counts == expected


def test_the_false_side_comes_first() -> None:
    graph = lowered(conditional(2, 1))
    merge = graph["if"]
    assert [item.node.op for item in merge.inputs] == ["Mul", "AddV2"]
    assert [item.node.inputs[0].port for item in merge.inputs] == [0, 1]


def test_a_loop_through_nested_loops_calls_and_branches_finds_what_does_not_change() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
n = Placeholder() {dtype=int32, shape=[]}
while = StatelessWhile(x, n) {cond=@cond, body=@body}
function cond(x: int32, n: int32) -> (r: bool) {
  less = Less(x, n) {T=int32}
  return r = less:z:0
}
function body(x: int32, n: int32) -> (a: int32, b: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(x, one:output:0) {T=int32}
  call = PartitionedCall(n, x) {Tin=(int32, int32), Tout=(int32, int32), f=@second}
  again = Identity(call:output:1) {T=int32}
  if = StatelessIf(again:output:0, again:output:0) {Tcond=int32, Tin=(int32), Tout=(int32), \
then_branch=@same, else_branch=@through}
  inner = StatelessWhile(x, if:output:0) {T=(int32, int32), cond=@cond, body=@inner_body}
  return a = add:z:0
  return b = inner:output:1
}
function second(n: int32, x: int32) -> (x: int32, n: int32) {
  return x = x
  return n = n
}
function same(n: int32) -> (n: int32) {
  return n = n
}
function through(n: int32) -> (n: int32) {
  both = IdentityN(n, n) {T=(int32, int32)}
  return n = both:output:1
}
function inner_body(x: int32, n: int32) -> (a: int32, b: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(x, one:output:0) {T=int32}
  return a = add:z:0
  return b = n
}
"""
    graph = lowered(text)
    counts = ops(graph)
    assert (counts["NextIteration"], counts["Exit"], counts["LoopCond"]) == (1, 1, 1)
    assert [node.inputs[0].node.name for node in graph if node.attrs.get("is_constant")] == ["n"]
    assert cfgraph.Session(graph).run(["while:0", "while:1"], {"x:0": 1, "n:0": 5}) == [5, 5]


def test_every_loop_has_a_frame_of_its_own() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
a = outer(x)
b = PartitionedCall(a) {Tin=(int32), Tout=(int32), f=@outer}
function outer(x: int32) -> (r: int32) {
  one = loop(x)
  two = loop(one:r:0)
  return r = two:r:0
}
function loop(x: int32) -> (r: int32) {
  while = StatelessWhile(x) {T=(int32), cond=@cond, body=@body}
  return r = while:output:0
}
function cond(x: int32) -> (r: bool) {
  ten = Const() {dtype=int32, value=int32[]:10}
  less = Less(x, ten:output:0) {T=int32}
  return r = less:z:0
}
function body(x: int32) -> (r: int32) {
  while = StatelessWhile(x) {T=(int32), cond=@never, body=@body}
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(while:output:0, one:output:0) {T=int32}
  return r = add:z:0
}
function never(x: int32) -> (r: bool) {
  no = Const() {dtype=bool, value=bool[]:false}
  return r = no:output:0
}
""".replace("body=@body}\n  one", "body=@plus}\n  one")
    text += """
function plus(x: int32) -> (r: int32) {
  add = AddV2(x, x) {T=int32}
  return r = add:z:0
}
"""
    graph = lowered(text)
    counts = frames(graph).all[1:]
    assert len(counts) == 8
    assert len({frame.name for frame in counts}) == 8
    assert sorted(frame.depth for frame in counts) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert cfgraph.Session(graph).run(["b:0"], {"x:0": 3}) == [10]


def test_names_in_use_are_not_reused() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
call = PartitionedCall(x) {Tout=(int32), f=@f}
call/neg = Neg(x)
function f(x: int32) -> (y: int32) {
  neg = Neg(x) {T=int32}
  neg_1 = Neg(neg:y:0) {T=int32}
  return y = neg_1:y:0
}
"""
    graph = lowered(text)
    assert {"call", "call/neg", "call/neg_1"} < set(graph.nodes)
    assert len(graph) == 5
    assert graph["call/neg"].inputs[0].node.name == "x"


def test_what_could_be_fetched_and_run_before_can_be_after() -> None:
    graph = graph_of(conditional(3, 2, "If") + calls(0))
    tensors = ["if:0", "if:1"]
    report = cfgraph.lower(graph)
    session = cfgraph.Session(graph)
    feeds = {"pred:0": True, "x0:0": 2, "x1:0": 3, "x2:0": 5}
    assert session.run(tensors, feeds) == [5, 8]
    assert session.run([report.names[name][0] for name in tensors], feeds) == [5, 8]
    assert session.run([], feeds, targets=["if"]) == []


def test_the_order_of_the_nodes_stays_and_new_ones_stand_where_the_old_one_stood() -> None:
    graph = lowered(conditional(1, 1) + "last = Identity(x0) {T=int32}\n")
    names = list(graph.nodes)
    assert names[:2] == ["pred", "x0"]
    assert names[-2:] == ["if", "last"]
    place = {name: index for index, name in enumerate(names)}
    for node in graph:
        assert all(place[item.node.name] < place[node.name] for item in node.inputs)


def test_the_report_counts_and_lists_the_ops() -> None:
    graph = graph_of(nested(3))
    report = cfgraph.lower(graph)
    assert report.rewrites == 3
    assert dict(report.before) == {"Placeholder": 2, "StatelessIf": 1}
    assert dict(report.after) == dict(ops(graph))
    assert ("StatelessIf", 1, 0) in report.changes()
    assert not cfgraph.lower(graph)


def test_functions_that_nothing_calls_any_more_leave_the_library() -> None:
    text = (
        calls(1)
        + """
function unused(x: int32) -> (y: int32) {
  inner = inner(x)
  return y = inner:y:0
}
"""
    )
    assert sorted(lowered(text).functions) == ["inner", "unused"]
    assert sorted(lowered(calls(1)).functions) == []


def test_an_unknown_op_is_inlined_with_a_warning() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
call = PartitionedCall(x) {Tout=(int32), f=@f}
function f(x: int32) -> (y: int32) {
  odd = NobodyKnows(x)
  return y = odd:result:0
}
"""
    graph = graph_of(text)
    (warning,) = cfgraph.lower(graph).warnings
    assert "'f/odd'" in warning
    assert graph["call"].inputs == (graph["call/odd"].output(),)


def test_the_loss_of_a_gradient_of_its_own_is_a_warning() -> None:
    graph = graph_of(calls(1) + "gradient inner = outer\n")
    (warning,) = cfgraph.lower(graph).warnings
    assert "'inner'" in warning
    assert "'outer'" in warning


def test_a_gradient_of_its_own_is_not_passed_by() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
while = StatelessWhile(x, x) {cond=@cond, body=@body}
function cond(i: int32, x: int32) -> (r: bool) {
  less = Less(i, x) {T=int32}
  return r = less:z:0
}
function body(i: int32, x: int32) -> (i: int32, x: int32) {
  add = AddV2(i, x) {T=int32}
  same = IdentityN(x, x) {T=(int32, int32), _gradient_op_type="CustomGradient-1"}
  return i = add:z:0
  return x = same:output:0
}
"""
    assert [node.op for node in lowered(text)].count("NextIteration") == 2


def test_the_gradient_of_a_function_is_written_out_and_its_function_leaves_the_library() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
call = PartitionedCall(x) {Tout=(float32), f=@f}
function f(x: float32) -> (y: float32) {
  grad = SymbolicGradient(x, x) {Tin=(float32, float32), Tout=(float32), f=@g}
  return y = grad:output:0
}
function g(x: float32) -> (y: float32) {
  m = Mul(x, x) {T=float32}
  return y = m:z:0
}
"""
    graph = cfgraph.loads(text.encode())
    cfgraph.lower(graph)
    assert not graph.functions
    assert cfgraph.Session(graph).run("call:0", {"x:0": 3.0}) == [18.0]
