from __future__ import annotations

import pytest

import cfgraph
from cfgraph.analysis.gradient_paths import (
    GradientCut,
    default_xs,
    find_gradient_cut,
    format_path,
    gradient_path_through,
)
from cfgraph.ir.graph import Graph


def graph_of(text: str) -> Graph:
    return cfgraph.loads(f"x = Placeholder() {{dtype=float32, shape=[]}}\n{text}".encode(), "graph")


def cut_of(
    text: str, x: str = "x", y: str = "y", stops: tuple[str, ...] = ()
) -> GradientCut | None:
    graph = graph_of(text)
    return find_gradient_cut([graph.tensor(y)], graph.tensor(x), map(graph.tensor, stops))


def reason(cut: GradientCut | None) -> tuple[str, str, list[str]]:
    assert cut is not None
    return cut.kind, cut.reason, [node.name for node in cut.nodes]


def test_an_x_that_y_depends_on_is_not_cut_off() -> None:
    assert cut_of("y = Mul(x, x)") is None
    assert cut_of("y = Mul(x, x)", y="x") is None


Z = "z = Placeholder() {dtype=float32, shape=[]}\n"
INTEGERS = """
n = Cast(x) {DstT=int32}
m = Neg(n)
y = Cast(m) {DstT=float32}
"""
INDEX = """
k = Const() {dtype=int32, value=int32[]:1}
top = TopKV2(x, k)
y = Cast(top:1) {DstT=float32}
"""
NEAR_AND_FAR = """
near = StopGradient(x)
a = Neg(x)
far = Cast(a) {DstT=int32}
b = Cast(far) {DstT=float32}
y = Add(near, b)
"""
VARIABLE = """
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
set = AssignVariableOp(v, x)
y = ReadVariableOp(v, ^set) {dtype=float32}
"""
BOTH = "near (StopGradient) stops gradients; far (Cast) outputs int32"
STATE = "set (AssignVariableOp) writes it to state that is read later; state has no gradient"


@pytest.mark.parametrize(
    ("text", "kind", "message", "nodes"),
    [
        (INTEGERS, "type", "n (Cast) outputs int32", ["n"]),
        (INDEX, "type", "top (TopKV2) outputs int32", ["top"]),
        ("s = StopGradient(x)\ny = Neg(s)", "stop", "s (StopGradient) stops gradients", ["s"]),
        (NEAR_AND_FAR, "stop", BOTH, ["near", "far"]),
        (VARIABLE, "state", STATE, ["set"]),
        (Z + "y = Neg(z)", "none", "no path leads to y:0", []),
        (Z + "y = Neg(z, ^x)", "control", "only control edges lead to y:0", []),
    ],
)
def test_a_cut_has_a_reason(text: str, kind: str, message: str, nodes: list[str]) -> None:
    assert reason(cut_of(text)) == (kind, message, nodes)


def test_a_tensor_in_stops_cuts_the_path() -> None:
    text = "a = Neg(x)\ny = Neg(a)"
    assert reason(cut_of(text, stops=("a",))) == ("stop", "a (Neg) stops gradients", ["a"])


def test_an_x_in_stops_has_its_own_gradient() -> None:
    assert cut_of("y = Neg(x)", stops=("x",)) is None


def test_an_integer_x_is_reported() -> None:
    text = "n = Placeholder() {dtype=int32, shape=[]}\ny = Neg(n)"
    assert reason(cut_of(text, x="n")) == (
        "type",
        "n:0 has dtype int32, which has no gradient",
        ["n"],
    )


def test_an_integer_y_is_reported() -> None:
    kind, message, _ = reason(cut_of("y = Cast(x) {DstT=int32}"))
    assert (kind, message) == ("type", "y (Cast) outputs int32")


def test_another_handle_of_the_variable_is_reported() -> None:
    text = """
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
again = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
y = ReadVariableOp(again) {dtype=float32}
"""
    message = "the variable is read through another handle, again"
    assert reason(cut_of(text, x="v")) == ("handle", message, ["again"])


def test_a_path_leads_from_an_x_through_the_node_to_a_y() -> None:
    graph = graph_of("a = Neg(x)\nb = Exp(a)\nc = Neg(x)\ny = Add(b, c)")
    tensors = [graph.tensor("x")], graph["b"], [graph.tensor("y")]
    assert format_path(gradient_path_through(*tensors)) == "x → a → b → y"


def test_a_path_may_begin_or_end_at_the_node() -> None:
    graph = graph_of("y = Neg(x)")
    xs, ys = [graph.tensor("x")], [graph.tensor("y")]
    assert format_path(gradient_path_through(xs, graph["x"], ys)) == "x → y"
    assert format_path(gradient_path_through(xs, graph["y"], ys)) == "x → y"


def test_there_is_no_path_through_a_node_aside() -> None:
    graph = graph_of("z = Placeholder() {dtype=float32, shape=[]}\na = Neg(z)\ny = Neg(x)")
    assert gradient_path_through([graph.tensor("x")], graph["a"], [graph.tensor("y")]) == ()


def test_a_long_path_is_left_out_in_the_middle() -> None:
    lines = [f"n{i} = Neg({f'n{i - 1}' if i else 'x'})" for i in range(10)]
    graph = graph_of("\n".join(lines))
    path = gradient_path_through([graph.tensor("x")], graph["n5"], [graph.tensor("n9")])
    assert format_path(path) == "x → n0 → n1 → … 5 more … → n7 → n8 → n9"


def test_variables_and_float_inputs_are_what_to_differentiate_by() -> None:
    graph = graph_of("""
n = Placeholder() {dtype=int32, shape=[]}
one = Const() {dtype=float32, value=float32[]:1}
d = PlaceholderWithDefault(one) {dtype=float32, shape=[]}
h = VarHandleOp() {dtype=float32, shape=[]}
step = VarHandleOp() {dtype=int64, shape=[]}
v = VariableV2() {dtype=complex64, shape=[]}
""")
    assert [item.name for item in default_xs(graph)] == ["x:0", "d:0", "h:0", "v:0"]
