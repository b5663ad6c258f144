from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from cfgraph.errors import CfgraphError, ExecutionError, Unsupported
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import SCALAR_SHAPE
from cfgraph.passes.derivatives import gradients
from cfgraph.runtime.session import Session
from tests.ops import gradient_harness, harness
from tests.ops.finite_differences import assert_slope, forward, smooth
from tests.ops.gradient_harness import (
    derive,
    feeds_of,
    float_outputs,
    has_gradient,
    is_flat,
    is_ours,
    is_random,
    notes,
    weight,
    weights_of,
)
from tests.ops.gradient_tf import TensorFlowGradients, assert_gradients
from tests.ops.harness import Case, few_of_each_op, run_ours
from tests.ops.test_ops import check

OURS, NO_SECOND, RESERVED = notes("OUR_GRADIENT"), notes("NO_SECOND"), notes("RESERVED")
NO_SLOPE = notes("ESTIMATE")
SKIPPED = "TensorFlow is not installed (extra `interop`)"


def of_each_op(
    keep: Callable[[str], bool], few: int = 2, most: int | None = None
) -> pytest.MarkDecorator:
    """Parametrize over ops that have a gradient: cases of one op in a family are one test."""
    groups = gradient_harness.float_cases(lambda op: has_gradient(op) and keep(op))
    chosen = {name: items[:most] for name, items in groups.items()}
    return pytest.mark.parametrize("cases", few_of_each_op(chosen, few))


def outputs_to_try(item: Case) -> list[list[int]]:
    """All float outputs together, and each alone."""
    every = float_outputs(item)
    return [every] if len(every) == 1 else [every, *([y] for y in every)]


@pytest.mark.interop
@of_each_op(lambda op: op not in OURS)
def test_gradients_agree_with_tensorflow(cases: list[Case]) -> None:
    if harness.tensorflow() is None:
        pytest.skip(SKIPPED)
    with TensorFlowGradients() as theirs:

        def agree(item: Case) -> None:
            for ys in outputs_to_try(item):
                if not is_ours(item, ys):
                    with failing(item):
                        agree_by(theirs, item, ys)

        check(cases, agree)


@contextmanager
def failing(item: Case) -> Iterator[None]:
    """Let TensorFlow fail where it is known to."""
    try:
        yield
    except Exception as error:
        known = notes("FAILS").get(item.op, ())
        ours = isinstance(error, AssertionError | CfgraphError)
        if ours or not any(words in str(error) for words in known):
            raise


def agree_by(theirs: TensorFlowGradients, item: Case, ys: Sequence[int]) -> None:
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


@of_each_op(lambda op: not is_flat(op) and op not in NO_SLOPE)
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


@of_each_op(lambda op: not is_flat(op) and op not in NO_SLOPE and op not in NO_SECOND, few=1)
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
        named = {weight(key): name for key, name in ours.first.items()}
        weights = weights_of(point, first)
        found = ours.values(ours.second, feeds | weights)
        assert_slope(point, lambda at: ours.values(named, at), weights, feeds, found)

    check(cases, agree)


@of_each_op(lambda op: op in NO_SECOND, most=1)
def test_what_has_no_second_gradient_says_so(cases: list[Case]) -> None:
    def second(item: Case) -> None:
        with pytest.raises(Unsupported, match=r"has no gradient|is prevented"):
            derive(item, float_outputs(item), known=True, second=True)

    check(cases, second)


@of_each_op(lambda op: op in RESERVED, most=1)
def test_an_output_through_which_no_gradient_comes_back_says_so(cases: list[Case]) -> None:
    for output in RESERVED[cases[0].op]:
        with pytest.raises(Unsupported, match="no gradient"):
            derive(cases[0], [output], known=True)


@pytest.mark.interop
@of_each_op(lambda op: op not in OURS and op not in NO_SECOND and not is_flat(op), few=1, most=2)
def test_second_gradients_agree_with_tensorflow(cases: list[Case]) -> None:
    if harness.tensorflow() is None:
        pytest.skip(SKIPPED)
    with TensorFlowGradients() as theirs:

        def agree(item: Case) -> None:
            point = smooth(item)
            ours = item.op in notes("OUR_SECOND") or is_ours(item, float_outputs(item))
            if point is not None and not ours:
                with failing(item):
                    agree_twice(theirs, point)

        check(cases, agree)


def agree_twice(theirs: TensorFlowGradients, point: Case) -> None:
    ys = float_outputs(point)
    feeds = feeds_of(point, ys, run_ours(point))
    wanted = theirs.add(point, ys, second=True)
    if isinstance(wanted.second, LookupError):
        return
    first = wanted.values(wanted.first, feeds)
    ours = derive(point, ys, known=True, second=True)
    if first is None or first.keys() != {key for key, name in ours.first.items() if name}:
        return
    feeds |= weights_of(point, first)
    values = wanted.values(wanted.second, feeds)
    if values is not None:
        assert_gradients(point, ours.values(ours.second, feeds), values)


def test_a_prevented_gradient_is_refused_with_its_reason() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=float32, shape=SCALAR_SHAPE)
    graph.add("PreventGradient", x, name="y", message=b"no slope here")
    with pytest.raises(Unsupported, match="no slope here") as caught:
        gradients(graph, ["y:0"], ["x:0"])
    assert caught.value.code == "CFG509"


def test_an_input_without_a_formula_is_rejected_only_when_requested() -> None:
    graph = Graph()
    a, b, x = (
        graph.add("Placeholder", name=name, dtype=float32, shape=SCALAR_SHAPE) for name in "abx"
    )
    graph.add("Betainc", a, b, x, name="y")
    with pytest.raises(Unsupported, match="no gradient by its input 1"):
        gradients(graph, ["y:0"], ["b:0"])
    assert gradients(graph, ["y:0"], ["x:0"]) != [None]


def test_a_gradient_is_checked_for_numbers_where_the_value_is() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=float32, shape=SCALAR_SHAPE)
    y = graph.add("CheckNumerics", x, name="y", message=b"of y")
    graph.add("Sqrt", y, name="z")
    (dx,) = gradients(graph, ["z:0"], ["x:0"])
    session = Session(graph)
    assert session.run([dx or ""], {"x:0": np.float32(4)}) == [0.25]
    with pytest.raises(ExecutionError, match="in the gradient: of y"):
        session.run([dx or ""], {"x:0": np.float32(0)})


def test_a_power_that_is_known_is_lowered_before_the_run() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=float32, shape=SCALAR_SHAPE)
    exponent = graph.add("Const", name="n", dtype=float32, value=TensorValue(np.float32(3)))
    graph.add("Pow", x, exponent, name="y")
    gradients(graph, ["y:0"], ["x:0"])
    added = [node.op for node in graph if node.name.startswith("gradients/")]
    assert sorted(op for op in added if op != "Const") == ["Fill", "Identity", "Mul", "Mul", "Pow"]


@pytest.mark.interop
def test_tensorflow_has_no_gradient_where_we_have_none() -> None:
    if harness.tensorflow() is None:
        pytest.skip(SKIPPED)
    reasons = notes("NO_GRADIENT")
    refused = {op for op, reason in reasons.items() if reason != harness.NO_GRADIENT_YET}
    with TensorFlowGradients() as theirs:
        for items in gradient_harness.float_cases(refused.__contains__).values():
            with failing(items[0]):
                found = theirs.add(items[0], float_outputs(items[0])).first
                values = {} if isinstance(found, LookupError) else found
                assert not any(x is not None for x in values.values())


def test_every_op_on_floats_has_a_gradient_or_a_reason() -> None:
    groups = gradient_harness.float_cases(lambda op: not has_gradient(op))
    without = {name.split("-", 1)[1] for name in groups}
    assert without == set(notes("NO_GRADIENT"))
