from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ops.opdef.op import OpError, lookup


class Count:
    """A variant that can be added and has a zero."""

    def __init__(self, value: int) -> None:
        self.value = value

    def add(self, other: Count) -> Count:
        return Count(self.value + other.value)

    def zeros_like(self) -> Count:
        return Count(0)


def bound(op: str, *types: str) -> Any:
    """The kernel of an op whose inputs have these types."""
    graph = Graph()
    inputs = [graph.add("Placeholder", dtype=DType.from_name(name)) for name in types]
    found = lookup(op)
    assert found is not None
    return found.bind(graph.add(op, *inputs), np)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("AddV2", operator.add),
        ("Sub", operator.sub),
        ("Mul", operator.mul),
        ("RealDiv", operator.truediv),
        ("Less", operator.lt),
        ("Greater", operator.gt),
        ("Equal", operator.eq),
    ],
)
def test_the_kernel_of_plain_arithmetic_is_the_operator_itself(op: str, function: Any) -> None:
    assert bound(op, "float32", "float32") is function


def test_the_sum_of_variants_is_what_the_variants_say() -> None:
    total = bound("AddN", *["variant"] * 3)
    assert total(Count(1), Count(2), Count(4)).value == 7
    assert bound("AddN", "variant")(Count(5)).value == 5


def test_the_zero_of_a_variant_is_what_the_variant_says() -> None:
    assert bound("ZerosLike", "variant")(Count(3)).value == 0


def test_integer_division_by_zero_is_an_error_for_scalars_and_arrays() -> None:
    divide = bound("FloorDiv", "int32", "int32")
    with pytest.raises(OpError, match="Integer division by zero"):
        divide(np.int32(1), np.int32(0))
    with pytest.raises(OpError, match="Integer division by zero"):
        divide(np.int32(1), np.array([1, 0], np.int32))


def test_the_sigmoid_is_accurate_far_below_zero() -> None:
    x = np.array([-80, -20, -1, 0, 1, 20], np.float32)
    wanted = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(bound("Sigmoid", "float32")(x), wanted, rtol=1e-6)


def test_a_choice_between_scalars_returns_one_of_them() -> None:
    t, e = np.float32(1), np.float32(2)
    for op in ("Select", "SelectV2"):
        choose = bound(op, "bool", "float32", "float32")
        assert choose(np.True_, t, e) is t
        assert choose(np.False_, t, e) is e


def test_a_matrix_without_a_cholesky_factor_becomes_nan_and_spares_the_others() -> None:
    matrices = np.array([[[1, 2], [2, 1]], [[4, 2], [2, 3]]], np.float64)
    factors = bound("Cholesky", "float64")(matrices)
    assert np.isnan(factors[0][np.tril_indices(2)]).all()
    np.testing.assert_allclose(factors[1] @ factors[1].T, matrices[1])


@pytest.mark.parametrize("op", ["Svd", "XlaSvd"])
def test_singular_values_of_a_matrix_with_infinity_are_nan(op: str) -> None:
    matrices = np.array([[[1, np.inf, 2], [3, 4, 5]], [[4, 0, 0], [0, 3, 0]]], np.float64)
    values, *vectors = bound(op, "float64")(matrices)
    assert all(np.isnan(part[0]).all() for part in (values, *vectors))
    np.testing.assert_array_equal(values[1], [4, 3])


@pytest.mark.parametrize("op", ["SigmoidGrad", "TanhGrad", "SqrtGrad", "ReciprocalGrad"])
def test_a_gradient_from_a_result_has_the_shape_of_the_result(op: str) -> None:
    kernel = bound(op, "float32", "float32")
    y, dy = np.float32([0.5, 0.25]), np.float32([3, 5])
    np.testing.assert_array_equal(kernel(y, dy[:, None]), kernel(y, dy))
    np.testing.assert_array_equal(kernel(y[:, None], dy), kernel(y, dy)[:, None])
