"""Jacobians, Hessians, and products with vectors: values of TensorFlow, shapes, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported, UsageError
from tests.passes.differentiable_programs import SmoothProgram
from tests.sampled import in_sweep

GRAPHS = ("softmax", "recurrent", "branches", "nested", "while_data")
Y, X, W = "Identity:0", "x:0", "w:0"


@pytest.fixture(scope="module")
def recorded() -> Any:
    with np.load(Path(__file__).parents[2] / "fixtures" / "jacobians" / "values.npz") as values:
        return dict(values)


def load(name: str) -> cfgraph.Graph:
    return cfgraph.load(Path(__file__).parents[2] / "fixtures" / "jacobians" / f"{name}.pb")


def run(graph: cfgraph.Graph, names: Any, recorded: Any) -> list[Any]:
    return cfgraph.Session(graph).run(list(names), {X: recorded["x"], W: recorded["w"]})


def close(value: Any, expected: Any) -> None:
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("name", GRAPHS)
def test_jacobians_are_tensorflows(name: str, mode: str, recorded: Any) -> None:
    graph = load(name)
    (names,) = cfgraph.jacobian(graph, [Y], [X, W], mode=mode)
    jx, jw = run(graph, names, recorded)
    close(jx, recorded[f"{name}.jx"])
    close(jw, recorded[f"{name}.jw"])


@pytest.mark.parametrize("name", GRAPHS)
def test_hessians_are_tensorflows(name: str, recorded: Any) -> None:
    graph = load(name)
    first, second = cfgraph.hessian(graph, [Y], [X, W])
    hx, hw, wx = run(graph, [*first, second[0]], recorded)
    close(hx, recorded[f"{name}.hx"])
    close(hw, recorded[f"{name}.hw"])
    close(wx, np.moveaxis(recorded[f"{name}.hw"], (0, 1), (2, 3)))


@pytest.mark.parametrize("name", GRAPHS)
def test_products_are_those_of_the_matrices(name: str, recorded: Any) -> None:
    graph, v = load(name), recorded["v"]
    names = [*cfgraph.jvp(graph, [Y], [X], [v]), *cfgraph.hvp(graph, [Y], [X], [v])]
    jvp, hvp = run(graph, names, recorded)
    close(jvp, recorded[f"{name}.jvp"])
    close(hvp, np.einsum("ab,abcd->cd", v, recorded[f"{name}.hx"]))


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("name", GRAPHS)
def test_tensorflow_runs_jacobians(name: str, mode: str, recorded: Any) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    graph = load(name)
    (names,) = cfgraph.jacobian(graph, [Y], [X, W], mode=mode)
    v1 = tensorflow.compat.v1
    with tensorflow.Graph().as_default() as imported, v1.Session(graph=imported) as session:
        v1.import_graph_def(v1.GraphDef.FromString(cfgraph.dumps(graph)), name="")
        jx, jw = session.run(names, {X: recorded["x"], W: recorded["w"]})
    close(jx, recorded[f"{name}.jx"])
    close(jw, recorded[f"{name}.jw"])


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobians_per_example_are_the_blocks_on_the_diagonal(mode: str, recorded: Any) -> None:
    graph = load("recurrent")
    ((jx,),) = cfgraph.jacobian(graph, [Y], [X], mode=mode, per_example=True)
    (value,) = run(graph, [jx], recorded)
    close(value, np.einsum("abac->abc", recorded["recurrent.jx"]))


def test_examples_that_are_scalars_take_one_pass() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [None])
    y = b.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, b.Sin(v) * v), [0, x])[1]
    b.Identity(y, name="y")
    ((name,),) = cfgraph.jacobian(b.graph, ["y:0"], [X], per_example=True)
    cfgraph.gradients(b.graph, ["y:0"], [X])
    feeds = {X: np.array([0.3, 1.1, -0.7], np.float32)}
    value, gradient = cfgraph.Session(b.graph).run([name, "gradients_1/x:0"], feeds)
    close(value, gradient)


def small_graph() -> cfgraph.Graph:
    return cfgraph.loads(b"""
x = Placeholder() {dtype=float32, shape=?}
w = Placeholder() {dtype=float32, shape=?}
n = Placeholder() {dtype=int32, shape=[]}
y = Mul(x, x)
z = Square(w)
""")


def test_several_ys_and_xs_give_a_matrix_of_names() -> None:
    graph = small_graph()
    names = cfgraph.jacobian(graph, ["y:0", "z:0"], [X, W])
    assert [[name is None for name in row] for row in names] == [[False, True], [True, False]]
    feeds = {X: np.array([1, 2], np.float32), W: np.array([[3], [4]], np.float32)}
    yx, zw = cfgraph.Session(graph).run([names[0][0], names[1][1]], feeds)
    close(yx, np.diag([2, 4]))
    assert zw.shape == (2, 1, 2, 1)
    close(zw.reshape(2, 2), np.diag([6, 8]))


def test_unconnected_jacobians_may_be_zeros() -> None:
    graph = small_graph()
    (names,) = cfgraph.jacobian(graph, ["y:0"], [W], unconnected="zero")
    feeds = {X: np.ones(2, np.float32), W: np.ones((3, 1), np.float32)}
    (value,) = cfgraph.Session(graph).run(names, feeds)
    close(value, np.zeros((2, 3, 1)))


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_empty_tensors_have_empty_jacobians(mode: str) -> None:
    graph = small_graph()
    ((name,),) = cfgraph.jacobian(graph, ["y:0"], [X], mode=mode)
    (value,) = cfgraph.Session(graph).run([name], {X: np.ones((0, 2), np.float32)})
    assert value.shape == (0, 2, 0, 2)


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_the_bound_on_rows_in_flight_changes_no_value(rows: int, recorded: Any) -> None:
    graph = load("recurrent")
    ((name,),) = cfgraph.jacobian(graph, [Y], [X], rows_in_flight=rows)
    close(run(graph, [name], recorded)[0], recorded["recurrent.jx"])


def flipped(b: Any, u: Any) -> Any:
    return b.Transpose(u, [1, 0])


# y, from x and w of shape [2, 3], v of shape [3], and m of shape [3, 3]
BATCHED: dict[str, Any] = {
    "broadcasting": lambda b, x, w, v, m: b.RealDiv(b.Sub(x, w), v),
    "sums of several": lambda b, x, w, v, m: b.AddN([x, w, b.Mul(x, w)]),
    "activations": lambda b, x, w, v, m: b.Relu(b.Mul(b.Tanh(x), b.Sigmoid(w))),
    "choice": lambda b, x, w, v, m: b.Select(b.Greater(x, w), x, w),
    "choice of all": lambda b, x, w, v, m: b.Select(True, b.Mul(x, x), w),
    "choice by rows": lambda b, x, w, v, m: b.Select([True, False], b.Mul(x, x), w),
    "broadcast choice": lambda b, x, w, v, m: b.SelectV2(b.Greater(v, 0.0), b.Mul(x, w), v),
    "products": lambda b, x, w, v, m: b.MatMul(x, m),
    "transposed": lambda b, x, w, v, m: b.MatMul(
        b.MatMul(m, x, transpose_b=True), b.MatMul(x, w, transpose_a=True), transpose_a=True
    ),
    "products in a batch": lambda b, x, w, v, m: b.Reshape(
        b.BatchMatMulV2(b.Reshape(x, [2, 1, 3]), m), [2, 3]
    ),
    "sums": lambda b, x, w, v, m: b.Mul(b.Sum(x, [-1], keep_dims=True), w),
    "means": lambda b, x, w, v, m: b.Mul(b.Mean(x, [0]), w),
    "sums along an input": lambda b, x, w, v, m: b.Mul(
        b.Sum(b.Square(x), b.PlaceholderWithDefault([-1], shape=[None]), keep_dims=True), w
    ),
    "repetition": lambda b, x, w, v, m: b.Mul(b.Reshape(b.Tile(v, [2]), [2, 3]), x),
    "broadcasts": lambda b, x, w, v, m: b.Mul(b.BroadcastTo(v, [2, 3]), x),
    "permutation": lambda b, x, w, v, m: flipped(b, b.Square(flipped(b, x))),
    "slices": lambda b, x, w, v, m: b.AddV2(b.Pad(b.Slice(x, [0, 1], [2, 1]), [[0, 0], [1, 1]]), w),
    "strided slices": lambda b, x, w, v, m: b.Mul(
        b.ExpandDims(b.StridedSlice(x, [0, 1], [2, 2], [1, 1], shrink_axis_mask=2), -1), x
    ),
    "slices with new axes": lambda b, x, w, v, m: b.Mul(
        b.Squeeze(
            b.StridedSlice(x, [0, 0], [0, 0], [1, 1], new_axis_mask=1, ellipsis_mask=2),
            squeeze_dims=[0],
        ),
        x,
    ),
    "parts": lambda b, x, w, v, m: b.Pack(b.Unpack(b.Mul(x, w), num=3, axis=-1), axis=1),
    "joined parts": lambda b, x, w, v, m: b.ConcatV2(b.Split(1, b.Mul(x, w), num_split=3), -1),
    "biases": lambda b, x, w, v, m: b.Mul(b.BiasAdd(x, v), w),
    "scans": lambda b, x, w, v, m: b.Cumsum(b.ReverseV2(b.Mul(x, w), [-1]), 1),
    "several identities": lambda b, x, w, v, m: b.Mul(*b.IdentityN([x, w])),
    "gathered rows": lambda b, x, w, v, m: b.Mul(b.GatherV2(b.Mul(x, x), [[1, 0]], 0), w),
    "gathered columns": lambda b, x, w, v, m: b.Mul(b.GatherV2(x, [2, 2, 0], -1), w),
    "saved shapes": lambda b, x, w, v, m: b.Mul(b.AddV2(b.Fill(b.Shape(x), 1.0), x), w),
}


@pytest.mark.parametrize("mode", ["reverse", pytest.param("forward", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", BATCHED)
def test_rows_computed_at_once_are_those_computed_alone(case: str, mode: str) -> None:
    random, values = np.random.default_rng(0), list[list[Any]]()
    shapes = {"x:0": (2, 3), "w:0": (2, 3), "v:0": 3, "m:0": (3, 3)}
    feeds = {name: random.normal(size=shape).astype("f") for name, shape in shapes.items()}
    for rows, batch in ((1, 2), (4, 2), (4, None)):
        b = cfgraph.Builder()
        sizes = ([batch, 3], [batch, 3], [3], [3, 3])
        inputs = [
            b.placeholder(name[0], "float32", size)
            for name, size in zip(shapes, sizes, strict=True)
        ]
        b.Identity(BATCHED[case](b, *inputs), name="y")
        graph = b.graph
        (names,) = cfgraph.jacobian(graph, "y:0", list(shapes), mode=mode, rows_in_flight=rows)
        fetches = [name for name in names if name is not None]
        limit = 9 if rows == 1 else 3
        values.append(cfgraph.Session(graph).run(fetches, feeds, max_iterations=limit))
    for each in values[1:]:
        for value, expected in zip(each, values[0], strict=True):
            close(value, expected)


def test_jacobians_of_variables_are_those_of_their_values(fixtures: Path) -> None:
    model = fixtures / "saved_model_custom_gradients"
    graph = cfgraph.load(model)
    (y,) = [node for node in graph if any(x.node.name == "variable_x" for x in node.inputs)]
    values = []
    for mode in ("reverse", "forward"):
        ((name,),) = cfgraph.jacobian(graph, [f"{y.name}:0"], ["w:0"], mode=mode)
        session = cfgraph.Session(graph)
        feeds = {"variable_x:0": np.array([0.5, 1.2], np.float32), "w": np.ones(2, np.float32)}
        values += session.run([name], feeds)
    close(values[0], [25, 144])
    close(values[1], values[0])


def test_a_product_with_a_tensor_follows_it() -> None:
    graph = small_graph()
    (name,) = cfgraph.jvp(graph, ["y:0"], [X], ["w:0"])
    feeds = {X: np.array([1, 2], np.float32), W: np.array([3, 4], np.float32)}
    close(cfgraph.Session(graph).run([name], feeds)[0], [6, 16])


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobians_go_through_arrays(mode: str) -> None:
    graph = load("map")
    ((name,),) = cfgraph.jacobian(graph, ["y:0"], [X], mode=mode)
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    slopes = np.sin(value) + value * np.cos(value)
    (found,) = cfgraph.Session(graph).run([name], {X: value})
    close(found.reshape(6, 6), np.diag(slopes.ravel()))


def recurrent_steps(read: Any) -> tuple[cfgraph.Graph, str]:
    """The Jacobian of the last state of a network over x of shape [4, 3], read step by step."""
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [4, 3])
    step = read(b, x)
    _, state = b.while_loop(
        lambda i, h: b.Less(i, 4),
        lambda i, h: (b.AddV2(i, 1), b.Tanh(b.AddV2(step(i), b.Mul(h, 0.5)))),
        [b.const(0), b.const(np.zeros(3, np.float32))],
    )
    b.Identity(state, name="y")
    ((name,),) = cfgraph.jacobian(b.graph, "y:0", "x:0")
    return b.graph, str(name)


def listed_steps(b: Any, x: Any) -> Any:
    steps = b.TensorListFromTensor(x, [3])
    return lambda i: b.TensorListGetItem(steps, i, [3], element_dtype="float32")


def test_jacobians_go_through_lists() -> None:
    feeds = {"x:0": np.random.default_rng(0).normal(size=(4, 3)).astype("f")}
    values = []
    for read in (listed_steps, lambda b, x: lambda i: b.GatherV2(x, i, 0)):
        graph, name = recurrent_steps(read)
        values += cfgraph.Session(graph).run([name], feeds)
    assert np.count_nonzero(values[0]) == 12
    close(values[0], values[1])


def test_custom_gradients_are_in_jacobians(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "saved_model_custom_gradients")
    (y,) = [node for node in graph if any(x.node.name == "loop_x" for x in node.inputs)]
    ((name,),) = cfgraph.jacobian(graph, [f"{y.name}:0"], ["loop_x:0"])
    feeds = {"loop_x:0": np.array([0.5, 1.2], np.float32)}
    close(cfgraph.Session(graph).run([name], feeds)[0], [5.374973, 7.556806])


def test_integers_have_no_jacobian() -> None:
    assert cfgraph.jacobian(small_graph(), ["n:0"], [X]) == [[None]]


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"mode": "backward"}, "mode is 'backward'"),
        ({"rows_in_flight": 0}, "rows_in_flight is 0"),
        ({"unconnected": "nan"}, "unconnected is 'nan'"),
    ],
)
def test_wrong_options_are_refused(options: Any, reported: str) -> None:
    with pytest.raises(UsageError, match=reported):
        cfgraph.jacobian(small_graph(), ["y:0"], [X], **options)


def test_a_tangent_per_x_is_required() -> None:
    with pytest.raises(UsageError, match="1 tangents for 2 xs"):
        cfgraph.jvp(small_graph(), ["y:0"], [X, W], [None])


@pytest.mark.parametrize("product", [cfgraph.jvp, cfgraph.hvp])
def test_a_tangent_of_another_shape_is_refused(product: Any, recorded: Any) -> None:
    with pytest.raises(UsageError, match=r"of w:0 has shape \[2,3\], expected \[3,3\]"):
        product(load("softmax"), [Y], [W], [recorded["x"]])


def test_a_pass_that_draws_random_numbers_is_refused_and_changes_nothing() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float32, shape=[2]}
y = PartitionedCall(x) {Tin=(float32), Tout=(float32), f=@noisy}
gradient noisy = noise

function noisy(a: float32) -> (b: float32) {
  c = Square(a) {T=float32}
  return b = c:y:0
}

function noise(a: float32, db: float32) -> (da: float32) {
  s = Shape(db) {T=float32, out_type=int32}
  r = RandomUniform(s:output:0) {T=int32, dtype=float32}
  m = Mul(db, r:output:0) {T=float32}
  return da = m:z:0
}
""")
    before = cfgraph.dumps(graph)
    with pytest.raises(Unsupported, match="draws random numbers"):
        cfgraph.jacobian(graph, ["y:0"], [X])
    assert cfgraph.dumps(graph) == before


def assert_exact(seed: int) -> None:
    """Compare the derivatives of a random program with those that Python computes."""
    program = SmoothProgram(seed)
    expected, weights = program.expected(), np.random.default_rng(seed).normal(size=len(program.XS))
    first, second = np.array(expected.first), np.array(expected.second)
    scale = max(1, float(np.abs(second).max()))
    for mode in ("reverse", "forward"):
        graph = program.graph()
        y = graph.tensor("y:0")
        graph.add("Pack", y, graph.add("Mul", y, y).output(), name="pair")
        (names,) = cfgraph.jacobian(
            graph,
            ["pair:0"],
            program.XS,
            mode=mode,
            unconnected="zero",
            rows_in_flight=1 + seed % 3,
        )
        rows = cfgraph.hessian(graph, ["y:0"], program.XS, mode=mode, unconnected="zero")
        jvp = cfgraph.jvp(graph, ["y:0"], program.XS, list(weights), unconnected="zero")
        hvp = cfgraph.hvp(graph, ["y:0"], program.XS, list(weights), unconnected="zero")
        session = cfgraph.Session(graph, schedule="random", schedule_seed=seed)
        fetches = [name for row in (names, *rows, jvp, hvp) for name in row if name is not None]
        values = session.run(fetches, program.feeds)
        count = len(program.XS)
        jacobian, hessian = values[:count], values[count : -count - 1]
        np.testing.assert_allclose(
            jacobian, np.stack([first, 2 * expected.value * first], 1), 1e-7, 1e-9 * scale
        )
        np.testing.assert_allclose(hessian, second.ravel(), 1e-7, 1e-9 * scale)
        np.testing.assert_allclose(values[-count - 1], first @ weights, 1e-7, 1e-9 * scale)
        np.testing.assert_allclose(values[-count:], second @ weights, 1e-7, 1e-9 * scale)


@pytest.mark.parametrize("seed", [5, 6])
def test_derivatives_of_a_random_program_are_exact(seed: int) -> None:
    assert_exact(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_sweep([0, *range(100, 120)]))
def test_derivatives_of_many_random_programs_are_exact(seed: int) -> None:
    assert_exact(seed)
