from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape

DIMS = st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=4)
SHAPES = st.one_of(st.just(UNKNOWN_SHAPE), DIMS.map(Shape))
SIZES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
# a busy machine draws and runs an example in any time
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("shape", "text", "rank", "full", "elements"),
    [
        (UNKNOWN_SHAPE, "?", None, False, None),
        (SCALAR_SHAPE, "[]", 0, True, 1),
        (vector_shape(), "[?]", 1, False, None),
        (vector_shape(3), "[3]", 1, True, 3),
        (Shape((2, None)), "[2,?]", 2, False, None),
        (Shape((2, 3, 0)), "[2,3,0]", 3, True, 0),
    ],
)
def test_a_shape_knows_its_rank_and_size(
    shape: Shape, text: str, rank: int | None, full: bool, elements: int | None
) -> None:
    assert (str(shape), shape.rank, shape.is_full, shape.elements) == (text, rank, full, elements)


@UNTIMED
@given(SHAPES, SIZES)
def test_a_shape_accepts_what_it_does_not_contradict(shape: Shape, sizes: tuple[int, ...]) -> None:
    try:
        shape.merge(Shape(sizes))
        agrees = True
    except ValueError:
        agrees = False
    assert shape.accepts(sizes) == agrees


@UNTIMED
@given(SHAPES, SHAPES)
def test_merging_keeps_what_either_says(first: Shape, second: Shape) -> None:
    try:
        both = first.merge(second)
    except ValueError:
        return
    assert both == second.merge(first)
    assert both.merge(first) == both.merge(second) == both


@UNTIMED
@given(SHAPES, SHAPES, SIZES)
def test_merging_accepts_what_both_accept(
    first: Shape, second: Shape, sizes: tuple[int, ...]
) -> None:
    expected = first.accepts(sizes) and second.accepts(sizes)
    try:
        assert first.merge(second).accepts(sizes) == expected
    except ValueError:
        assert not expected


@UNTIMED
@given(SHAPES, SHAPES, SIZES)
def test_joining_accepts_what_either_accepts(
    first: Shape, second: Shape, sizes: tuple[int, ...]
) -> None:
    joined = first.generalize(second)
    assert joined == second.generalize(first)
    if first.accepts(sizes) or second.accepts(sizes):
        assert joined.accepts(sizes)


@UNTIMED
@given(SIZES, SIZES)
def test_full_shapes_broadcast_as_arrays_do(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    try:
        expected = np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            Shape(first).broadcast(Shape(second))
    else:
        assert Shape(first).broadcast(Shape(second)) == Shape(expected)


@UNTIMED
@given(SHAPES, SHAPES, SIZES, SIZES)
def test_what_is_not_known_broadcasts_to_what_may_be(
    value: Shape, two: Shape, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    try:
        expected = np.broadcast_shapes(first, second)
    except ValueError:
        return
    if value.accepts(first) and two.accepts(second):
        assert value.broadcast(two).accepts(expected)


@UNTIMED
@given(SIZES, SIZES)
def test_joined_ends_multiply_sizes(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    joined = Shape(first) + Shape(second)
    assert joined.elements == math.prod(first) * math.prod(second)
    assert Shape(first) + UNKNOWN_SHAPE == UNKNOWN_SHAPE


def test_contradictions_name_both_shapes() -> None:
    with pytest.raises(ValueError, match=r"shapes \[2\] and \[3\] contradict each other"):
        vector_shape(2).merge(vector_shape(3))
    with pytest.raises(ValueError, match=r"shapes \[\] and \[3\] differ in rank"):
        SCALAR_SHAPE.merge(vector_shape(3))
    with pytest.raises(ValueError, match=r"shapes \[2\] and \[3\] do not broadcast"):
        vector_shape(2).broadcast(vector_shape(3))


def test_a_shape_is_cut_like_a_tuple() -> None:
    assert Shape((1, 2, 3))[1:] == Shape((2, 3))
    assert UNKNOWN_SHAPE[1:] == UNKNOWN_SHAPE
    assert list(Shape((1, None))) == [1, None]
    with pytest.raises(ValueError, match="unknown rank"):
        list(UNKNOWN_SHAPE)


def test_names_of_dimensions_distinguish_shapes() -> None:
    named = Shape((1, 2), ("batch", ""))
    assert named != Shape((1, 2))
    assert named == Shape((1, 2), ("batch", ""))
    assert len({named, Shape((1, 2)), Shape((1, 2))}) == 2
    assert Shape((1,)) != (1,)
