"""Random nodes draw the same numbers wherever a pass moves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.comparison.sample_point import EvaluationPoint
from cfgraph.console.transforms.convert import PythonOptions
from cfgraph.ir.library import copy_graph
from tests.backends.workers.threads import Threads
from tests.integrations.python_export.test_decompiled import loaded, run
from tests.passes.drawing_programs import DrawingProgram, drawing_program
from tests.passes.tf_sessions import message_of, session_of
from tests.sampled import half

Drawn = list[list[int]]
Pass = Callable[[cfgraph.Graph, Sequence[str]], object]


def partition(graph: cfgraph.Graph, names: Sequence[str]) -> None:
    cfgraph.place(graph, devices="cpu:0-1", seed=3)
    cfgraph.partition(graph)


def forget(graph: cfgraph.Graph, names: Sequence[str]) -> None:
    """Drop all annotations."""
    for node in graph:
        node.attrs = {key: value for key, value in node.attrs.items() if key[:1] != "_"}


PASSES: dict[str, Pass] = {
    "lower": lambda graph, names: cfgraph.lower(graph),
    "lower half": lambda graph, names: (
        graph.functions and cfgraph.lower(graph, functions=sorted(graph.functions)[::2])
    ),
    "lower around calls": lambda graph, names: cfgraph.lower(graph, keep_calls=True),
    "functionalize": lambda graph, names: cfgraph.functionalize(graph),
    "functionalize what is fetched": cfgraph.functionalize,
    "optimize": lambda graph, names: cfgraph.optimize(graph, fetches=names),
    "unroll": lambda graph, names: cfgraph.optimize(graph, fetches=names, unroll=8),
    "cluster": lambda graph, names: cfgraph.cluster(graph),
    "cluster regions": lambda graph, names: cfgraph.cluster(graph, regions=True),
    "form of converters": lambda graph, names: cfgraph.functionalize(
        graph, names, target="converter"
    ),
    "forget": forget,
    "extract": lambda graph, names: cfgraph.extract(graph, outputs=names),
    "partition": partition,
}
PIPELINES = (
    ["lower", "functionalize"],
    ["lower", "functionalize what is fetched", "lower"],
    ["lower", "functionalize", "lower", "functionalize what is fetched"],
    ["lower", "functionalize", "unroll", "lower"],
    ["lower", "functionalize", "lower", "optimize", "cluster regions"],
    ["lower", "optimize", "functionalize what is fetched"],
    ["lower", "unroll", "functionalize what is fetched"],
    ["lower", "extract", "cluster"],
    ["lower", "cluster regions"],
    ["lower", "functionalize", "lower", "partition"],
    ["lower around calls", "functionalize", "unroll", "lower", "functionalize what is fetched"],
    ["lower around calls", "functionalize", "optimize", "lower"],
    ["lower half", "unroll", "lower", "unroll"],
    ["optimize", "lower", "functionalize"],
    ["unroll", "lower", "partition"],
    ["form of converters", "lower", "form of converters"],
)
# what is lowered before it is run, such as a graph of TensorFlow 1
LOWERED_PIPELINES = (
    ["functionalize", "unroll", "lower"],
    ["functionalize what is fetched", "optimize", "partition"],
    ["unroll", "functionalize what is fetched"],
    ["cluster regions"],
    ["extract", "form of converters"],
)
ENGINES: tuple[dict[str, Any], ...] = (
    {"engine": "tokens"},
    {"engine": "compiled"},
    {"schedule": "random", "schedule_seed": 3},
    {"devices": "cpu:0-1"},
)


def drawn(program: DrawingProgram, graph: cfgraph.Graph, **options: Any) -> Drawn:
    """The values of two runs, and the variable after each."""
    session = cfgraph.Session(graph, seed=5, **options)
    session.run(targets=["init"])
    values = []
    for _ in range(2):
        values.append(
            [int(x) for x in session.run(program.fetches, program.feeds, program.targets)]
        )
        # a cluster may wait for a feed that only another of its outputs needs
        values.append([int(x) for x in session.run(["memory:0"], program.feeds)])
    return values


def transformed(program: DrawingProgram, pipeline: Sequence[str]) -> cfgraph.Graph:
    """The graph of a program after some passes."""
    graph = copy_graph(program.graph)
    names = [*program.fetches, *(f"^{name}" for name in program.targets), "^init", "memory:0"]
    for name in pipeline:
        PASSES[name](graph, names)
    return graph


def differing(program: DrawingProgram, pipelines: Sequence[Sequence[str]]) -> Iterator[str]:
    """The passes and engines after or by which a program draws other numbers."""
    expected = drawn(program, program.graph)
    assert expected[0] != expected[2]
    for options in ENGINES:
        if drawn(program, program.graph, **options) != expected:
            yield str(options)
    for pipeline in pipelines:
        if drawn(program, transformed(program, pipeline)) != expected:
            yield ", ".join(pipeline)


def differences(seed: int, folder: Path) -> list[str]:
    """The forms in which a program draws other numbers, or its Python does."""
    program = drawing_program(seed)
    found = [*differing(program, PIPELINES)]
    point = EvaluationPoint(program.graph, program.feeds, ["init"], seed=5)
    values = point.run_functional(program.fetches, program.targets)
    if values is not None and values != point.run(program.fetches, targets=program.targets):
        found.append("functional interpreter")
    program.graph = transformed(program, ["lower", "forget"])
    found += [f"lowered, {text}" for text in differing(program, LOWERED_PIPELINES)]
    functional = transformed(program, ["functionalize"])
    options = PythonOptions(program.fetches, [*program.feeds], program.targets, ["init"])
    names = loaded(functional, options, folder)
    names["script"].seed = 5
    names["script"].initialize("init")
    expected = drawn(program, program.graph)
    if [*map(int, run(names, program.feeds))] != expected[0]:
        found.append("convert --to py")
    parts = transformed(program, ["functionalize", "lower", "partition"])
    if drawn(program, parts, devices="cpu:0-1", workers=Threads(2)) != expected:
        found.append("workers")
    return [f"{seed}: {text}" for text in found]


@pytest.mark.parametrize("seeds", half(range(6)))
def test_no_pass_and_no_engine_changes_what_a_program_draws(seeds: range, tmp_path: Path) -> None:
    assert [text for seed in seeds for text in differences(seed, tmp_path)] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(6, 486, 40))
def test_none_changes_what_many_programs_draw(first: int, tmp_path: Path) -> None:
    seeds = range(first, first + 40)
    assert [text for seed in seeds for text in differences(seed, tmp_path)] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_xla_draws_the_same(first: int) -> None:
    pytest.importorskip("jax", reason="needs the extra `xla`")
    for seed in range(first, first + 20):
        program = drawing_program(seed)
        expected = drawn(program, program.graph)
        for pipeline in ([], ["lower", "cluster regions"]):
            graph = transformed(program, pipeline)
            assert drawn(program, graph, engine="xla") == expected, (seed, pipeline)


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=", ".join)
def test_tensorflow_takes_the_annotations(pipeline: Sequence[str]) -> None:
    tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1
    for seed in range(10):
        program = drawing_program(seed)
        graph = transformed(program, pipeline)
        imported = message_of(graph)
        if any("cluster" in name or name == "partition" for name in pipeline):
            with tf.Graph().as_default():
                tf.import_graph_def(imported, name="")
            continue
        with session_of(graph) as session:
            session.run("init")
            session.run([*program.fetches, *program.targets], program.feeds)


CALLS = """
n = Const() {dtype=int32, value=int32[]:3}
x = Placeholder() {dtype=float32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
none = Const() {dtype=float32, value=float32[0]:[]}
first = StatefulPartitionedCall(none, n) {Tin=(float32, int32), Tout=(float32), f=@drawn}
second = StatefulPartitionedCall(first, n) {Tin=(float32, int32), Tout=(float32), f=@drawn}
third = If(p, second, n) {Tin=(float32, int32), Tout=(float32), then_branch=@drawn, else_branch=@e}
all = Identity(third)
product = Prod(all, zero)
y = Mul(x, product)
zero = Const() {dtype=int32, value=int32[]:0}

function drawn(x: float32, n: int32) -> (y: float32) {
  stateful
  zero = Const() {dtype=int32, value=int32[]:0}
  while = While(zero:output:0, n, x) {body=@body, cond=@cond, output_shapes=([], [], [?])}
  return y = while:output:2
}

function e(x: float32, n: int32) -> (y: float32) {
  return y = x
}

function cond(i: int32, n: int32, x: float32) -> (r: bool) {
  less = Less(i, n) {T=int32}
  return r = less:z:0
}

function body(i: int32, n: int32, x: float32) -> (j: int32, m: int32, y: float32) {
  stateful
  one = Const() {dtype=int32, value=int32[]:1}
  zero = Const() {dtype=int32, value=int32[]:0}
  shape = Const() {dtype=int32, value=int32[1]:[1]}
  a = RandomUniform(shape:output:0) {T=int32, dtype=float32, seed=SEED}
  b = RandomUniform(shape:output:0) {T=int32, dtype=float32, seed=SEED}
  more = ConcatV2(x, a:output:0, b:output:0, zero:output:0) {N=3, T=float32, Tidx=int32}
  next = AddV2(i, one:output:0) {T=int32}
  return j = next:z:0
  return m = n
  return y = more:output:0
}
"""
FEEDS = {"x:0": np.float32(2), "p:0": np.True_}


def calls(seed: int) -> cfgraph.Graph:
    """Three calls of a function, one in a branch: two numbers per call and iteration."""
    return cfgraph.loads(CALLS.replace("SEED", str(seed)).encode(), "graph")


@pytest.mark.parametrize("seed", [0, 1])
def test_each_node_call_iteration_and_run_draws_other_numbers(seed: int) -> None:
    session = cfgraph.Session(calls(seed))
    numbers = np.concatenate([session.run(["all:0"], FEEDS)[0] for _ in range(3)])
    assert len(numbers) == len({*numbers.tolist()}) == 3 * 3 * 3 * 2


@pytest.mark.parametrize("seed", [0, 1])
def test_freezing_and_differentiating_change_no_numbers(seed: int) -> None:
    expected, y = cfgraph.Session(calls(seed)).run(["all:0", "y:0"], FEEDS)
    frozen = calls(seed)
    cfgraph.freeze(frozen, outputs=["all", "y"], values={"p": np.True_})
    graph = calls(seed)
    (dx,) = cfgraph.gradients(graph, "y", "x")
    cfgraph.functionalize(frozen)
    for changed in (frozen, graph):
        feeds = {name: value for name, value in FEEDS.items() if name[:-2] in changed}
        values = cfgraph.Session(changed).run(["all:0", "y:0"], feeds)
        np.testing.assert_array_equal(values[0], expected)
        assert values[1] == y
    np.testing.assert_allclose(cfgraph.Session(graph).run([dx], FEEDS)[0], y / 2, rtol=1e-6)


DERIVED = """
x = Placeholder() {dtype=float32, shape=[]}
a = StatefulPartitionedCall(x) {Tin=(float32), Tout=(float32), f=@twice}
y = StatefulPartitionedCall(a) {Tin=(float32), Tout=(float32), f=@twice}

function twice(x: float32) -> (y: float32) {
  stateful
  a = noise(x)
  y = noise(a:y:0)
  return y = y:y:0
}

function noise(x: float32) -> (y: float32) {
  stateful
  shape = Const() {dtype=int32, value=int32[0]:[]}
  r = RandomUniform(shape:output:0) {T=int32, dtype=float32}
  y = AddV2(x, r:output:0) {T=float32}
  return y = y:z:0
}

function derivative(x: float32, dy: float32) -> (dx: float32) {
  return dx = dy
}
gradient noise = derivative
"""


def test_calls_that_have_a_gradient_function_draw_alike_after_it_is_added() -> None:
    graph = cfgraph.loads(DERIVED.encode(), "graph")
    expected = cfgraph.Session(graph).run(["a:0", "y:0"], {"x:0": np.float32(0)})
    cfgraph.gradients(graph, "y", "x")
    assert cfgraph.Session(graph).run(["a:0", "y:0"], {"x:0": np.float32(0)}) == expected


def test_a_part_of_a_loop_draws_the_numbers_of_its_iteration() -> None:
    graph = calls(1)
    cfgraph.lower(graph)
    name = "first/while/body/a"
    expected = cfgraph.Session(graph).run(["all:0"], FEEDS)[0][:6:2]
    for number, value in enumerate(expected):
        part = copy_graph(graph)
        cfgraph.extract(part, outputs=name, iterations=[number])
        feeds = {
            node.name: np.int32(0 if "Merge" in node.name else 3)
            for node in part
            if node.op == "Placeholder"
        }
        assert cfgraph.Session(part).run([name], feeds)[0] == value


QUEUE = """
p = Placeholder() {dtype=bool, shape=[]}
q = RandomShuffleQueueV2() {component_types=(int32), shapes=([]), seed=1, seed2=2NAMED}
rows = Const() {dtype=int32, value=int32[9]:[0,1,2,3,4,5,6,7,8]}
fill = QueueEnqueueManyV2(q, rows) {Tcomponents=(int32)}
three = Const() {dtype=int32, value=int32[]:3}
side = Switch(three, p)
count = Identity(side:1)
taken = QueueDequeueManyV2(q, count) {component_types=(int32)}
none = Identity(side:0)
flat = Reshape(none, one)
one = Const() {dtype=int32, value=int32[1]:[1]}
out = Merge(flat, taken)
"""


GENERATOR = """
p = Placeholder() {dtype=bool, shape=[]}
g = VarHandleOp() {dtype=int64, shape=[3], shared_name="g"}
state = Const() {dtype=int64, value=int64[3]:[1,2,3]}
fill = AssignVariableOp(g, state)
philox = Const() {dtype=int64, value=int64[]:1}
size = Const() {dtype=int32, value=int32[1]:[3]}
side = Switch(size, p)
shape = Identity(side:1)
taken = StatefulUniformFullInt(g, philox, shape) {dtype=int32, shape_dtype=int32}
none = Identity(side:0)
out = Merge(none, taken)
"""


def taken(text: str, pipeline: Sequence[str]) -> list[int]:
    """What three runs draw from a resource in a branch."""
    graph = cfgraph.loads(text.encode(), "graph")
    for name in pipeline:
        PASSES[name](graph, ["out", "^fill"])
    session = cfgraph.Session(graph)
    session.run(targets=["fill"])
    return [x for _ in range(3) for x in session.run(["out:0"], {"p:0": np.True_})[0].tolist()]


@pytest.mark.parametrize(
    "text", [QUEUE.replace("NAMED", ""), QUEUE.replace("NAMED", ', shared_name="q"'), GENERATOR]
)
def test_queues_and_generators_draw_alike_after_passes(text: str) -> None:
    expected = taken(text, ())
    assert len({*expected}) == 9
    assert expected != sorted(expected)
    for pipeline in (["functionalize"], ["functionalize", "lower"], ["extract", "cluster"]):
        assert taken(text, pipeline) == expected


def test_hostile_annotations_are_numbers_or_ignored() -> None:
    text = "s = Const() {dtype=int32, value=int32[1]:[2]}\n"
    text += "r = RandomUniform(s) {dtype=float32, seed=1, ATTRS}\n"
    for attrs in (
        "_stream=3",
        "_stream=[1]",
        '_stream_iterations=("a")',
        "_stream_iterations=true",
    ):
        graph = cfgraph.loads(text.replace("ATTRS", attrs).encode(), "graph")
        plain = cfgraph.loads(text.replace(", ATTRS", "").encode(), "graph")
        values = [cfgraph.Session(each).run(["r:0"])[0].tolist() for each in (graph, plain)]
        assert values[0] == values[1]
    for numbers in ("-1, -1, -1", f"{-(2**63)}, {2**63 - 1}", ", ".join("0" * 1000), ""):
        attrs = f'_stream="", _stream_iterations=({numbers})'
        graph = cfgraph.loads(text.replace("ATTRS", attrs).encode(), "graph")
        assert ((cfgraph.Session(graph).run(["r:0"])[0]) < 1).all()
