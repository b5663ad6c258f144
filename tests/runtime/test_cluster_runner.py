from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from cfgraph.build.builder import Builder
from cfgraph.errors import ExecutionError, Unsupported, UsageError
from cfgraph.passes.cluster.cluster import cluster
from cfgraph.runtime.cost_model import Calibration
from cfgraph.runtime.session import Session
from tests.recorder import Recorder
from tests.runtime.graphs import session

XLA = pytest.param(
    "xla", marks=pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")
)
ENGINES = ["numpy", XLA]
either = pytest.mark.parametrize("jit", ENGINES)

VARIABLE = """
x = Placeholder() {dtype=float32, shape=?}
dims = Const() {dtype=int32, value=int32[2]:[2,3]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
one = Const() {dtype=float32, value=float32[]:1}
init = AssignVariableOp(v, one) {dtype=float32}
launch = XlaLaunch(dims, x, v) {Tconstants=(int32), Targs=(float32), Nresources=1, \
Tresults=(float32, int32, int32), function=@f}
y = Identity(launch)
after = ReadVariableOp(v, ^launch) {dtype=float32}

function f(dims: int32, x: float32, v: resource) -> (y: float32, n: int32, dims_out: int32) {
  read = ReadVariableOp(v) {dtype=float32}
  more = AddV2(x, read:value:0) {T=float32}
  shaped = Reshape(more:z:0, dims) {T=float32}
  n = Shape(shaped:output:0) {T=float32}
  axis = Const() {dtype=int32, value=int32[]:1}
  sum = Sum(shaped:output:0, axis:output:0) {T=float32}
  grow = AssignAddVariableOp(v, read:value:0) {dtype=float32}
  return y = sum:output:0
  return n = n:output:0
  return dims_out = dims
  control_return effect = grow
}
"""


def with_variable(jit: str, **options: Any) -> Session:
    """A session whose variable has the value 1."""
    made = session(VARIABLE, jit=jit, **options)
    made.run(targets=["init"])
    return made


@either
def test_a_launch_reads_variables_before_and_writes_them_after(jit: str) -> None:
    run = with_variable(jit)
    for value in (1, 2, 4):
        y, after = run.run(["y:0", "after:0"], {"x:0": np.arange(6.0)})
        np.testing.assert_allclose(y, [3 + 3 * value, 12 + 3 * value])
        assert after == 2 * value


@either
def test_outputs_are_numpy_values_of_the_declared_types(jit: str) -> None:
    y, n, dims = with_variable(jit).run(["y:0", "launch:1", "launch:2"], {"x:0": np.zeros(6)})
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float32
    assert n.dtype == dims.dtype == np.int32
    assert list(n) == list(dims) == [2, 3]


@pytest.mark.parametrize("jit", [XLA])
def test_a_signature_is_compiled_once_and_a_new_one_says_what_changed(jit: str) -> None:
    run = with_variable(jit)
    for shape in ((6,), (6,), (3, 2), (6,)):
        run.run(["y:0"], {"x:0": np.zeros(shape)})
    (cluster,) = run.cluster_runner.clusters.values()
    assert (cluster.calls, cluster.fused) == (4, 0)
    assert [item.changed for item in cluster.compilations] == ["", "x is [3,2], was [6]"]
    assert all(item.seconds > 0 and not item.refused for item in cluster.compilations)


@pytest.mark.parametrize("jit", [XLA])
def test_a_recompilation_names_the_argument_that_changed(jit: str) -> None:
    b = Builder()
    x, n = b.placeholder("x", "float32", [None]), b.placeholder("n", "int32", [])
    rows = b.Reshape(x, b.Pack([n, -1]))
    b.Identity(b.Tanh(rows) * 2.0 + rows, name="y")
    cluster(b.graph)
    session = Session(b.graph, jit=jit)
    for length, count in ((4, 2), (4, 4), (6, 2), (6, 3), (6, 3)):
        session.run(["y"], {"x": np.ones(length), "n": count})
    (compiled,) = session.cluster_runner.clusters.values()
    texts = [str(item).partition(", as ")[2] for item in compiled.compilations]
    assert texts == [
        "",
        "constant n is 4, was 2",
        "x is [6], was [4]; constant n is 2, was 4",
        "constant n is 3, was 2",
    ]
    heads = [str(item).partition(" in ")[0] for item in compiled.compilations]
    assert heads == ["cluster_0 compiled", *["cluster_0 recompiled"] * 3]


@pytest.mark.parametrize("jit", [XLA])
def test_lazy_compiles_on_the_second_use_of_a_signature(jit: str) -> None:
    run = with_variable(jit, lazy=True)
    for shape in ((6,), (3, 2), (6,), (6,)):
        run.run(["y:0"], {"x:0": np.zeros(shape)})
    (cluster,) = run.cluster_runner.clusters.values()
    assert (cluster.calls, cluster.fused, len(cluster.compilations)) == (4, 2, 1)


@either
def test_an_error_inside_names_the_inner_node(jit: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        with_variable(jit).run(["y:0"], {"x:0": np.zeros(5)})
    assert caught.value.node == "launch/shaped"
    assert caught.value.code == "CFG705"


@either
def test_a_variable_without_a_value_is_named_with_the_node_that_reads_it(jit: str) -> None:
    with pytest.raises(ExecutionError, match="Could not find variable v") as caught:
        session(VARIABLE, jit=jit).run(["y:0"], {"x:0": np.zeros(6)})
    assert caught.value.node == "launch/read"


DEAD = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
switch = Switch(x, p)
launch = XlaLaunch(switch:1, x) {Tconstants=(), Targs=(float32, float32), Nresources=0, \
Tresults=(float32), function=@f}
other = Neg(switch)
y = Merge(other, launch)

function f(a: float32, b: float32) -> (c: float32) {
  sum = AddV2(a, b) {T=float32}
  return c = sum:z:0
}
"""


@either
def test_a_dead_input_kills_a_launch(jit: str) -> None:
    run = session(DEAD, jit=jit)
    assert run.run(["y:0"], {"p:0": True, "x:0": 2}) == [4]
    assert run.run(["y:0"], {"p:0": False, "x:0": 2}) == [-2]
    (cluster,) = run.cluster_runner.clusters.values()
    assert cluster.calls == 1


CONTROL = """
x = Placeholder() {dtype=float32, shape=[]}
launch = XlaLaunch(x) {Tconstants=(), Targs=(float32), Nresources=0, Tresults=(float32), \
function=@f}

function f(x: float32) -> (y: float32) {
  zero = Const() {dtype=float32, value=float32[]:0}
  p = Less(x, zero:output:0) {T=float32}
  switch = Switch(x, p:z:0) {T=float32}
  neg = Neg(switch:output_true:0) {T=float32}
  merge = Merge(switch:output_false:0, neg:y:0) {T=float32, N=2}
  return y = merge:output:0
}
"""


def test_control_flow_in_a_launch_is_refused_before_anything_runs() -> None:
    with pytest.raises(Unsupported, match="control flow") as caught:
        session(CONTROL).run(["launch:0"], {"x:0": 1})
    assert caught.value.node == "f/switch"


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown engine 'tpu'"):
        session(DEAD, jit="tpu")


CHAIN = """
x = Placeholder() {dtype=float32, shape=?}
two = Const() {dtype=float32, value=float32[]:2}
double = Mul(x, two)
inner = Tanh(double)
y = AddV2(inner, two)
"""


@either
def test_a_session_clusters_on_the_way_and_leaves_the_graph_as_it_is(jit: str) -> None:
    run = session(CHAIN, jit=jit)
    before = run.graph.edits
    y, inner = run.run(["y:0", "inner:0"], {"x:0": np.float32([0.5])})
    np.testing.assert_allclose(inner, np.tanh([1.0]), rtol=1e-6)
    np.testing.assert_allclose(y, inner + 2, rtol=1e-6)
    (cluster,) = run.cluster_runner.clusters.values()
    assert cluster.calls == 1
    assert run.graph.edits == before


@either
def test_what_is_fed_inside_a_cluster_is_taken(jit: str) -> None:
    assert session(CHAIN, jit=jit).run(["y:0"], {"inner:0": np.float32([3])}) == [5]


def test_without_jit_nothing_is_clustered() -> None:
    run = session(CHAIN)
    run.run(["y:0"], {"x:0": 1})
    assert not run.cluster_runner.clusters


def chain_of(launches: int, size: int) -> str:
    """A graph with a chain of calls of one function."""
    last, lines = "x", [f"x = Placeholder() {{dtype=float32, shape=[{size}]}}"]
    attrs = "{Tconstants=(), Targs=(float32), Nresources=0, Tresults=(float32), function=@f}"
    for place in range(launches):
        lines.append(f"l{place} = XlaLaunch({last}) {attrs}")
        last = f"l{place}"
    body = (
        "function f(x: float32) -> (y: float32) {\n  y = Tanh(x) {T=float32}\n  return y = y:y:0\n}"
    )
    return "\n".join([*lines, body])


@pytest.mark.parametrize("jit", [XLA])
def test_launches_of_one_function_are_compiled_once(jit: str) -> None:
    run = session(chain_of(3, 4), engine=jit)
    run.run(["l2:0"], {"x:0": np.ones(4)})
    (cluster,) = run.cluster_runner.clusters.values()
    assert (cluster.calls, cluster.compiled_times) == (3, 1)


@pytest.mark.parametrize("jit", [XLA])
def test_a_small_cluster_is_not_compiled_unless_xla_is_requested(jit: str) -> None:
    for size, small in ((4, True), (100_000, False)):
        run = session(chain_of(1, size))
        run.run(["l0:0"], {"x:0": np.ones(size)})
        (cluster,) = run.cluster_runner.clusters.values()
        assert run.cluster_runner.engine == jit
        assert (cluster.small, cluster.compiled_times) == (small, not small)


@pytest.mark.parametrize("jit", [XLA])
def test_a_cluster_whose_signature_keeps_changing_stops_compiling(jit: str) -> None:
    run = session(DEAD.replace("shape=[]", "shape=?"), jit=jit)
    for size in range(1, 15):
        run.run(["launch:0"], {"p:0": True, "x:0": np.ones(size)})
    (cluster,) = run.cluster_runner.clusters.values()
    assert cluster.stopped_compiling
    assert (cluster.calls, cluster.fused, cluster.compiled_times) == (14, 4, 10)
    assert cluster.compilations[-1].refused == "its signature changes too often"


@pytest.mark.parametrize("jit", [XLA])
def test_a_trace_notes_every_compilation(jit: str) -> None:
    run, seen = session(chain_of(1, 4).replace("[4]", "?"), engine=jit), Recorder()
    for size in (4, 4, 5):
        run.run(["l0:0"], {"x:0": np.ones(size)}, trace=seen)
    notes = [event for event in seen.events if event.kind == "note"]
    assert [(event.node, event.frame, event.device) for event in notes] == [
        ("l0", "/", "cpu:0")
    ] * 2
    assert notes[1].text.endswith("as x is [5], was [4]")
    tokens = [event for event in seen.events if event.node == "l0" and event.kind == "op"]
    for note, token in zip(notes, tokens[::2], strict=True):
        assert token.start_ns <= note.start_ns < note.end_ns <= token.end_ns
    calibration = Calibration()
    for event in [notes[0], tokens[0]]:
        calibration.event(event)
    run_ns = tokens[0].end_ns - tokens[0].start_ns - (notes[0].end_ns - notes[0].start_ns)
    assert f'"XlaLaunch" = {run_ns / 1e9!r}  # of 1' in calibration.text()


UNTRACEABLE = """
x = Placeholder() {dtype=float32, shape=?}
launch = XlaLaunch(x) {Tconstants=(), Targs=(float32), Nresources=0, Tresults=(float32, int32), \
function=@f}

function f(x: float32) -> (y: float32, places: int32) {
  unique = Unique(x) {T=float32, out_idx=int32}
  return y = unique:y:0
  return places = unique:idx:0
}
"""


@pytest.mark.parametrize("jit", [XLA])
def test_what_xla_cannot_have_runs_as_one_call_and_says_why(jit: str) -> None:
    run = session(UNTRACEABLE, engine=jit)
    assert list(run.run(["launch:0"], {"x:0": [3, 4, 3]})[0]) == [3, 4]
    (cluster,) = run.cluster_runner.clusters.values()
    assert cluster.fused == 1
    assert cluster.compilations[0].refused == "unique: Unique cannot be traced"


RANDOM = """
size = Const() {dtype=int32, value=int32[1]:[4]}
one = XlaLaunch(size) {Tconstants=(int32), Targs=(), Nresources=0, Tresults=(float32, float32), \
function=@f}
two = XlaLaunch(size) {Tconstants=(int32), Targs=(), Nresources=0, Tresults=(float32, float32), \
function=@f}

function f(size: int32) -> (a: float32, b: float32) {
  a = RandomUniform(size) {T=int32, dtype=float32}
  b = RandomUniform(size) {T=int32, dtype=float32}
  return a = a:output:0
  return b = b:output:0
}
"""


@pytest.mark.parametrize("engine", ["compiled", XLA])
def test_random_ops_in_launches_draw_each_their_own_numbers(engine: str) -> None:
    names = ["one:0", "one:1", "two:0", "two:1"]
    drawn = session(RANDOM, engine=engine).run(names)
    assert len({array.tobytes() for array in drawn}) == 4
    again = session(RANDOM, engine=engine).run(names)
    np.testing.assert_array_equal(drawn, again)
    inlined = session(RANDOM, engine=engine).run(["a:0", "b:0", "two:0", "two:1"])
    np.testing.assert_array_equal(drawn, inlined)


CONSTANT_FIRST = """
x = Placeholder() {dtype=float32, shape=[2,2]}
y = XlaLaunch(x) {Tconstants=(), Targs=(float32), Nresources=0, Tresults=(float32), function=@f}

function f(x: float32) -> (y: float32) {
  rows = Const() {dtype=float32, value=float32[2,2]:[[1,2],[3,4]]}
  y = MatMul(rows:output:0, x) {T=float32}
  return y = y:product:0
}
"""


@pytest.mark.parametrize("jit", [XLA])
def test_a_constant_matrix_is_multiplied_by_a_traced_one(jit: str) -> None:
    run = session(CONSTANT_FIRST, engine=jit)
    (y,) = run.run(["y:0"], {"x:0": np.eye(2, dtype=np.float32)})
    np.testing.assert_array_equal(y, [[1, 2], [3, 4]])
    (cluster,) = run.cluster_runner.clusters.values()
    assert [item.refused for item in cluster.compilations] == [""]


def reading_variable(kind: str) -> Builder:
    """A graph whose shape, axes, or multiples are read from a variable."""
    b = Builder()
    x = b.placeholder("x", "float32", [2, 2])
    v = b.variable(np.int32([1, 0]), name="v")
    read = b.ReadVariableOp(v.handle, dtype="int32", name="read")
    made = {
        "shape": lambda: b.Fill(read + 1, 2.0),
        "axes": lambda: b.Sum(x, read),
        "multiples": lambda: b.Tile(x, read + 1),
        "begin": lambda: b.Slice(x, read, [1, 1]),
    }[kind]()
    b.Neg(made, name="y")
    return b


CONSTANTS = {
    "shape": [[-2], [-2]],
    "axes": -10,
    "multiples": [[-1, -2], [-3, -4], [-1, -2], [-3, -4]],
    "begin": [[-3]],
}


@pytest.mark.parametrize("kind", CONSTANTS)
@pytest.mark.parametrize("engine", ["tokens", "auto", XLA])
@pytest.mark.parametrize("is_clustered", [False, True])
def test_a_constant_input_of_xla_may_be_read_from_a_variable(
    kind: str, engine: str, is_clustered: bool
) -> None:
    graph = reading_variable(kind).graph
    if is_clustered:
        outside = cluster(graph, explain=True).outside
        assert outside["read"].kind == "constant state"
    run = Session(graph, engine=engine)
    run.run(targets=["v/Assign"])
    (y,) = run.run(["y"], {"x": np.float32([[1, 2], [3, 4]])})
    assert y.tolist() == CONSTANTS[kind]


@either
def test_a_launch_that_reads_a_shape_from_a_variable_runs(jit: str) -> None:
    text = VARIABLE.replace("Reshape(more:z:0, dims)", "Reshape(more:z:0, two:value:0)")
    text = text.replace("  shaped", "  two = ReadVariableOp(w) {dtype=int32}\n  shaped", 1)
    text = text.replace("v: resource)", "v: resource, w: resource)").replace("x, v)", "x, v, w)")
    text = text.replace("Nresources=1", "Nresources=2")
    text = f"""
w = VarHandleOp() {{dtype=int32, shape=[2], shared_name="w"}}
w_init = AssignVariableOp(w, dims) {{dtype=int32}}
{text}"""
    run = session(text, jit=jit)
    run.run(targets=["init", "w_init"])
    (y,) = run.run(["y:0"], {"x:0": np.arange(6)})
    assert y.tolist() == [6, 15]
