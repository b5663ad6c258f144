from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from cfgraph.build.builder import Builder
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float64, int32
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.serde.graph_def import graph_to_bytes
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.passes.derivatives import gradients
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session
from tests.ops import harness
from tests.ops.container_loops import LOOPS
from tests.ops.container_programs import NO_SECOND, OURS, PROGRAMS, Program
from tests.ops.finite_differences import slope
from tests.ops.gradient_harness import random_like
from tests.ops.scenario import Sketch

every = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
known_or_not = pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
RANDOM = np.random.default_rng(7)
FEEDS = {"x:0": RANDOM.normal(size=(4, 3)), "y:0": RANDOM.normal(size=3)}


@dataclass
class Built:
    """A program with its gradients by x and y, the outputs weighed with random numbers."""

    graph: Graph
    ys: list[str]
    weights: list[Any]
    names: list[str | None]

    def moved(self, place: str, along: Any, distance: float) -> float:
        """The weighed sum of the outputs, one feed moved."""
        feeds = FEEDS | {place: FEEDS[place] + distance * along}
        values = Session(self.graph).run(self.ys, feeds)
        return float(sum(np.sum(v * w) for v, w in zip(values, self.weights, strict=True)))


def build(program: Program, *, known: bool) -> Built:
    sketch = Sketch()
    x, y = (placeholder(sketch.graph, name, known=known) for name in FEEDS)
    return derived(sketch.graph, [output.name for output in program(sketch, x, y)])


def derived(graph: Graph, ys: list[str]) -> Built:
    random = np.random.default_rng(11)
    weights = [random_like(random, v) for v in Session(graph).run(ys, FEEDS)]
    return Built(graph, ys, weights, gradients(graph, ys, list(FEEDS), grad_ys=weights))


def placeholder(graph: Graph, name: str, *, known: bool) -> Output:
    shape = Shape(FEEDS[name].shape) if known else UNKNOWN_SHAPE
    return graph.add("Placeholder", name=name[:-2], dtype=float64, shape=shape).output()


@every
@known_or_not
def test_gradients_agree_with_finite_differences(program: Program, known: bool) -> None:
    assert_differences(build(program, known=known))


def assert_differences(built: Built) -> None:
    for place, name in zip(FEEDS, built.names, strict=True):
        along = random_like(np.random.default_rng(3), FEEDS[place])
        found = Session(built.graph).run([name], FEEDS)[0] if name else np.zeros(())
        wanted = slope(partial(built.moved, place, along), 1e-6)
        assert np.sum(found * along) == pytest.approx(wanted, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p not in NO_SECOND], ids=lambda program: program.__name__
)
def test_second_gradients_agree_with_finite_differences(program: Program) -> None:
    first = build(program, known=False)
    assert_differences(derived(first.graph, [name for name in first.names if name]))


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
@known_or_not
def test_gradients_of_loops_agree_with_finite_differences(loop: Any, known: bool) -> None:
    builder = Builder()
    x, y = (
        builder.placeholder(name[:-2], "float64", value.shape if known else (None,) * value.ndim)
        for name, value in FEEDS.items()
    )
    ys = [output.name for output in loop(builder, x, y)]
    assert_differences(derived(builder.graph, ys))


@pytest.mark.interop
@every
@known_or_not
def test_tensorflow_runs_the_gradients_and_has_the_same(program: Program, known: bool) -> None:
    tf = harness.tensorflow()
    if tf is None:
        pytest.skip("TensorFlow is not installed (extra `interop`)")
    built = build(program, known=known)
    names = [name for name in built.names if name]
    ours = Session(built.graph).run(names, FEEDS)
    with imported(tf, built.graph) as session:
        for mine, theirs in zip(ours, session.run(names, FEEDS), strict=True):
            np.testing.assert_allclose(mine, theirs)
        if program in OURS:
            return
        ys, xs = ([session.graph.get_tensor_by_name(n) for n in of] for of in (built.ys, FEEDS))
        weights = [tf.constant(w) for w in built.weights]
        wanted = tf.gradients(ys, xs, weights)
        assert [name is None for name in built.names] == [value is None for value in wanted]
        wanted = session.run([value for value in wanted if value is not None], FEEDS)
        for mine, theirs in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs)


@contextmanager
def imported(tf: Any, graph: Graph) -> Iterator[Any]:
    """A session on a graph; TensorFlow differentiates its own arrays in the first form only."""
    import_module("tensorflow.python.ops.map_ops")  # registers the gradients of maps
    definition = tf.compat.v1.GraphDef.FromString(graph_to_bytes(graph))
    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.import_graph_def(definition, name="")
            yield session
    finally:
        tf.compat.v1.enable_control_flow_v2()


GATHERS = [((4, 3), (5,), 0), ((4, 3), (), 0), ((4, 3), (2, 3), 0), ((4,), (2, 0), 0)]
BATCHED = [((2, 4, 3), (2, 5), 1), ((2, 3, 4, 2), (2, 3, 5), 2), ((2, 3, 4), (2, 3), 2)]


@known_or_not
@pytest.mark.parametrize(("shape", "picked", "batch"), [*GATHERS, *BATCHED])
def test_the_gradient_of_rows_of_a_variable_is_dense(
    shape: tuple[int, ...], picked: tuple[int, ...], batch: int, known: bool
) -> None:
    graph = Graph()
    places = RANDOM.integers(0, shape[batch], picked).astype(np.int32)
    handle = variable(graph, shape, known=known)
    indices = graph.add(
        "Placeholder", name="i", dtype=int32, shape=Shape(picked) if known else UNKNOWN_SHAPE
    )
    rows = graph.add("ResourceGather", handle, indices, dtype=float64, batch_dims=batch)
    weight = RANDOM.normal(size=(*picked, *shape[batch + 1 :]))
    wanted = np.zeros(shape)
    for place in np.ndindex(*picked):
        wanted[(*place[:batch], places[place])] += weight[place]
    assert_by_variable(graph, rows.output(), handle, weight, wanted, {"i:0": places})


@known_or_not
def test_the_gradient_of_slices_of_a_variable_is_dense(known: bool) -> None:
    sketch = Sketch()
    handle = variable(sketch.graph, (3, 4, 2), known=known)
    rows = sketch("ResourceGatherNd", handle, [[0, 1], [2, 3], [0, 1]], dtype=float64)
    weight, wanted = RANDOM.normal(size=(3, 2)), np.zeros((3, 4, 2))
    wanted[0, 1], wanted[2, 3] = weight[0] + weight[2], weight[1]
    assert_by_variable(sketch.graph, rows, handle, weight, wanted, {})


@known_or_not
def test_the_gradients_of_all_reads_of_a_variable_add_up(known: bool) -> None:
    sketch = Sketch()
    handle = variable(sketch.graph, (2, 3), known=known)
    reads = [sketch("ReadVariableOp", handle, dtype=float64) for _ in range(2)]
    row = sketch("ResourceGather", sketch("Identity", handle), 1, dtype=float64)
    total = sketch("AddV2", sketch("AddN", *reads, reads[0]), row)
    weight = RANDOM.normal(size=(2, 3))
    wanted = 3 * weight
    wanted[1] += weight.sum(0)
    assert_by_variable(sketch.graph, total, handle, weight, wanted, {})


def variable(graph: Graph, shape: tuple[int, ...], *, known: bool) -> Output:
    """A handle; `init` gives the variable a value."""
    declared = Shape(shape) if known else UNKNOWN_SHAPE
    handle = graph.add("VarHandleOp", name="v", shared_name=b"v", dtype=float64, shape=declared)
    value = graph.add("Const", dtype=float64, value=TensorValue(RANDOM.normal(size=shape)))
    graph.add("AssignVariableOp", handle, value, name="init")
    return handle.output()


def assert_by_variable(
    graph: Graph, y: Output, handle: Output, weight: Any, wanted: Any, feeds: dict[str, Any]
) -> None:
    names = gradients(graph, [y.name], [handle.name], grad_ys=[weight])
    state = State()
    Session(graph, state=state).run([], {}, ["init"])
    (found,) = Session(graph, state=state).run([name for name in names if name], feeds)
    np.testing.assert_allclose(found, wanted)


def test_a_variable_by_reference_has_the_gradient_of_what_reads_it() -> None:
    sketch = Sketch()
    ref = sketch("VariableV2", dtype=float64, shape=Shape([2]))
    read = sketch("Identity", ref)
    after = sketch("Assign", ref, sketch("Mul", read, read))
    rows = sketch("ScatterAdd", ref, [0, 1], read)
    ys = [sketch("AddN", read, read, read), after, rows]
    names = gradients(sketch.graph, [y.name for y in ys], [ref.name])
    assert names[0] is not None
    (found,) = Session(sketch.graph).run([names[0]], {ref.name: np.ones(2)})
    assert found.tolist() == [3, 3]
