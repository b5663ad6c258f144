"""Each rule of `optimize` applies where its proof holds, and nowhere else."""

from __future__ import annotations

import textwrap
from itertools import product
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from tests.analysis.graph_text import graph

PREDICATES = ("p", "q")


def ops(found: Graph) -> dict[str, str]:
    return {node.name: node.op for node in found}


def runs(found: Graph, fetches: list[str], feeds: dict[str, Any]) -> list[list[Any]]:
    """The values of the fetches, None for dead ones, under all values of the predicates."""
    names = [name for name in PREDICATES if name in found]
    return [
        cfgraph.Session(found, engine="tokens").run(
            fetches,
            feeds | dict(zip(names, map(np.bool_, values), strict=True)),
            allow_dead=True,
        )
        for values in product([False, True], repeat=len(names))
    ]


def optimized(text: str, feeds: dict[str, Any] | None = None, fetch: str = "y") -> Graph:
    """The optimized graph of a text, after a check that values and liveness are the same."""
    before = graph(text)
    after = copy_graph(before)
    fed = {name: value for name, value in (feeds or {}).items() if name in before}
    cfgraph.optimize(after, fetches=[fetch], feeds=[*fed, *(p for p in PREDICATES if p in after)])
    expected, actual = (runs(item, [fetch], fed) for item in (before, after))
    for want, have in zip(expected, actual, strict=True):
        for a, b in zip(want, have, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                assert a.tobytes() == b.tobytes()
    return after


# -- constant folding --------------------------------------------------------------------------


def test_a_node_with_constant_inputs_is_folded() -> None:
    after = optimized("""
        a = Const() {dtype=float32, value=float32[]:2}
        b = Const() {dtype=float32, value=float32[2]:[3, 4]}
        m = Mul(a, b)
        y = Neg(m)
    """)
    assert ops(after) == {"y": "Const"}


def test_each_folded_node_is_counted() -> None:
    report = cfgraph.optimize(graph("a = Const() {dtype=float32, value=float32[]:2}\ny = Neg(a)"))
    assert report.rules["fold"] == 1


BRANCH = """
    p = Placeholder() {dtype=bool, shape=[]}
    x = Placeholder() {dtype=float32, shape=[]}
    s = Switch(x, p)
    t = Identity(s:1)
"""


def test_a_constant_of_a_branch_stays_in_it() -> None:
    after = optimized(
        BRANCH
        + """
    a = Const(^t) {dtype=float32, value=float32[]:2}
    b = Const() {dtype=float32, value=float32[]:3}
    y = Mul(a, b)
    """,
        {"x": np.float32(5)},
    )
    assert ops(after)["y"] == "Const"
    assert [node.name for node in after["y"].controls] == ["t"]


def test_the_shape_of_a_branch_is_live_in_it() -> None:
    after = optimized(BRANCH + "    n = Neg(t)\n    y = Shape(n)\n", {"x": np.float32(5)})
    assert ops(after)["y"] == "Const"
    # no control edge from a Switch says which side is live
    after = optimized(BRANCH + "    y = Shape(s:1)\n", {"x": np.float32(5)})
    assert ops(after)["y"] == "Shape"


@pytest.mark.parametrize(
    "text",
    [
        # fails in a run, and only there
        """
        a = Const() {dtype=int32, value=int32[]:1}
        b = Const() {dtype=int32, value=int32[]:0}
        y = FloorDiv(a, b)
        """,
        # random, and stateful
        """
        a = Const() {dtype=int32, value=int32[1]:[2]}
        y = RandomUniform(a) {dtype=float32, seed=1, seed2=2}
        """,
        # large
        """
        a = Const() {dtype=int32, value=int32[2]:[1000, 1000]}
        b = Const() {dtype=float32, value=float32[]:1}
        y = Fill(a, b)
        """,
        # 16,392 bytes, of few elements
        """
        a = Const() {dtype=int32, value=int32[1]:[2049]}
        b = Const() {dtype=float64, value=float64[]:1}
        y = Fill(a, b)
        """,
    ],
)
def test_a_node_is_not_folded(text: str) -> None:
    before = graph(text)
    assert not cfgraph.optimize(before)


def test_a_fed_constant_is_not_folded() -> None:
    text = """
        a = Const() {dtype=float32, value=float32[]:2}
        m = Neg(a)
        y = Neg(m)
    """
    after = graph(text)
    assert not cfgraph.optimize(after, feeds=["a"])
    after = graph(text)
    cfgraph.optimize(after, feeds=["m"])
    assert ops(after) == {"a": "Const", "m": "Neg", "y": "Neg"}
    assert cfgraph.Session(after).run(["y"], {"m": 7}) == [-7]


# -- common subexpressions ---------------------------------------------------------------------


def test_equal_nodes_become_one() -> None:
    after = optimized(
        """
        x = Placeholder() {dtype=float32, shape=[]}
        one = Const() {dtype=float32, value=float32[]:1}
        uno = Const() {dtype=float32, value=float32[]:1}
        a = AddV2(x, one)
        b = AddV2(uno, x)
        y = Mul(a, b)
        """,
        {"x": np.float32(3)},
    )
    assert ops(after) == {"x": "Placeholder", "one": "Const", "a": "AddV2", "y": "Mul"}


@pytest.mark.parametrize(
    "second",
    [
        "b = Neg(x, ^e)",
        'b = Neg(x) @"/device:CPU:1"',
        'b = Neg(x) {_gradient_op_type="Mine"}',
        "b = Abs(x)",
    ],
)
def test_nodes_that_differ_remain(second: str) -> None:
    found = graph(f"""
        x = Placeholder() {{dtype=float32, shape=[]}}
        e = NoOp()
        a = Neg(x)
        {second}
        y = Mul(a, b)
    """)
    assert not cfgraph.optimize(found, only=["cse"])


@pytest.mark.parametrize(
    "text",
    [
        """
        a = AddN(x, y, z) {N=3}
        b = AddN(x, z, y) {N=3}
        """,
        """
        a = Mul(x, y)
        b = Mul(y, x)
        """,
    ],
)
def test_operands_that_are_rounded_in_an_order_remain_in_it(text: str) -> None:
    kind = "float32" if "AddN" in text else "complex64"
    inputs = "\n".join(f"{name} = Placeholder() {{dtype={kind}, shape=[]}}" for name in "xyz")
    found = graph(inputs, text, "r = Sub(a, b)")
    cfgraph.optimize(found)
    assert {"a", "b"} <= ops(found).keys()
    if kind == "float32":
        assert cfgraph.Session(found).run(["r"], {"x": 1e8, "y": 1, "z": -1e8}) == [-1]


@pytest.mark.parametrize(
    "text",
    [
        # readers of references, and random nodes
        """
        v = VariableV2() {dtype=float32, shape=[]}
        one = Const() {dtype=float32, value=float32[]:1}
        a = Neg(v)
        add = AssignAdd(v, one, ^a) {T=float32}
        b = Neg(v, ^add)
        c = Neg(v)
        y = AddN(a, b, c)
        n = Const() {dtype=int32, value=int32[1]:[2]}
        r = RandomUniform(n) {dtype=float32}
        s = RandomUniform(n) {dtype=float32}
        z = Sub(r, s)
        """,
        # zero and negative zero
        """
        x = Placeholder() {dtype=float32, shape=[]}
        a = Const() {dtype=float32, value=float32[]:0}
        b = Const() {dtype=float32, value=float32[]:-0.0}
        c = RealDiv(x, a)
        d = RealDiv(x, b)
        y = Sub(c, d)
        """,
        # an operand that waits for an effect
        """
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        x = Placeholder() {dtype=float32, shape=[]}
        assign = AssignVariableOp(v, x) {dtype=float32}
        one = Const(^assign) {dtype=float32, value=float32[]:1}
        m = Mul(x, one)
        y = Neg(m)
        i = Identity(x, ^assign)
        z = Exp(i)
        """,
        # a reference is not read later
        """
        v = VariableV2() {dtype=float32, shape=[]}
        one = Const() {dtype=float32, value=float32[]:1}
        i = Identity(v)
        m = Mul(v, one)
        add = AssignAdd(v, one, ^i, ^m) {T=float32}
        y = AddN(i, m)
        z = Neg(y, ^add)
        """,
        # a predicate with an effect
        """
        x = Placeholder() {dtype=float32, shape=[]}
        c = Placeholder() {dtype=bool, shape=[]}
        assert = Assert(c, x) {T=(float32)}
        yes = Const(^assert) {dtype=bool, value=bool[]:true}
        s = Switch(x, yes)
        y = Neg(s:1)
        """,
    ],
)
def test_nothing_is_rewritten(text: str) -> None:
    assert not cfgraph.optimize(graph(text))


# -- identities of values ----------------------------------------------------------------------

ARITHMETIC = """
    x = Placeholder() {dtype=float32, shape=[2]}
    i = Placeholder() {dtype=int32, shape=[2]}
    zero = Const() {dtype=float32, value=float32[]:0}
    negative = Const() {dtype=float32, value=float32[]:-0.0}
    one = Const() {dtype=float32, value=float32[]:1}
    ones = Const() {dtype=float32, value=float32[3,1]:[[1], [1], [1]]}
    nothing = Const() {dtype=int32, value=int32[]:0}
    two = Const() {dtype=int32, value=int32[1]:[2]}
    column = Const() {dtype=int32, value=int32[2]:[2, 1]}
"""
SPECIAL = {"x": np.array([-0.0, np.nan], np.float32), "i": np.array([-7, 0], np.int32)}


@pytest.mark.parametrize(
    "equal",
    [
        "Mul(x, one)",
        "Mul(one, x)",
        "RealDiv(x, one)",
        "Sub(x, zero)",
        "AddV2(x, negative)",
        "AddV2(i, nothing)",
        "BitwiseOr(nothing, i)",
        "Pow(x, one)",
        "Identity(x)",
        "Cast(x) {DstT=float32}",
        "Reshape(x, two)",
        "BroadcastTo(x, two)",
    ],
)
def test_a_node_that_equals_its_input_goes(equal: str) -> None:
    read = "i" if "i)" in equal or "(i" in equal else "x"
    after = optimized(f"{ARITHMETIC}    e = {equal}\n    y = Neg(e)", SPECIAL)
    assert "e" not in after
    assert after["y"].inputs[0].node.name == read


@pytest.mark.parametrize(
    "other",
    [
        "Mul(x, zero)",  # live where x is, NaN where x is
        "AddV2(x, zero)",  # 0.0 where x is -0.0
        "Sub(x, negative)",
        "Sub(zero, x)",
        "RealDiv(one, x)",
        "Mul(x, ones)",  # of another shape
        "Reshape(x, column)",
        "FloorDiv(x, one)",
        "Cast(x) {DstT=float64}",
        'Identity(x) @"/device:GPU:0"',  # a copy
        'Identity(x) {_class=("loc:@x")}',
        'Identity(x) {_gradient_op_type="Mine"}',
        "StopGradient(x)",
    ],
)
def test_a_node_that_may_differ_from_its_input_remains(other: str) -> None:
    after = optimized(f"{ARITHMETIC}    e = {other}\n    y = Neg(e)", SPECIAL)
    assert "e" in after


def test_a_complex_product_with_one_remains() -> None:
    after = optimized(
        """
        x = Placeholder() {dtype=complex64, shape=[]}
        one = Const() {dtype=complex64, value=complex64[]:1}
        m = Mul(x, one)
        y = Neg(m)
        """,
        {"x": np.complex64(complex(np.inf, 1))},
    )
    assert "m" in after


def test_functions_that_undo_or_repeat_themselves_go() -> None:
    after = optimized(
        """
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Neg(a)
        c = Abs(b)
        d = Abs(c)
        y = Exp(d)
        """,
        {"x": np.float32(-3)},
    )
    assert ops(after) == {"x": "Placeholder", "c": "Abs", "y": "Exp"}


def test_a_pivot_remains() -> None:
    text = BRANCH + "    y = Const(^t) {dtype=float32, value=float32[]:1}"
    assert ops(optimized(text, {"x": np.float32(5)}))["t"] == "Identity"


def test_an_operand_of_a_branch_keeps_its_readers_there() -> None:
    # x is always live, the one and so the product only on a side
    text = (
        BRANCH
        + """
        one = Const(^t) {dtype=float32, value=float32[]:1}
        m = Mul(x, one)
        y = Neg(m)
    """
    )
    assert "m" in optimized(text, {"x": np.float32(5)})
    # here both are live on the same side
    text = text.replace("Mul(x, one)", "Mul(t, one)")
    after = optimized(text, {"x": np.float32(5)})
    assert "m" not in after
    assert not runs(after, ["y"], {"x": np.float32(5)})[0][0]


# -- branches ----------------------------------------------------------------------------------


def test_a_conditional_with_a_constant_predicate_goes() -> None:
    after = optimized(
        """
        x = Placeholder() {dtype=float32, shape=[]}
        yes = Const() {dtype=bool, value=bool[]:true}
        s = Switch(x, yes)
        a = Neg(s:0)
        b = Exp(s:1)
        m = Merge(a, b)
        i = Cast(m:1) {DstT=float32}
        y = AddN(m, i)
        """,
        {"x": np.float32(3)},
    )
    assert set(ops(after).values()) == {"Placeholder", "Exp", "Identity", "Const", "AddN"}


def test_a_branch_inside_of_the_same_branch_goes() -> None:
    after = optimized(
        BRANCH
        + """
    again = Identity(p)
        inner = Switch(t, again)
        a = Neg(inner:0)
        b = Exp(inner:1)
        m = Merge(a, b)
        y = Abs(m)
        """,
        {"x": np.float32(3)},
    )
    assert set(ops(after).values()) == {"Placeholder", "Switch", "Exp", "Abs"}


def test_a_merge_of_both_sides_of_one_value_goes() -> None:
    text = (
        BRANCH
        + """
        f = Identity(s:0)
        m = Merge(f, t)
        y = Neg(m)
    """
    )
    after = optimized(text, {"x": np.float32(3)})
    assert ops(after) == {"p": "Placeholder", "x": "Placeholder", "y": "Neg"}
    # with two predicates it may be dead, or have two live inputs
    text = text.replace(
        "f = Identity(s:0)",
        "q = Placeholder() {dtype=bool, shape=[]}\n"
        "        r = Switch(x, q)\n        f = Identity(r:0)",
    )
    assert "m" in optimized(text, {"x": np.float32(3)})


def test_a_loop_that_never_repeats_keeps_its_form_and_its_gradient() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [])
    _, y = b.while_loop(lambda i, y: (i < 3) & b.const(False), lambda i, y: (i + 1, y * y), [0, x])
    y = b.Mul(y, y, name="y")
    cfgraph.lower(b.graph)
    cfgraph.optimize(b.graph, fetches=["y"])
    (gradient,) = cfgraph.gradients(b.graph, "y", "x")
    assert cfgraph.Session(b.graph).run([gradient], {"x": 3.0}) == [6.0]


def test_an_effect_that_never_runs_goes_with_its_readers() -> None:
    after = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        no = Const() {dtype=bool, value=bool[]:false}
        s = Switch(x, no)
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        t = Identity(s:1)
        read = ReadVariableOp(v, ^t) {dtype=float32}
        f = Identity(s:0)
        m = Merge(f, read)
        y = Neg(m)
    """)
    cfgraph.optimize(after)
    assert ops(after) == {"x": "Placeholder", "y": "Neg"}


DEAD_SIDE = """
    x = Placeholder() {dtype=float32}
    w = Placeholder() {dtype=float32, shape=[2, 2]}
    no = Const() {dtype=bool, value=bool[]:false}
    h = MatMul(x, w)
    s = Switch(h, no)
    u = Switch(w, no)
    a = Neg(u:0)
    b = Exp(s:1)
    m = Merge(a, b)
"""
SQUARE = np.array([[1, 2], [3, 4]], np.float32)


def test_a_dead_branch_of_a_node_that_is_computed_anyway_goes() -> None:
    after = optimized(DEAD_SIDE + "y = AddV2(m, h)", {"x": SQUARE, "w": SQUARE})
    assert ops(after) == {
        "x": "Placeholder",
        "w": "Placeholder",
        "h": "MatMul",
        "a": "Neg",
        "y": "AddV2",
    }
    assert not any(node.controls for node in after)


def test_a_node_that_only_a_dead_branch_reads_still_runs() -> None:
    fed = {"x": SQUARE, "w": SQUARE}
    after = optimized(DEAD_SIDE + "y = Abs(m)", fed)
    assert [node.name for node in after["m"].controls] == ["h"]
    assert ops(after).keys() == {"x", "w", "h", "a", "m", "y"}
    for found in (graph(DEAD_SIDE + "y = Abs(m)"), after):
        with pytest.raises(cfgraph.CfgraphError, match="node 'h'"):
            cfgraph.Session(found).run(["y"], fed | {"x": SQUARE[:, :1]})


def test_each_fetch_needs_a_node_behind_a_dead_branch() -> None:
    # z would run without h
    found = graph(DEAD_SIDE + "y = AddV2(m, h)\n    z = Abs(m)")
    cfgraph.optimize(found, fetches=["y", "z"])
    assert [node.name for node in found["m"].controls] == ["h"]


def test_a_dead_branch_that_waits_for_an_effect_goes_if_the_effect_stays() -> None:
    effect = DEAD_SIDE.replace(
        "h = MatMul(x, w)",
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        "    k = Assert(p, x) {T=(float32)}\n    h = MatMul(x, w, ^k)",
    )
    found = graph(effect + "y = AddV2(m, h)")
    cfgraph.optimize(found, fetches=["y"])
    assert {"Switch", "Merge"}.isdisjoint(found.ops)
    assert found["h"].controls == (found["k"],)
    # nothing else needs it: a guard would let the readers of m wait for it
    found = graph(effect + "y = Abs(m)")
    cfgraph.optimize(found, fetches=["y"])
    assert found["m"].op == "Merge"


def test_a_trigger_that_waits_for_a_dead_merge_waits_for_its_dead_side() -> None:
    text = DEAD_SIDE.replace("u = Switch(w, no)", "v = Switch(w, p)\n    u = Switch(v:0, no)")
    text = text.replace("no =", "p = Placeholder() {dtype=bool, shape=[]}\n    no =")
    found = graph(text + "t = ControlTrigger(^m)\n    z = NoOp(^t)\n    y = AddV2(m, h)")
    cfgraph.optimize(found, fetches=["y", "^z"])
    assert found["m"].op == "Merge"


def test_a_merge_that_is_fetched_goes_unless_its_second_output_is() -> None:
    text = DEAD_SIDE + "    i = Cast(m:1) {DstT=float32}\n    y = AddV2(h, i)"
    for fetches, op in ((["m", "y"], "Identity"), (["m:1", "m:0", "y"], "Merge"), (None, "Merge")):
        found = graph(text if fetches else DEAD_SIDE)
        cfgraph.optimize(found, fetches=fetches)
        assert found["m"].op == op
    found = graph(DEAD_SIDE)
    cfgraph.optimize(found, fetches=iter(["m"]), keep=["m"])
    assert found["m"].op == "Merge"
    after = optimized(DEAD_SIDE, {"x": SQUARE, "w": SQUARE}, "m")
    assert {"Switch", "Merge"}.isdisjoint(after.ops)


# -- loops -------------------------------------------------------------------------------------

LOOP = """
    n = Placeholder() {dtype=int32, shape=[]}
    a = Placeholder() {dtype=int32, shape=[]}
    zero = Const() {dtype=int32, value=int32[]:0}
    one = Const() {dtype=int32, value=int32[]:1}
    start = Enter(zero) {frame_name="loop", parallel_iterations=4}
    bound = Enter(n) {frame_name="loop", is_constant=true, parallel_iterations=4}
    a_in = Enter(a) {frame_name="loop", is_constant=true, parallel_iterations=4}
    one_in = Enter(one) {frame_name="loop", is_constant=true, parallel_iterations=4}
    m = Merge(start, next) {T=int32, N=2}
    limit = AddV2(bound, a_in)
    less = Less(m, limit)
    c = LoopCond(less)
    s = Switch(m, c)
    body = Identity(s:1)
    two = Const(^body) {dtype=int32, value=int32[]:2}
    four = Mul(a_in, a_in, ^body)
    step = FUNCTION(four, two)
    sum = AddV2(body, step)
    next = NextIteration(sum)
    y = Exit(s)
"""


@pytest.mark.parametrize("n", [-9, 3, 20])
def test_what_is_the_same_in_all_iterations_is_computed_before(n: int) -> None:
    feeds = {"n": np.int32(n), "a": np.int32(2)}
    after = optimized(LOOP.replace("FUNCTION", "Maximum"), feeds)
    assert ops(after)["limit/invariant"] == "AddV2"
    assert "limit" not in after
    # the body may run in no iteration: a node that cannot fail moves, its liveness stays
    assert ops(after)["step/invariant"] == "Maximum"
    assert (ops(after)["step"], after["step"].controls) == ("Identity", (after["body"],))


@pytest.mark.parametrize("n", [-9, 3])
def test_what_may_fail_in_no_iteration_stays_in_the_body(n: int) -> None:
    feeds = {"n": np.int32(n), "a": np.int32(2)}
    after = optimized(LOOP.replace("FUNCTION", "FloorDiv"), feeds)
    assert ops(after)["step"] == "FloorDiv"
    assert "limit" not in after


def test_random_and_changing_nodes_stay_in_the_loop() -> None:
    text = LOOP.replace("FUNCTION", "Maximum").replace("Mul(a_in, a_in, ^body)", "Mul(body, a_in)")
    after = optimized(text, {"n": np.int32(3), "a": np.int32(2)})
    assert ops(after)["step"] == "Maximum"


# -- functions ---------------------------------------------------------------------------------


def test_bodies_of_functions_are_optimized() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        call = PartitionedCall(x) {Tout=(float32), f=@twice}
        y = Identity(call)
        function twice(x: float32) -> (r: float32) {
          attrs {_noinline=true}
          one = Const() {dtype=float32, value=float32[]:1}
          two = AddV2(one:output:0, one:output:0) {T=float32}
          same = Mul(x, one:output:0) {T=float32}
          mul = Mul(same:z:0, two:z:0) {T=float32}
          return r = mul:z:0
        }
    """)
    report = cfgraph.optimize(found)
    function = found.functions["twice"].definition
    assert {node.name: node.op for node in function.nodes} == {"two": "Const", "mul": "Mul"}
    assert function.attrs == {"_noinline": True}
    assert {rewrite.function for rewrite in report.applied} == {"twice"}
    assert cfgraph.Session(found).run(["y"], {"x": 3}) == [6]


# -- reports and attributes ---------------------------------------------------------------------


def test_the_names_of_a_report_are_those_of_tensors_that_remain() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        h = Const() {dtype=float32, value=float32[]:0.5}
        t = Const() {dtype=float32, value=float32[]:2}
        a = Mul(h, t)
        a2 = Mul(h, t)
        b = Mul(x, a)
        c = Mul(x, a2)
        d = Neg(b)
        e = Exp(c)
        y = AddV2(d, e)
    """)
    assert cfgraph.optimize(found).names == {"b:0": ("x:0",), "c:0": ("x:0",)}


def test_an_annotation_lists_the_shapes_of_the_outputs_that_remain() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[2]}
        axis = Const() {dtype=int32, value=int32[]:0}
        a = Const() {dtype=float32, value=float32[4]:[1, 2, 3, 4]}
        s = Split(axis, a) {num_split=2, _output_shapes=([2], [2])}
        b = Mul(s:0, x)
        c = Mul(s:1, x)
        true = Const() {dtype=bool, value=bool[]:true}
        w = Switch(b, true)
        d = Neg(w:0)
        e = Abs(w:1)
        m = Merge(d, e) {N=2, _output_shapes=([2], [])}
        y = AddV2(m, c, ^n)
        n = Neg(m, ^m)
    """)
    cfgraph.optimize(found)
    assert ops(found)["m"] == "Identity"
    shapes = {node.name: node.attrs.get("_output_shapes") for node in found}
    assert {name for name, value in shapes.items() if value} == {"s", "s/output_1", "m"}
    assert all(len(value) == 1 for value in shapes.values() if value)


@pytest.mark.parametrize(
    "variable",
    [
        """
        v = VariableV2() {dtype=float32, shape=[]}
        w = Assign(v, new) {validate_shape=false}
        r = Identity(v, ^w)
        """,
        """
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        w = AssignVariableOp(v, new)
        r = ReadVariableOp(v, ^w) {dtype=float32}
        """,
    ],
)
def test_the_shape_of_a_variable_that_changes_is_unknown(variable: str) -> None:
    constant = "new = Const() {dtype=float32, value=float32[2]:[1, 2]}"
    after = optimized(f"{constant}\n{textwrap.dedent(variable)}\ny = Shape(r)")
    assert ops(after)["y"] == "Shape"


# -- what stays --------------------------------------------------------------------------------


def test_fetches_remain_and_what_they_do_not_need_goes() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Neg(x)
        y = Mul(a, b)
        z = Exp(y)
    """)
    report = cfgraph.optimize(found, fetches=["a", "b:0"], feeds=["x"])
    assert ops(found) == {"x": "Placeholder", "a": "Neg", "b": "Neg"}
    assert report.rules == {**dict.fromkeys(report.rules, 0), "prune": 2}


def test_nodes_stay_together_whose_group_names_a_node_that_goes() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x) @"/device:CPU:1"
        b = Abs(x) {_class=("loc:@a")}
        c = Exp(x) {_class=("loc:@a")}
        y = Mul(b, c)
    """)
    cfgraph.optimize(found, fetches=["y"])
    assert "a" not in found
    assert [found[name].attrs["_class"] for name in "bc"] == [(b"loc:@b",)] * 2
    assert {found[name].device for name in "bc"} == {"/device:CPU:1"}


def test_an_unknown_rule_or_name_changes_nothing() -> None:
    found = graph("a = Const() {dtype=float32, value=float32[]:2}\ny = Neg(a)")
    with pytest.raises(cfgraph.UsageError, match="unknown rule 'folding'"):
        cfgraph.optimize(found, only=["folding"])
    with pytest.raises(cfgraph.UsageError, match="no rule remains"):
        cfgraph.optimize(found, only=["cse"], skip=["cse"])
    with pytest.raises(cfgraph.UsageError, match="no node 'z'"):
        cfgraph.optimize(found, fetches=["z"])
    assert ops(found) == {"a": "Const", "y": "Neg"}


def test_a_partitioned_graph_is_rejected() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        y = Neg(x)
    """)
    cfgraph.place(found, devices=["cpu:0", "cpu:1"], rules={"x": "cpu:0", "y": "cpu:1"})
    cfgraph.partition(found)
    with pytest.raises(cfgraph.Unsupported, match="partitioned"):
        cfgraph.optimize(found)


def test_pruning_without_fetches_warns() -> None:
    text = "a = Placeholder() {dtype=float32, shape=[]}\ny = Neg(a)"
    report = cfgraph.optimize(graph(text), only=["prune"])
    assert (report.rewrites, "no fetch is named" in report.warnings[0]) == (0, True)
    assert cfgraph.optimize(graph(text)).warnings == ()
    assert cfgraph.optimize(graph(text), only=["prune"], fetches=["y"]).warnings == ()


def test_a_variable_has_any_shape_if_a_value_of_unknown_shape_is_assigned() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=?}
v = VarHandleOp() {dtype=float32, shape=[2]}
store = AssignVariableOp(v, x) {dtype=float32}
read = ReadVariableOp(v, ^store) {dtype=float32}
shape = Shape(read)
"""
    before, after = graph(text), graph(text)
    cfgraph.optimize(after, fetches=["shape:0"])
    for item in (before, after):
        assert cfgraph.Session(item).run("shape", {"x": np.ones(3, np.float32)})[0].tolist() == [3]
