from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cfgraph.errors import Unsupported
from tests.ops import gradient_harness, harness
from tests.ops.gradient_harness import (
    derive,
    feeds_of,
    float_outputs,
    has_gradient,
    is_flat,
    is_ours,
    is_random,
    notes,
    weights_of,
)
from tests.ops.gradient_slopes import assert_slope, forward, smooth
from tests.ops.gradient_theirs import Theirs, assert_gradients
from tests.ops.harness import Case, run_ours
from tests.ops.test_ops import check

OURS, NO_SECOND = notes("OUR_GRADIENT"), notes("NO_SECOND")
SKIPPED = "TensorFlow is not installed (extra `interop`)"


def of_each_op(keep: Callable[[str], bool]) -> pytest.MarkDecorator:
    """Parametrize over ops that have a gradient: the cases of one op in a family are one test."""
    groups = gradient_harness.float_cases(lambda op: has_gradient(op) and keep(op))
    return pytest.mark.parametrize("cases", groups.values(), ids=groups.keys())


def outputs_to_try(item: Case) -> list[list[int]]:
    """All float outputs together, and each alone."""
    every = float_outputs(item)
    return [every] if len(every) == 1 else [every, *([y] for y in every)]


@pytest.mark.interop
@of_each_op(lambda op: op not in OURS)
def test_gradients_agree_with_tensorflow(cases: list[Case]) -> None:
    if harness.tensorflow() is None:
        pytest.skip(SKIPPED)
    with Theirs() as theirs:

        def agree(item: Case) -> None:
            for ys in outputs_to_try(item):
                if not is_ours(item, ys):
                    agree_by(theirs, item, ys)

        check(cases, agree)


def agree_by(theirs: Theirs, item: Case, ys: Sequence[int]) -> None:
    feeds = feeds_of(item, ys, run_ours(item))
    wanted = theirs.add(item, ys)
    if isinstance(wanted.first, LookupError):
        raise AssertionError(f"TensorFlow has none (see OUR_GRADIENT): {wanted.first}")
    values = wanted.values(wanted.first, feeds)
    if values is None:
        return
    for known in (True, False):
        ours = derive(item, ys, known=known)
        assert_gradients(item, ours.values(ours.first, feeds), values)


@of_each_op(lambda op: not is_flat(op))
def test_gradients_agree_with_finite_differences(cases: list[Case]) -> None:
    def agree(item: Case) -> None:
        point = smooth(item)
        if point is None or is_random(item.op):
            return
        for ys in outputs_to_try(point):
            feeds = feeds_of(point, ys, run_ours(point))
            ours = derive(point, ys, known=True)
            weights = {f"dy{i}:0": feeds[f"dy{i}:0"] for i in ys}
            assert_slope(point, forward(point), weights, feeds, ours.values(ours.first, feeds))

    check(cases, agree)


@of_each_op(lambda op: not is_flat(op) and op not in NO_SECOND)
def test_second_gradients_agree_with_finite_differences(cases: list[Case]) -> None:
    def agree(item: Case) -> None:
        point = smooth(item)
        if point is None or is_random(item.op):
            return
        ys = float_outputs(point)
        feeds = feeds_of(point, ys, run_ours(point))
        ours = derive(point, ys, known=True, second=True)
        first = ours.values(ours.first, feeds)
        if not first:
            return
        named = {f"w{i}:0": name for i, name in enumerate(filter(None, ours.first.values()))}
        weights = weights_of(point, first)
        found = ours.values(ours.second, feeds | weights)
        assert_slope(point, lambda at: ours.values(named, at), weights, feeds, found)

    check(cases, agree)


@of_each_op(lambda op: op in NO_SECOND)
def test_what_has_no_second_gradient_says_so(cases: list[Case]) -> None:
    def second(item: Case) -> None:
        with pytest.raises(Unsupported, match="has no gradient"):
            derive(item, float_outputs(item), known=True, second=True)

    check(cases[:1], second)


@pytest.mark.interop
@of_each_op(lambda op: op not in OURS and op not in NO_SECOND and not is_flat(op))
def test_second_gradients_agree_with_tensorflow(cases: list[Case]) -> None:
    if harness.tensorflow() is None:
        pytest.skip(SKIPPED)
    with Theirs() as theirs:

        def agree(item: Case) -> None:
            point = smooth(item)
            if point is None or is_ours(item, float_outputs(item)):
                return
            ys = float_outputs(point)
            feeds = feeds_of(point, ys, run_ours(point))
            wanted = theirs.add(point, ys, second=True)
            if isinstance(wanted.second, LookupError):
                return
            ours = derive(point, ys, known=True, second=True)
            first = wanted.values(wanted.first, feeds)
            if first is None:
                return
            feeds |= weights_of(point, first)
            values = wanted.values(wanted.second, feeds)
            if values is not None:
                assert_gradients(point, ours.values(ours.second, feeds), values)

        check(cases[:2], agree)
