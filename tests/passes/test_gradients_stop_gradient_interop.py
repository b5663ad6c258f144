"""TensorFlow's loops with StopGradient, differentiated by cfgraph and by TensorFlow, twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.passes.derivatives import DerivativeRequest, derivatives
from tests.passes.stopped_programs import (
    FEEDS,
    PROGRAMS,
    XS,
    BuilderLanguage,
    Program,
    sum_of_squares,
)
from tests.passes.tf_sessions import session_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1


class TensorFlowLanguage(BuilderLanguage):
    """The constructs in a TensorFlow graph; those of a Builder have the same names."""

    def __init__(self, *, unrolled: bool = False) -> None:
        super().__init__(unrolled=unrolled)
        self.b = tf
        self.stop = tf.stop_gradient
        self.same = tf.identity

    def collect(self, count: int, step: Callable[[Any], Any], a: Any) -> Any:
        if self.unrolled:
            return sum_of_squares(count, step, a)

        def body(i: Any, a: Any, rows: Any) -> Any:
            after = step(a)
            return i + 1, after, rows.write(i, after)

        rows = tf.TensorArray("float64", count, element_shape=[])
        rows = tf.while_loop(lambda i, a, rows: i < count, body, [0, a, rows])[2]
        return tf.reduce_sum(tf.square(rows.stack()))


@contextmanager
def control_flow(*, functional: bool) -> Iterator[None]:
    """Loops and conditionals as While and If, or as primitives."""
    (tf.enable_control_flow_v2 if functional else tf.disable_control_flow_v2)()
    tf.experimental.output_all_intermediates(functional)
    try:
        yield
    finally:
        tf.enable_control_flow_v2()
        tf.experimental.output_all_intermediates(None)


def graph_of_tensorflow(program: Program, *, unrolled: bool, functional: bool) -> Any:
    """The graph of a program in TensorFlow, with the result `y`."""
    with control_flow(functional=functional), tf.Graph().as_default() as graph:
        inputs = [tf.placeholder("float64", [], name) for name in FEEDS]
        language = TensorFlowLanguage(unrolled=unrolled)
        tf.identity(program(language, *inputs), name="y")
    return graph


def slopes_of_tensorflow(
    program: Program, order: int, *, unrolled: bool, functional: bool
) -> list[float]:
    """The gradients that TensorFlow computes; 0 for one that does not exist."""
    graph = graph_of_tensorflow(program, unrolled=unrolled, functional=functional)
    with control_flow(functional=functional), graph.as_default(), tf.Session() as session:
        ys, xs = [graph.get_tensor_by_name("y:0")], [graph.get_tensor_by_name(x) for x in XS]
        names = []
        for _ in range(order):
            names = tf.gradients(ys, xs, unconnected_gradients="zero")
            ys = names
        return list(session.run(names, {f"{key}:0": value for key, value in FEEDS.items()}))


every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.__name__)
every_order = pytest.mark.parametrize("order", [1, 2])


@every_program
@every_order
@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("every", [None, 2])
def test_loops_of_tensorflow_have_its_gradients(
    program: Program, order: int, functional: bool, every: int | None
) -> None:
    graph = graph_of_tensorflow(program, unrolled=False, functional=functional)
    ours = cfgraph.loads(graph.as_graph_def().SerializeToString())
    names = ["y:0"]
    for number in range(order):
        recompute = every if number == 0 else None
        options: dict[str, Any] = {"unconnected": "zero", "recompute": recompute}
        names = [str(x) for x in cfgraph.gradients(ours, names, XS, **options)]
    want = slopes_of_tensorflow(program, order, unrolled=True, functional=functional)
    np.testing.assert_allclose(cfgraph.Session(ours).run(names, FEEDS), want, rtol=1e-9, atol=1e-12)
    if order > 1 and "TensorArrayV3" in ours.ops:
        return  # no kernel of TensorFlow creates the gradient of an array of gradients
    feeds = {f"{key}:0": value for key, value in FEEDS.items()}
    with session_of(ours) as session:
        np.testing.assert_allclose(session.run(names, feeds), want, rtol=1e-9, atol=1e-12)


@every_program
@every_order
def test_tensorflow_has_the_same_gradients_of_its_functional_loops(
    program: Program, order: int
) -> None:
    graph = graph_of_tensorflow(program, unrolled=False, functional=True)
    ours = cfgraph.loads(graph.as_graph_def().SerializeToString())
    names = derivatives(ours, DerivativeRequest(["y:0"], XS, order=order, unconnected="zero"))[
        -1
    ].names
    have = cfgraph.Session(ours).run([str(name) for name in names], FEEDS)
    want = slopes_of_tensorflow(program, order, unrolled=False, functional=True)
    np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)
