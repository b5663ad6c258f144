from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from cfgraph import Builder
from tests.build.execution import rejection, run_builder


def choosing() -> tuple[Builder, Any, Any]:
    b = Builder()
    return b, b.placeholder("p", "bool", []), b.placeholder("x", "float32", [None])


@pytest.mark.parametrize(("p", "expected"), [(True, [2.0, 4.0]), (False, [-1.0, -2.0])])
def test_a_conditional_gives_what_its_branch_gives(p: bool, expected: list[float]) -> None:
    b, pred, x = choosing()
    out = b.cond(pred, lambda: x * 2, lambda: -x)
    assert run_builder(b, [out], {"p": p, "x": [1, 2]}) == [expected]


@pytest.mark.parametrize(("k", "expected"), [(0, 5), (1, 10), (2, 25), (-1, 25), (7, 25)])
def test_a_case_takes_the_last_branch_for_any_other_index(k: int, expected: int) -> None:
    b = Builder()
    index, x = b.placeholder("k", "int32", []), b.placeholder("x", "int64", [])
    out = b.case(index, [lambda: x, lambda: x * 2, lambda: x * x])
    assert run_builder(b, [out], {"k": k, "x": 5}) == [expected]


def test_what_both_branches_read_is_one_input() -> None:
    b, pred, x = choosing()
    out = b.cond(pred, lambda: x + x, lambda: x)
    assert [item.name for item in out.op.node.inputs] == ["p:0", "x:0"]


def test_a_branch_may_return_its_argument() -> None:
    b, pred, x = choosing()
    out = b.cond(pred, lambda: x, lambda: x + 1)
    assert run_builder(b, [out], {"p": True, "x": [3]}) == [[3.0]]


class Pair(NamedTuple):
    left: Any
    right: Any


def test_results_keep_their_structure() -> None:
    b, pred, x = choosing()
    out = b.cond(
        pred,
        lambda: {"pair": Pair(x, 1), "list": [2.5, (x,)]},
        lambda: {"list": [3.5, (x + 1,)], "pair": Pair(x * 2, 4)},
    )
    assert isinstance(out["pair"], Pair)
    assert isinstance(out["list"], list)
    fetches = [out["pair"].left, out["pair"].right, out["list"][0], out["list"][1][0]]
    assert run_builder(b, fetches, {"p": False, "x": [1]}) == [[2.0], 4, 3.5, [2.0]]


def test_constants_take_the_type_of_the_other_branch() -> None:
    b = Builder()
    x = b.placeholder("x", "float64", [])
    out = b.cond(x > 0, lambda: x, lambda: 0)
    assert str(out.dtype) == "float64"
    assert run_builder(b, [out], {"x": -3}) == [0.0]


def test_the_shape_is_what_both_branches_say() -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [2, 3])
    out = b.cond(b.placeholder("p", "bool", []), lambda: x, lambda: x[:, :2])
    assert str(out.shape) == "[2,?]"
    assert str(out.op.node.attrs["output_shapes"]) == "([2,?],)"


def test_a_branch_for_its_effect_gives_an_operation() -> None:
    b = Builder()
    pred, v = b.placeholder("p", "bool", []), b.variable(1.0)
    done = b.cond(pred, lambda: v.assign_add(2.0), lambda: None)
    with b.control(done):
        after = v.read()
    assert done.node.op == "If"
    assert run_builder(b, [after], {"p": True}, [b.initializer()]) == [3.0]
    assert run_builder(b, [after], {"p": False}, [b.initializer("again")]) == [1.0]


def test_a_python_bool_is_a_constant_predicate() -> None:
    b = Builder()
    assert run_builder(b, [b.cond(True, lambda: 1, lambda: 2)]) == [1]


def test_a_value_of_an_outer_conditional_is_read_two_levels_down() -> None:
    b, pred, x = choosing()

    def outer() -> Any:
        y = x + 1
        return b.cond(pred, lambda: b.cond(x[0] > 0, lambda: y + x, lambda: y), lambda: x)

    out = b.cond(pred, outer, lambda: x)
    assert run_builder(b, [out], {"p": True, "x": [1, 2]}) == [[3.0, 5.0]]


def test_two_types_of_one_output_are_named() -> None:
    b, pred, x = choosing()
    error = rejection(lambda: b.cond(pred, lambda: (x, x), lambda: (x, b.const(1))))
    assert (
        error.message
        == "output 1 of 'cond' has different types: float32 in 'then', int32 in 'else'"
    )


def test_two_structures_are_shown() -> None:
    b, pred, x = choosing()
    error = rejection(lambda: b.cond(pred, lambda: {"a": x}, lambda: {"b": x}))
    assert error.message == "the branches of 'cond' differ: {a: *} in 'then', {b: *} in 'else'"
    error = rejection(lambda: b.case(0, [lambda: (x, (x, x)), lambda: (x, x)]))
    assert error.message.startswith(
        "the branches of 'case' differ at output 1: (*, *) in 'branch0'"
    )


def test_a_value_of_one_branch_is_not_read_in_the_other() -> None:
    b, pred, x = choosing()
    leaked: list[Any] = []
    b.cond(pred, lambda: leaked.append(x * 2), lambda: None)
    error = rejection(lambda: b.cond(pred, lambda: x, lambda: leaked[0] + 1))
    assert "'Mul:0' was created in the then branch of 'cond'" in error.message
    assert "cannot be read in the else branch of 'cond'" in error.message
    assert "cannot be read in the graph itself" in rejection(lambda: b.Identity(leaked[0])).message


@pytest.mark.parametrize("shape", [[2], [1], [None, 1]])
def test_a_predicate_is_a_scalar(shape: list[Any]) -> None:
    b = Builder()
    pred = b.placeholder("p", "bool", shape)
    error = rejection(lambda: b.cond(pred, lambda: 1, lambda: 2))
    assert error.message.startswith("the predicate p:0 has shape")


def test_a_predicate_is_a_bool_and_an_index_an_integer() -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [])
    error = rejection(lambda: b.cond(x, lambda: 1, lambda: 2))
    assert error.message == "the predicate x:0 is float32, not bool"
    assert (
        rejection(lambda: b.case(x, [lambda: 1])).message == "the index x:0 is float32, not int32"
    )


def test_a_branch_is_a_function_without_arguments() -> None:
    b, pred, x = choosing()
    assert "must be callable" in rejection(lambda: b.cond(pred, x, lambda: x)).message
    assert "'y'" in rejection(lambda: b.cond(pred, lambda y: y, lambda: x)).message
    assert rejection(lambda: b.case(0, [])).message == "'case' has no branches"
