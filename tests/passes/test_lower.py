from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import cfgraph
from cfgraph.analysis.frames import frames
from cfgraph.analysis.verify import require_valid
from cfgraph.errors import CfgraphError, InvalidInput, Unsupported, UsageError
from cfgraph.ir.function_graph import Instances
from cfgraph.ir.graph import Graph
from cfgraph.passes.lower.construct import kind_of
from tests.conformance import recorded
from tests.passes.functional import calls, conditional, graph_of, loop, nested

MACHINE = ("Enter", "Merge", "Switch", "NextIteration", "Exit")


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph)


def lowered(text: str) -> Graph:
    graph = graph_of(text)
    assert cfgraph.lower(graph)
    return graph


def refused(text: str) -> CfgraphError:
    graph = graph_of(text)
    before = cfgraph.dumps(graph)
    with pytest.raises(CfgraphError) as caught:
        cfgraph.lower(graph)
    assert cfgraph.dumps(graph) == before
    return caught.value


# -- how many nodes --------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [1, 2, 5])
@pytest.mark.parametrize(("invariants", "read"), [(0, 0), (1, 1), (3, 2), (2, 0)])
def test_a_loop_has_the_nodes_of_the_design_and_no_more(
    changed: int, invariants: int, read: int
) -> None:
    read_once = min(changed, read)
    found = ops(lowered(loop(changed, invariants, read)))
    wanted = Counter(dict.fromkeys(MACHINE, changed))
    wanted["Enter"] += read_once
    wanted["LoopCond"] = 1
    wanted += Counter({"Placeholder": changed + invariants, "AddV2": changed, "Less": 1})
    if read:
        wanted["Const"] = 1
    else:
        wanted += Counter({"Const": 2, "Identity": 1})  # the body's constant, and its pivot
    if changed + invariants > 1:
        wanted["IdentityN"] = 1  # the old name
    assert found == wanted


@pytest.mark.parametrize("tensors", [1, 2, 7])
@pytest.mark.parametrize("outputs", [1, 2, 7])
def test_a_conditional_has_the_nodes_of_the_design_and_no_more(tensors: int, outputs: int) -> None:
    found = ops(lowered(conditional(tensors, outputs)))
    read = min(tensors, outputs + 1)
    wanted = Counter({"Switch": read, "Merge": outputs, "Placeholder": tensors + 1})
    wanted += Counter({"AddV2": outputs, "Mul": outputs})
    if outputs > 1:
        wanted["IdentityN"] = 1
    assert found == wanted


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
    found = ops(graph)
    assert (found["NextIteration"], found["Exit"], found["LoopCond"]) == (1, 1, 1)
    assert [node.inputs[0].node.name for node in graph if node.attrs.get("is_constant")] == ["n"]
    assert cfgraph.Session(graph).run(["while:0", "while:1"], {"x:0": 1, "n:0": 5}) == [5, 5]


# -- frames, names, order --------------------------------------------------------------------------


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
    found = frames(graph).all[1:]
    assert len(found) == 8
    assert len({frame.name for frame in found}) == 8
    assert sorted(frame.depth for frame in found) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert cfgraph.Session(graph).run(["b:0"], {"x:0": 3}) == [10]


def test_names_that_are_taken_are_not_given_again() -> None:
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


def test_the_report_counts_and_tells_the_ops() -> None:
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


# -- side effects ----------------------------------------------------------------------------------

VARIABLE = """
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
zero = Const() {dtype=int32, value=int32[]:0}
init = AssignVariableOp(v, zero) {dtype=int32}
read = ReadVariableOp(v) {dtype=int32}
"""


def final(text: str, target: str, schedules: int = 5) -> set[int]:
    """The values that the variable may have in the end."""
    graph, found = lowered(VARIABLE + text), set()
    for seed in range(schedules):
        session = cfgraph.Session(graph, schedule="random", schedule_seed=seed)
        session.run([], targets=["init"])
        session.run([], targets=[target])
        found.add(int(session.run(["read:0"])[0]))
    return found


APPEND = """
function append(v: resource, digit: int32) -> () {
  ten = Const() {dtype=int32, value=int32[]:10}
  read = ReadVariableOp(v) {dtype=int32}
  mul = Mul(read:value:0, ten:output:0) {T=int32}
  add = AddV2(mul:z:0, digit) {T=int32}
  assign = AssignVariableOp(v, add:z:0) {dtype=int32}
  control_return done = assign
}
function append_one(v: resource, x: int32) -> (x: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  call = StatefulPartitionedCall(v, one:output:0) {Tin=(resource, int32), Tout=(), f=@append}
  return x = x
}
function append_two(v: resource, x: int32) -> (x: int32) {
  two = Const() {dtype=int32, value=int32[]:2}
  call = append(v, two:output:0)
  return x = x
}
"""


def test_effects_of_calls_follow_control_edges_and_run_once() -> None:
    text = """
a = append_one(v, zero)
b = append_two(v, zero, ^a)
c = append_one(v, zero, ^b)
end = NoOp(^c)
"""
    assert final(text + APPEND, "end") == {121}


def test_effects_follow_outputs_that_do_not_depend_on_them() -> None:
    text = """
a = append_one(v, zero)
end = append_two(v, a)
"""
    assert final(text + APPEND, "end") == {12}


def test_effects_in_a_loop_run_in_order_in_every_iteration() -> None:
    text = """
end = While(v, zero, zero) {cond=@cond, body=@body, parallel_iterations=10}
function cond(v: resource, i: int32, x: int32) -> (r: bool) {
  three = Const() {dtype=int32, value=int32[]:3}
  call = append_one(v, x)
  less = Less(i, three:output:0) {T=int32}
  return r = less:z:0
}
function body(v: resource, i: int32, x: int32) -> (v: resource, j: int32, y: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(i, one:output:0) {T=int32}
  call = append_two(v, x)
  return v = v
  return j = add:z:0
  return y = x
}
"""
    assert final(text + APPEND, "end") == {1212121}


def test_a_body_that_must_not_run_has_no_effects() -> None:
    text = """
no = Const() {dtype=bool, value=bool[]:false}
if = If(no, v) {Tout=(), then_branch=@deep, else_branch=@nothing}
while = While(v, zero, ^if) {cond=@never, body=@body}
end = NoOp(^while)
function deep(v: resource) -> () {
  i = Const() {dtype=int32, value=int32[]:0}
  yes = Const() {dtype=bool, value=bool[]:true}
  case = Case(i:output:0, v, i:output:0) {Tin=(resource, int32), Tout=(int32), \
branches=(@append_one)}
  if = If(yes:output:0, v, i:output:0, ^case) {Tcond=bool, Tin=(resource, int32), Tout=(int32), \
then_branch=@append_two, else_branch=@append_one}
  while = While(v, i:output:0, ^if) {T=(resource, int32), cond=@once, body=@body}
}
function nothing(v: resource) -> () {
}
function never(v: resource, i: int32) -> (r: bool) {
  no = Const() {dtype=bool, value=bool[]:false}
  return r = no:output:0
}
function once(v: resource, i: int32) -> (r: bool) {
  one = Const() {dtype=int32, value=int32[]:1}
  less = Less(i, one:output:0) {T=int32}
  return r = less:z:0
}
function body(v: resource, i: int32) -> (v: resource, j: int32) {
  call = append_one(v, i)
  handle = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
  two = Const() {dtype=int32, value=int32[]:2}
  more = append(handle:resource:0, two:output:0, ^call)
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(i, one:output:0) {T=int32}
  return v = v
  return j = add:z:0
}
"""
    assert final(text + APPEND, "end") == {0}
    taken = text.replace("bool[]:false}\nif", "bool[]:true}\nif")
    assert final(taken + APPEND, "end") == {1212}


# -- what is refused -------------------------------------------------------------------------------


def test_a_recursive_function_is_refused_with_the_chain() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
fine = PartitionedCall(x) {Tout=(int32), f=@leaf}
call = PartitionedCall(x) {Tout=(int32), f=@first}
function leaf(x: int32) -> (y: int32) {
  return y = x
}
function first(x: int32) -> (y: int32) {
  call = second(x)
  return y = call:y:0
}
function second(x: int32) -> (y: int32) {
  if = If(x, x) {Tcond=int32, Tin=(int32), Tout=(int32), then_branch=@third, else_branch=@leaf}
  return y = if:output:0
}
function third(x: int32) -> (y: int32) {
  call = PartitionedCall(x) {Tin=(int32), Tout=(int32), f=@second}
  return y = call:output:0
}
"""
    error = refused(text)
    assert isinstance(error, Unsupported)
    assert error.message == "function 'second' calls itself: second → third → second"
    assert error.node == "call"


def test_the_gradient_of_a_function_is_refused() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
call = PartitionedCall(x) {Tout=(int32), f=@f}
function f(x: int32) -> (y: int32) {
  grad = SymbolicGradient(x, x) {Tin=(int32, int32), Tout=(int32), f=@g}
  return y = grad:output:0
}
function g(x: int32) -> (y: int32) {
  return y = x
}
"""
    error = refused(text)
    assert isinstance(error, Unsupported)
    assert error.node == "f/grad"


def test_a_remote_call_to_a_computed_device_is_refused() -> None:
    text = """
where = Placeholder() {dtype=string, shape=[]}
x = Placeholder() {dtype=int32, shape=[]}
call = RemoteCall(where, x) {Tout=(int32), f=@f}
function f(x: int32) -> (y: int32) {
  return y = x
}
"""
    error = refused(text)
    assert isinstance(error, Unsupported)
    assert error.node == "call"


def test_a_partitioned_graph_is_refused() -> None:
    text = calls(1) + (
        'recv = _Recv() {tensor_type=int32, tensor_name="t", send_device="a", '
        'send_device_incarnation=1, recv_device="b"}\n'
    )
    error = refused(text)
    assert "partitioned" in error.message
    assert error.node == "recv"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("call = PartitionedCall(x) {Tout=(int32), f=@nobody}", "'nobody'"),
        ("call = PartitionedCall(x, x) {Tout=(int32), f=@outer}", "takes"),
        ("call = PartitionedCall(x) {Tout=(float32), f=@outer}", "returns"),
        (
            "call = StatelessWhile(x) {cond=@outer, body=@outer, parallel_iterations=0}",
            "at least 1",
        ),
    ],
)
def test_a_functional_node_that_does_not_fit_is_an_invalid_input(text: str, message: str) -> None:
    error = refused(calls(1) + text + "\n")
    assert isinstance(error, InvalidInput)
    assert message in error.message
    assert error.node == "call"


def test_a_function_to_lower_must_be_there() -> None:
    with pytest.raises(UsageError, match="no function 'inne'") as caught:
        cfgraph.lower(graph_of(calls(1)), functions=["inne"])
    assert caught.value.hint == "did you mean 'inner'?"


# -- size ------------------------------------------------------------------------------------------


@contextmanager
def little_stack(frames_left: int = 120) -> Iterator[None]:
    """A recursion limit that nothing which recurses over a graph can stay under."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames_left)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def edits(text: str) -> int:
    """How often lowering changes the graph: what it costs, without a clock."""
    graph = graph_of(text)
    before = graph.edits
    with little_stack():
        cfgraph.lower(graph)
    return graph.edits - before


def test_ten_thousand_calls_cost_ten_times_what_a_thousand_do() -> None:
    few, many = edits(calls(1_000)), edits(calls(10_000))
    assert many <= 10.1 * few


def test_two_hundred_nested_conditionals_cost_ten_times_what_twenty_do() -> None:
    few, many = edits(nested(20)), edits(nested(200))
    assert many <= 10.5 * few


def test_calls_and_nested_conditionals_compute_what_they_should() -> None:
    graph = lowered(calls(500))
    assert cfgraph.Session(graph).run(["call499:0"], {"x:0": 1}) == [501]
    graph = lowered(nested(60))
    assert cfgraph.Session(graph).run(["if:0"], {"pred:0": True, "x:0": 1}) == [61]
    assert cfgraph.Session(graph).run(["if:0"], {"pred:0": False, "x:0": 1}) == [1]


# -- recorded graphs -------------------------------------------------------------------------------


def recorded_graphs() -> list[str]:
    """The functional graphs of recorded sessions."""
    chosen = (
        run["graph"]
        for case in recorded.cases()
        if case["kind"] == "session" and "host" not in case["tags"] and recorded.is_functional(case)
        for run in case["runs"]
    )
    return list(dict.fromkeys(chosen))


def test_recorded_graphs_are_lowered_whole_and_once() -> None:
    count = 0
    for name in recorded_graphs():
        graph = recorded.graph(name)
        try:
            if not cfgraph.lower(graph):
                continue
        except Unsupported as error:
            assert "gradient" in error.message  # noqa: PT017
            continue
        count += 1
        require_valid(graph)
        instances = Instances(graph.functions)
        assert not [node for node in graph if kind_of(node, instances)], name
        once = cfgraph.dumps(graph)
        assert not cfgraph.lower(graph)
        assert cfgraph.dumps(graph) == once, name
    assert count > 400
