"""Rules of `optimize` where no golden file shows them: tables of ops, reports, and errors."""

from __future__ import annotations

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


def test_each_folded_node_is_counted() -> None:
    report = cfgraph.optimize(graph("a = Const() {dtype=float32, value=float32[]:2}\ny = Neg(a)"))
    assert report.rules["fold"] == 1


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


# -- common subexpressions ---------------------------------------------------------------------


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


# -- branches ----------------------------------------------------------------------------------


def test_a_loop_that_never_repeats_keeps_its_form_and_its_gradient() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [])
    _, y = b.while_loop(lambda i, y: (i < 3) & b.const(False), lambda i, y: (i + 1, y * y), [0, x])
    y = b.Mul(y, y, name="y")
    cfgraph.lower(b.graph)
    cfgraph.optimize(b.graph, fetches=["y"])
    (gradient,) = cfgraph.gradients(b.graph, "y", "x")
    assert cfgraph.Session(b.graph).run([gradient], {"x": 3.0}) == [6.0]


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


def test_a_node_that_only_a_dead_branch_reads_still_runs() -> None:
    fed = {"x": SQUARE, "w": SQUARE}
    after = optimized(DEAD_SIDE + "y = Abs(m)", fed)
    assert [node.name for node in after["m"].controls] == ["h"]
    assert ops(after).keys() == {"x", "w", "h", "a", "m", "y"}
    for found in (graph(DEAD_SIDE + "y = Abs(m)"), after):
        with pytest.raises(cfgraph.CfgraphError, match="node 'h'"):
            cfgraph.Session(found).run(["y"], fed | {"x": SQUARE[:, :1]})


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


# -- what stays --------------------------------------------------------------------------------


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


CONSTANT_CONDITION = """
x = Placeholder() {dtype=float32, shape=[]}
yes = Const() {dtype=bool, value=bool[]:true}
cond = StatelessIf(yes, x) {Tin=(float32), Tout=(float32), then_branch=@f, else_branch=@f}
cond/Identity = Identity(cond)
y = Exp(cond/Identity)

function f(x: float32) -> (y: float32) {
  Neg = Neg(x) {T=float32}
  Identity = Identity(Neg:y:0) {T=float32}
  return y = Identity:output:0
}
"""


@pytest.mark.parametrize(
    ("fetch", "op"), [("y", "PartitionedCall"), ("cond/Identity", "StatelessIf")]
)
def test_a_conditional_is_no_call_whose_inlined_nodes_have_the_names_of_others(
    fetch: str, op: str
) -> None:
    # TensorFlow ends the process where it inlines such a call
    assert ops(optimized(CONSTANT_CONDITION, {"x": 1.5}, fetch))["cond"] == op


def test_pruning_without_fetches_warns() -> None:
    text = "a = Placeholder() {dtype=float32, shape=[]}\ny = Neg(a)"
    report = cfgraph.optimize(graph(text), only=["prune"])
    assert (report.rewrites, "no fetch is named" in report.warnings[0]) == (0, True)
    assert cfgraph.optimize(graph(text)).warnings == ()
    assert cfgraph.optimize(graph(text), only=["prune"], fetches=["y"]).warnings == ()
