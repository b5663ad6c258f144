"""Values are compared within tolerances, and a difference is described in numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cfgraph.comparison.value_difference import value_difference

NAN, INF = float("nan"), float("inf")


def strings(*items: bytes) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (np.float32(1), np.float32(1 + 1e-5)),
        (np.float64(1), np.float64(1 + 1e-10)),
        (np.float32([NAN, INF, -INF]), np.float32([NAN, INF, -INF])),
        (np.complex64(1 + 2j), np.complex64(1 + 2.00001j)),
        (np.complex64(complex(NAN, 1)), np.complex64(complex(NAN, 1))),
        (np.array([1], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16)),
        (np.int64(2**62 + 1), np.int64(2**62 + 1)),
        (strings(b"a", b""), strings(b"a", b"")),
        (np.zeros((0, 2)), np.zeros((0, 2))),
        (np.bool_(True), np.bool_(True)),
    ],
)
def test_equal_values_and_close_ones_do_not_differ(actual: Any, expected: Any) -> None:
    assert value_difference(actual, expected) is None


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (np.float64(1), np.float64(1 + 1e-5)),
        (np.float32(NAN), np.float32(1)),
        (np.float32(1), np.float32(NAN)),
        (np.float32(INF), np.float32(-INF)),
        (np.float32(1e30), np.float32(INF)),
        (np.int64(2**62 + 1), np.int64(2**62)),
        (np.uint8(0), np.uint8(255)),
        (np.bool_(True), np.bool_(False)),
        (strings(b"a"), strings(b"b")),
        (np.array([7], ml_dtypes.int4), np.array([-8], ml_dtypes.int4)),
    ],
)
def test_values_that_are_not_close_differ(actual: Any, expected: Any) -> None:
    assert value_difference(actual, expected) is not None


def test_a_difference_counts_and_names_the_first_element() -> None:
    actual = np.array([[1.0, 2.0], [4.5, 5.0]])
    difference = value_difference(actual, np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert difference is not None
    assert (difference.count, difference.total, difference.index) == (2, 4, (1, 0))
    assert (difference.max_abs, difference.max_rel) == (1.5, 0.5)
    assert (difference.actual, difference.expected) == (4.5, 3.0)
    assert difference.message == "2 of 4 elements differ, the first at [1, 0]"
    assert difference.index == (1, 0)
    assert difference.description == (
        f"{difference.message}: 3.0 and 4.5; largest difference 1.5, relative 0.5"
    )


@pytest.mark.parametrize(
    ("actual", "expected", "description"),
    [
        (strings(b"a", b"x" * 50), strings(b"a", b"b"), f": 'b' and '{'x' * 39}…"),
        (np.array([True]), np.array([False]), ": False and True"),
        (np.int32([7]), np.int32([0]), ": 0 and 7; largest difference 7, relative inf"),
    ],
)
def test_a_description_has_the_first_elements_that_differ(
    actual: Any, expected: Any, description: str
) -> None:
    difference = value_difference(actual, expected)
    assert difference is not None
    assert difference.description == difference.message + description


def test_the_gap_of_integers_is_exact_at_both_ends() -> None:
    low, high = np.int64(-(2**63)), np.int64(2**63 - 1)
    difference = value_difference(low, high)
    assert difference is not None
    assert difference.max_abs == float(2**64 - 1)


@pytest.mark.parametrize(
    ("rtol", "atol", "equal"),
    [(0.1, 0.0, True), (0.0, 0.1, False), (0.0, 1.0, True), (0.01, 0.9, True), (0.01, 0.0, False)],
)
def test_the_tolerances_add_up(rtol: float, atol: float, equal: bool) -> None:
    assert (value_difference(np.float32(11), np.float32(10), rtol, atol) is None) is equal


def test_integers_are_compared_exactly_with_any_tolerance() -> None:
    assert value_difference(np.int32(11), np.int32(10), 1.0, 1.0) is not None


def test_types_and_shapes_must_agree() -> None:
    assert "float32, expected float64" in str(value_difference(np.float32(1), np.float64(1)))
    assert "[2], expected [1,2]" in str(value_difference(np.zeros(2), np.zeros((1, 2))))
