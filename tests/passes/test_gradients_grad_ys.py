"""Upstream gradients of the ys: tensors and arrays that match; others are rejected before any
edit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError, Unsupported, UsageError


def program() -> cfgraph.Graph:
    """y = x * x of shape [2, 3], and a loop that nothing reads; lowered."""
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [2, 3])
    b.placeholder("row", "float32", [3])
    b.Mul(x, x, name="y")
    b.while_loop(lambda v: b.Less(v, 9.0), lambda v: b.Mul(v, v), b.const(2.0), name="loop")
    cfgraph.lower(b.graph)
    return b.graph


def refused(kind: type[CfgraphError], weight: Any) -> str:
    graph = program()
    before = cfgraph.dumps(graph)
    with pytest.raises(kind) as caught:
        cfgraph.gradients(graph, ["y:0"], ["x:0"], grad_ys=weight)
    assert cfgraph.dumps(graph) == before
    return caught.value.message


@pytest.mark.parametrize("weight", [np.float32(2), np.zeros([3, 2], np.float32), 2.0, "row"])
def test_a_weight_of_another_shape_is_refused(weight: Any) -> None:
    assert "expected [2,3]" in refused(UsageError, [weight])


def test_a_weight_of_one_element_takes_the_shape_of_a_y_of_one() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [2])
    b.Sum(x, b.const(0), name="y")
    weight = np.array([3], np.float32)
    (name,) = cfgraph.gradients(b.graph, ["y:0"], ["x:0"], grad_ys=[weight])
    assert cfgraph.Session(b.graph).run([str(name)], {"x:0": [1, 2]})[0].tolist() == [3, 3]


def test_a_weight_from_inside_a_loop_is_refused() -> None:
    names = [node.name for node in program() if node.op == "NextIteration"]
    assert "is inside the loop" in refused(Unsupported, names)


@pytest.mark.parametrize("weight", [[[1.0], [1.0, 2.0]], b"x", object(), 1j])
def test_what_is_no_number_of_the_type_is_refused(weight: Any) -> None:
    assert "dtype" in refused(UsageError, [weight])


def test_as_many_weights_as_ys_are_wanted() -> None:
    assert refused(UsageError, []) == "0 grad_ys for 1 ys, expected one per y"


def test_numbers_of_python_take_the_type_of_the_y() -> None:
    graph = program()
    weight = [[1, 2, 3], [4, 5, 6]]
    (name,) = cfgraph.gradients(graph, ["y:0"], ["x:0"], grad_ys=[np.array(weight, np.float32)])
    (weighted,) = cfgraph.gradients(graph, ["y:0"], ["x:0"], grad_ys=[weight])
    x = np.ones([2, 3], np.float32)
    have = cfgraph.Session(graph).run([str(name), str(weighted)], {"x:0": x})
    assert np.array_equal(have, [2 * np.array(weight)] * 2)


def test_gradients_stop_at_names_that_come_one_by_one() -> None:
    stops = (name for name in ["y:0"])
    assert cfgraph.gradients(program(), ["y:0"], ["x:0"], stop_gradients=stops) == [None]


def test_one_name_may_stand_for_a_list_of_it() -> None:
    assert cfgraph.gradients(program(), "y", "x") == ["gradients/x:0"]
    assert cfgraph.gradients(program(), "y", "x", stop_gradients="y") == [None]
    assert cfgraph.gradients(program(), ["y"], ["x"], stop_gradients=iter(["y"])) == [None]


def lists() -> cfgraph.Graph:
    """Two lists that contain x * x and 5; the first is also an output of a branch, `taken`."""
    b = cfgraph.Builder()
    x, flag = b.placeholder("x", "float32", []), b.placeholder("flag", "bool", [])
    empty = b.EmptyTensorList(b.const([], "int32"), b.const(-1), element_dtype="float32")
    made = b.TensorListPushBack(empty, b.Mul(x, x), name="made")
    b.TensorListPushBack(empty, b.const(5.0), name="weight")
    _, taken = b.Switch(made, flag)
    b.Identity(taken, name="taken")
    return b.graph


@pytest.mark.parametrize("y", ["made", "taken"])
def test_a_list_is_weighed_with_a_list(y: str) -> None:
    graph = lists()
    (name,) = cfgraph.gradients(graph, [y], ["x"], grad_ys=["weight"])
    assert cfgraph.Session(graph).run([str(name)], {"x:0": 3.0, "flag:0": True}) == [30.0]


@pytest.mark.parametrize("weight", [None, 1.0, np.float32(1)])
def test_a_list_has_no_ones_to_be_weighed_with(weight: Any) -> None:
    with pytest.raises(UsageError, match="made:0 has dtype variant, which has no default"):
        cfgraph.gradients(lists(), ["made"], ["x"], grad_ys=[weight])


@pytest.mark.parametrize(("y", "dtype"), [("v", "resource"), ("text", "string")])
def test_what_is_no_number_has_no_gradient(y: str, dtype: str) -> None:
    graph = cfgraph.loads(
        b"v = VarHandleOp() {dtype=float32, shape=[2]}\n"
        b'text = Const() {dtype=string, value=string[]:"a"}\n'
    )
    with pytest.raises(UsageError, match=f"{y}:0 has dtype {dtype}, which has no gradient"):
        cfgraph.gradients(graph, [y], [y])


def test_a_weight_by_name_adds_no_constant() -> None:
    graph = program()
    before = len([node for node in graph if node.op == "Const"])
    cfgraph.gradients(graph, ["y"], ["x"], grad_ys=["x"])
    assert len([node for node in graph if node.op == "Const"]) == before


REFERENCES = """
v = VariableV2() {dtype=float32, shape=[]}
w = VariableV2() {dtype=float32, shape=[]}
three = Const() {dtype=float32, value=float32[]:3}
init_v = Assign(v, three) {T=float32}
init_w = Assign(w, three) {T=float32}
y = RefIdentity(v) {T=float32}
z = Mul(y, y) {T=float32}
"""


def test_a_reference_weighs_what_has_its_type_by_the_value_of_the_variable() -> None:
    graph = cfgraph.loads(REFERENCES.encode(), "graph")
    names = cfgraph.gradients(graph, ["y:0", "z:0"], ["v:0"], grad_ys=["w:0", "w:0"])
    session = cfgraph.Session(graph)
    session.run([], targets=["init_v", "init_w"])
    assert session.run(names) == [3 + 6 * 3]
