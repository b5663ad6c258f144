from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph import Builder
from cfgraph.ir.dtypes import DType
from tests.build.execution import rejection, run_builder


def values() -> tuple[Builder, Any, Any]:
    b = Builder()
    return b, b.placeholder("x", "float64", [2]), b.placeholder("k", "int32", [])


def test_an_op_is_a_method_with_its_inputs_and_attributes() -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [3, 2])
    y = b.MatMul(x, b=x, transpose_a=True, name="y")
    assert y.name == "y:0"
    assert y.op.node.attrs == {"T": DType.from_name("float32"), "transpose_a": True}
    assert str(y.shape) == "[2,2]"


def test_several_outputs_are_a_named_tuple_and_none_the_operation() -> None:
    b, x, k = values()
    switch = b.Switch(x, k > 0)
    assert switch.output_true.name == "Switch:1"
    parts = b.Split(0, x, num_split=2)
    assert [field.name for field in parts] == ["Split:0", "Split:1"]
    assert b.NoOp().name == "NoOp"


def test_python_values_take_the_type_of_adjacent_tensors() -> None:
    b, x, k = values()
    assert [str(t.dtype) for t in (x + 1, 2 * x, k + 1, b.AddN([x, [1, 2]]))] == [
        "float64",
        "float64",
        "int32",
        "float64",
    ]
    assert b.graph["AddV2/y"].attrs["value"].array.dtype == np.float64


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "int32"),
        (2**40, "int64"),
        (1.5, "float32"),
        (1e300, "float64"),
        (float("inf"), "float32"),
        ([1, 2.5], "float32"),
        (True, "bool"),
        ("text", "string"),
        (1j, "complex128"),
        (np.float64(1), "float64"),
        (np.zeros(2, np.uint8), "uint8"),
        ([], "float32"),
    ],
)
def test_a_constant_has_the_type_that_its_value_takes_best(value: Any, dtype: str) -> None:
    assert str(Builder().const(value).dtype) == dtype


def test_a_value_takes_a_type_that_the_op_allows() -> None:
    b, x, _ = values()
    assert str(b.Sqrt(4).dtype) == "float32"
    assert str(b.Reshape(x[:1], []).op.node.inputs[1].dtype) == "int32"
    assert str(b.Const(value=[1.5], dtype="float64", name="c").dtype) == "float64"


def test_a_list_of_tensors_is_packed_where_one_tensor_is_wanted() -> None:
    b, x, k = values()
    out = b.Reshape(b.Tile(x, [k]), [k, 2])
    assert run_builder(b, [out], {"x": [1, 2], "k": 2}) == [[[1.0, 2.0], [1.0, 2.0]]]


def test_lists_that_share_a_count_are_taken_apart() -> None:
    b, x, _ = values()
    out = b.DynamicStitch([[0, 2], [1, 3]], [x, x * 10])
    assert run_builder(b, [out], {"x": [1, 2]}) == [[1.0, 10.0, 2.0, 20.0]]


def test_operators_do_what_python_does() -> None:
    b, x, k = values()
    p, a = k > 2, np.array([1.0, -2.5])
    pairs = [
        (x + 1, a + 1),
        (1 - x, 1 - a),
        (x * x, a * a),
        (x / 2, a / 2),
        (x // 2, a // 2),
        (x % 2, a % 2),
        (x**2, a**2),
        (2**x, 2**a),
        (-x, -a),
        (abs(x), abs(a)),
        (np.ones(2) + x, np.ones(2) + a),
        (x >= 0, a >= 0),
        (x == 1, a == 1),
        (x != 1, a != 1),
        (k / 2, 1.5),
        (k // 2, 1),
        (-k % 2, 1),
        (k & 1, 1),
        (k | 4, 7),
        (k ^ 1, 2),
        (~k, -4),
        (p & ~p, False),
        (p | ~p, True),
        (p ^ p, False),
    ]
    result = run_builder(b, [tensor for tensor, _ in pairs], {"x": a, "k": 3})
    assert result == [np.asarray(want).tolist() for _, want in pairs]


def test_matrices_are_multiplied_singly_and_in_stacks() -> None:
    b = Builder()
    m, s = b.placeholder("m", "float32", [2, 2]), b.placeholder("s", "float32", [3, 2, 2])
    single, stacked = m @ m, s @ m
    assert [single.op.node.op, stacked.op.node.op] == ["MatMul", "BatchMatMulV2"]
    arrays = np.arange(4.0).reshape(2, 2), np.arange(12.0).reshape(3, 2, 2)
    assert run_builder(b, [single, stacked], {"m": arrays[0], "s": arrays[1]}) == [
        (arrays[0] @ arrays[0]).tolist(),
        (arrays[1] @ arrays[0]).tolist(),
    ]


def test_an_index_takes_the_part_that_numpy_takes() -> None:
    b = Builder()
    x, k = b.placeholder("x", "float32", [2, 3, 4]), b.placeholder("k", "int32", [])
    a = np.arange(24.0).reshape(2, 3, 4)
    pairs = [
        (x[1], a[1]),
        (x[:, 1:], a[:, 1:]),
        (x[..., -1], a[..., -1]),
        (x[None, 0, -1, ::2], a[None, 0, -1, ::2]),
        (x[:, ::-1], a[:, ::-1]),
        (x[k], a[1]),
        (x[k:, 0, k + 1], a[1:, 0, 2]),
    ]
    assert run_builder(b, [tensor for tensor, _ in pairs], {"x": a, "k": 1}) == [
        w.tolist() for _, w in pairs
    ]
    assert [str(tensor.shape) for tensor, _ in pairs[:5]] == [
        str(list(w.shape)).replace(" ", "") for _, w in pairs[:5]
    ]


def test_undeclared_attributes_are_unchanged() -> None:
    b, x, _ = values()
    assert b.Identity(x, _class=["loc:@x"]).op.node.attrs["_class"] == (b"loc:@x",)


def test_every_op_is_offered() -> None:
    b = Builder()
    assert {"MatMul", "while_loop"} < set(dir(b))
    assert "product" in (b.MatMul.__doc__ or "")
    assert not hasattr(b, "MatMull")


MISTAKES = {
    "there is no op 'MatMull'": lambda b, x, k: b.MatMull(x, x),
    "there is no op 'whileloop'": lambda b, x, k: b.whileloop(x, x),
    "MatMul requires the input 'b'": lambda b, x, k: b.MatMul(x),
    "MatMul takes 2 inputs (a, b), got 3": lambda b, x, k: b.MatMul(x, x, x),
    "MatMul: the input 'a' is passed twice": lambda b, x, k: b.MatMul(x, x, a=x),
    "MatMul has no input or attribute 'transpos_a'": lambda b, x, k: b.MatMul(x, x, transpos_a=1),
    "Cast requires the attribute 'DstT'": lambda b, x, k: b.Cast(x),
    "AddN expects a list for the input 'inputs'": lambda b, x, k: b.AddN(x),
    "AddN expects a list of length 1 or more for 'inputs', got 0": lambda b, x, k: b.AddN([]),
    "input 1 is k:0 of type int32, AddV2 expects float64": lambda b, x, k: x + k,
    "FloorMod, input 'y': 1.5 cannot be represented as int32": lambda b, x, k: k % 1.5,
    "Sqrt does not accept int32 for x": lambda b, x, k: b.Sqrt(k),
    "Sqrt does not accept 'a' for 'x'": lambda b, x, k: b.Sqrt("a"),
    "AddN expects 3 tensors for 'inputs', got 2": lambda b, x, k: b.AddN([x, x], N=3),
    "AddN expects 'N' to be at least 1, got 0": lambda b, x, k: b.AddN([], N=0),
    "MaxPool: attribute 'ksize' must be a list, got 2": lambda b, x, k: b.MaxPool(x, ksize=2),
    "MaxPool expects at least 4 elements in 'ksize', got 1": (
        lambda b, x, k: b.MaxPool(x, ksize=[2])
    ),
    "MaxPool does not accept FULL for 'padding'": lambda b, x, k: b.MaxPool(x, padding="FULL"),
    "'a' is not a shape": lambda b, x, k: b.placeholder("y", "float32", "a"),
    "{} cannot be an attribute": lambda b, x, k: b.Identity(x, _class={}),
    "AddV2: shapes [2] and [3] do not broadcast": lambda b, x, k: b.AddV2(x, [1, 2, 3]),
    "Identity: 'input' is an operation, which has no value to read": (
        lambda b, x, k: b.Identity(b.NoOp())
    ),
    "'floot' is not an element type": lambda b, x, k: b.Cast(x, DstT="floot"),
    "MatMul expects True or False for the attribute 'transpose_a', got 'yes'": (
        lambda b, x, k: b.MatMul(x, x, transpose_a="yes")
    ),
    "'_x' is not a valid name for a node": lambda b, x, k: b.Identity(x, name="_x"),
    "'x:0' belongs to the graph of another Builder": lambda b, x, k: Builder().Identity(x),
    "1099511627776 cannot be represented as int32": lambda b, x, k: b.const(2**40, "int32"),
    "no element type can represent [[1.0], [2.0, 3]]": lambda b, x, k: b.const([[1.0], [2.0, 3]]),
    "1e+300 cannot be represented as float32": lambda b, x, k: b.const(1e300, "float32"),
    "[[1], [2, 3]] cannot be represented as int32": lambda b, x, k: b.const([[1], [2, 3]], "int32"),
    "'a' is not a valid tensor index": lambda b, x, k: x["a"],
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_named_at_the_line_of_the_user(message: str) -> None:
    mistake, arguments = MISTAKES[message], values()
    with pytest.raises(cfgraph.CfgraphError) as caught:
        mistake(*arguments)
    assert caught.value.message == message
    assert caught.value.path == f"{__file__}:{mistake.__code__.co_firstlineno}"


def test_a_tensor_is_no_python_value() -> None:
    _, x, _ = values()
    assert "has no truth value" in rejection(lambda: bool(x[0] > 1)).message
    assert "cannot be iterated" in rejection(lambda: list(x)).message


def test_what_was_meant_is_guessed() -> None:
    b, x, _ = values()
    assert rejection(lambda: b.MatMull(x, x)).hint == "did you mean 'MatMul'?"
    assert rejection(lambda: b.whileloop(x, x)).hint == "did you mean 'while_loop'?"
    assert rejection(lambda: b.MatMul(x, x, transpos_a=True)).hint == "did you mean 'transpose_a'?"


def test_a_node_that_does_not_fit_leaves_no_trace() -> None:
    b, x, _ = values()
    rejection(lambda: b.MatMul(x, x))
    assert [node.name for node in b.graph] == ["x", "k"]
