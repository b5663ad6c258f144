"""Products that a Slice or the sum of a loop computes: values, engines, and where they apply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla.cluster_runner import ClusterRunner
from cfgraph.console.transforms.convert import PythonOptions, python_source, write_python
from cfgraph.ir.graph import Graph
from cfgraph.runtime.cost_model import Calibration, CostModel
from cfgraph.runtime.engine.deferred_products import defer_products
from cfgraph.runtime.engine.joint_products import DeferredProduct, JoinedSum
from cfgraph.runtime.engine.plan import RunSpec, make_plans
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import TraceEvent
from tests.runtime.graphs import LOOP

# sum = Σ xᵢᵀ yᵢ over rows of two tensors, [n, rows, 128] and [n, rows, 160]
SUM = (
    LOOP
    + """
x = Placeholder() {dtype=float32, shape=[?,?,128]}
y = Placeholder() {dtype=float32, shape=[?,?,160]}
xs = Enter(x) {frame_name="loop", is_constant=true, parallel_iterations=PARALLEL}
ys = Enter(y) {frame_name="loop", is_constant=true, parallel_iterations=PARALLEL}
axis = Const(^body) {dtype=int32, value=int32[]:0}
a = GatherV2(xs, body, axis)
b = GatherV2(ys, body, axis)
product = MatMul(a, b) {transpose_a=true}
start = Placeholder() {dtype=float32, shape=[128,160]}
first = Enter(start) {frame_name="loop", parallel_iterations=PARALLEL}
total = Merge(first, following)
kept = Switch(total, cond)
before = Identity(kept:1)
sum = AddV2(before, product)
following = NextIteration(sum)
result = Exit(kept)
"""
)
ENGINES = ("compiled", "tokens")
COUNTS = (0, 1, 11, 12, 13, 30)


def text(parallel: int = 10, source: str = SUM) -> str:
    return source.replace("PARALLEL", str(parallel))


def session(source: str, **options: Any) -> Session:
    return Session(cfgraph.loads(source.encode(), "graph"), **options)


def feeds(count: int, rows: int = 32) -> dict[str, Any]:
    random = np.random.default_rng(count)
    return {
        "n:0": np.int32(count),
        "x:0": random.standard_normal((count, rows, 128)).astype(np.float32),
        "y:0": random.standard_normal((count, rows, 160)).astype(np.float32),
        "start:0": random.standard_normal((128, 160)).astype(np.float32),
    }


def expected(fed: dict[str, Any]) -> Any:
    x, y = (fed[name].astype(np.float64) for name in ("x:0", "y:0"))
    return fed["start:0"] + np.einsum("nij,nik->jk", x, y)


class Outputs:
    """Observer of the outputs of one node."""

    def __init__(self, node: str) -> None:
        self.node, self.values = node, list[Any]()

    def event(self, event: TraceEvent) -> None:
        if event.node == self.node:
            self.values += event.outputs


def wrapped(source: str | Graph, fetches: list[str]) -> set[str]:
    """The nodes whose kernels have changed."""
    graph = cfgraph.loads(source.encode(), "graph") if isinstance(source, str) else source
    placeholders = tuple(node.output() for node in graph if node.op == "Placeholder")
    spec = RunSpec(graph, tuple(graph.tensor(name) for name in fetches), (), placeholders)
    (plan,) = make_plans(spec, "cpu:0", ClusterRunner(None))
    defer_products([plan])
    return {node.name for node, known in plan.nodes.items() if known.wrapper}


@pytest.mark.parametrize("rows", [32, 100, 200])
@pytest.mark.parametrize("count", COUNTS)
def test_a_sum_of_products_is_that_of_numpy_in_each_engine(count: int, rows: int) -> None:
    fed = feeds(count, rows)
    values = [session(text(), engine=engine).run(["result:0"], fed)[0] for engine in ENGINES]
    assert values[0].tobytes() == values[1].tobytes()
    np.testing.assert_allclose(values[0], expected(fed), rtol=1e-4, atol=1e-3)


def test_products_of_different_heights_are_joined() -> None:
    source = text().replace(
        "a = GatherV2(xs, body, axis)",
        "whole = GatherV2(xs, body, axis)\n"
        "from = Pack(body, axis)\nsize = Const(^body) {dtype=int32, value=int32[2]:[-1, 128]}\n"
        "a = Slice(whole, from, size)",
    )
    source = source.replace(
        "b = GatherV2(ys, body, axis)",
        "other = GatherV2(ys, body, axis)\n"
        "wide = Const(^body) {dtype=int32, value=int32[2]:[-1, 160]}\nb = Slice(other, from, wide)",
    )
    fed = feeds(20, 100)
    x, y = fed["x:0"].astype(np.float64), fed["y:0"]
    total = fed["start:0"] + sum(x[i, i:].T @ y[i, i:] for i in range(20))
    values = [session(source, engine=engine).run(["result:0"], fed)[0] for engine in ENGINES]
    assert values[0].tobytes() == values[1].tobytes()
    np.testing.assert_allclose(values[0], total, rtol=1e-4, atol=1e-3)


def test_an_observer_sees_each_product_and_each_sum() -> None:
    fed = feeds(14)
    products, sums = Outputs("product"), Outputs("sum")
    plain = session(text()).run(["result:0"], fed)
    traced = session(text()).run(["result:0"], fed, trace=products)
    session(text()).run(["result:0"], fed, trace=sums)
    assert traced[0].tobytes() == plain[0].tobytes()
    for index in range(14):
        alone = fed["x:0"][index].T @ fed["y:0"][index]
        np.testing.assert_allclose(products.values[index], alone, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(sums.values[13], plain[0], rtol=1e-5, atol=1e-4)


def test_counted_memory_contains_each_product() -> None:
    fed = feeds(20)
    counted = session(text(), memory={})
    (value,) = counted.run(["result:0"], fed)
    np.testing.assert_allclose(value, expected(fed), rtol=1e-4, atol=1e-3)
    (memory,) = counted.memory.values()
    # the sum, the product, and their sum
    assert memory.peak >= sum(fed[name].nbytes for name in fed if fed[name].ndim) + 3 * value.nbytes


def test_a_sum_on_another_device_than_the_loop_agrees() -> None:
    source = text()
    for node in ("product = MatMul(a, b)", "a = GatherV2(xs, body, axis)"):
        assert node in source
    fed = feeds(14)
    values = []
    for rules in ({}, {"product": "cpu:1"}, {"product": "cpu:1", "sum": "cpu:1"}):
        for engine in ENGINES:
            run = session(source, engine=engine, devices=["cpu:0", "cpu:1"], rules=rules)
            values.append(run.run(["result:0"], fed)[0])
    for a, b in zip(values[::2], values[1::2], strict=True):
        assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(a, expected(fed), rtol=1e-4, atol=1e-3)


def test_a_python_file_has_the_same_sums(tmp_path: Any) -> None:
    graph, fed = cfgraph.loads(text().encode(), "graph"), feeds(14)
    file = tmp_path / "converted.py"
    write_python(python_source(graph, PythonOptions(("result:0",))), str(file))
    names: dict[str, Any] = {"__name__": "converted", "__file__": str(file)}
    exec(compile(file.read_text(), file, "exec"), names)
    parameters = {tensor: name for name, tensor in names["script"].tensors.items()}
    (value,) = names["run"](**{parameters[tensor]: array for tensor, array in fed.items()})
    assert value.tobytes() == Session(graph).run(["result:0"], fed)[0].tobytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("following = NextIteration(sum)", "also = Tanh(sum)\nfollowing = NextIteration(sum)"),
        ("following = NextIteration(sum)", "following = NextIteration(also)\nalso = Tanh(sum)"),
        ("before = Identity(kept:1)", "before = Tanh(kept:1)"),
        ("sum = AddV2(before, product)", "also = Neg(product)\nsum = AddV2(also, product)"),
        ("sum = AddV2(before, product)", "sum = AddV2(product, before)\nmore = Neg(product)"),
        ("result = Exit(kept)", "shown = Neg(kept)\nresult = Exit(shown)"),
    ],
)
def test_a_sum_or_product_that_is_used_otherwise_is_computed_as_it_is(old: str, new: str) -> None:
    assert wrapped(text(), ["result:0"]) == {"product", "sum"}
    source = text().replace(old, new)
    assert source != text()
    used = [
        f"{line.partition(' =')[0]}:0" for line in new.split("\n") if line[:4] in ("also", "more")
    ]
    graph = cfgraph.loads(source.encode(), "graph")
    for name in used:  # as a target, since a fetch cannot be inside of a loop
        spec = RunSpec(
            graph,
            (graph.tensor("result:0"),),
            (graph[name[:-2]],),
            tuple(node.output() for node in graph if node.op == "Placeholder"),
        )
        (plan,) = make_plans(spec, "cpu:0", ClusterRunner(None))
        defer_products([plan])
        assert not any(known.wrapper for known in plan.nodes.values())
    if not used:
        assert not wrapped(source, ["result:0"])


SLICED = """
a = Placeholder() {dtype=float32, shape=[?,?]}
b = Placeholder() {dtype=float32, shape=[?,?]}
begin = Placeholder() {dtype=int32, shape=[2]}
size = Placeholder() {dtype=int32, shape=[2]}
product = MatMul(a, b) {transpose_b=true}
part = Slice(product, begin, size)
"""


@pytest.mark.parametrize("window", [((0, 40), (-1, 60)), ((3, 0), (5, -1)), ((0, 0), (-1, -1))])
def test_a_slice_of_a_product_is_that_of_the_whole(window: Any) -> None:
    random = np.random.default_rng(0)
    fed = {
        "a:0": random.standard_normal((150, 70)).astype(np.float32),
        "b:0": random.standard_normal((160, 70)).astype(np.float32),
        "begin:0": np.array(window[0], np.int32),
        "size:0": np.array(window[1], np.int32),
    }
    assert wrapped(SLICED, ["part:0"]) == {"product", "part"}
    assert not wrapped(SLICED, ["part:0", "product:0"])
    values = [session(SLICED, engine=engine).run(["part:0"], fed)[0] for engine in ENGINES]
    (row, column), whole = window[0], fed["a:0"] @ fed["b:0"].T
    rows, columns = (extent if extent >= 0 else None for extent in window[1])
    part = whole[row:][:rows][:, column:][:, :columns]
    assert values[0].tobytes() == values[1].tobytes()
    np.testing.assert_allclose(values[0], part, rtol=1e-5, atol=1e-5)
    fed["size:0"] = np.array([1, 161], np.int32)
    for engine in ENGINES:
        with pytest.raises(cfgraph.CfgraphError, match=r"Expected size\[1\] in") as failed:
            session(SLICED, engine=engine).run(["part:0"], fed)
        assert failed.value.node == "part"


@pytest.mark.parametrize(
    ("bounds", "masks"),
    [
        (((0, -60), (0, 0), (1, 1)), "begin_mask=1, end_mask=3"),
        (((0, 30), (140, 500), (1, 1)), ""),
        (((0, 90), (140, 30), (3, -2)), ""),
        (((7, 30), (8, 40), (1, 1)), "shrink_axis_mask=1"),
        (((7,), (50,), (1,)), ""),
        (((0, 0, 3), (0, 0, 9), (1, 1, 1)), "ellipsis_mask=1, new_axis_mask=2"),
    ],
)
def test_a_strided_slice_of_a_product_is_that_of_the_whole(bounds: Any, masks: str) -> None:
    random = np.random.default_rng(0)
    names = "begin", "end", "strides"
    source = (
        SLICED.replace("size = ", "end = ")
        .replace("shape=[2]", "shape=[?]")
        .replace(
            "part = Slice(product, begin, size)",
            "strides = Placeholder() {dtype=int32, shape=[?]}\n"
            f"part = StridedSlice(product, begin, end, strides) {{{masks}}}",
        )
    )
    fed = {f"{name}:0": np.array(row, np.int32) for name, row in zip(names, bounds, strict=True)}
    fed["a:0"] = random.standard_normal((150, 70)).astype(np.float32)
    fed["b:0"] = random.standard_normal((160, 70)).astype(np.float32)
    assert wrapped(source, ["part:0"]) == {"product", "part"}
    values = [session(source, engine=engine).run(["part:0"], fed)[0] for engine in ENGINES]
    (whole,) = session(source, memory={}).run(["part:0"], fed)
    assert values[0].tobytes() == values[1].tobytes()
    np.testing.assert_allclose(values[0], whole, rtol=1e-5, atol=1e-5)


def test_sums_that_share_products_are_independent() -> None:
    random = np.random.default_rng(0)
    matrices = [random.standard_normal((130, 4)).astype(np.float32) for _ in range(3)]
    first, second, third = (DeferredProduct(matrix.T, matrix.T) for matrix in matrices)
    shared = JoinedSum(np.zeros((130, 130), np.float32)).add(first)
    sums = shared.add(second), shared.add(third), shared
    parts = matrices[0] @ matrices[0].T
    for total, more in zip(sums, (matrices[1], matrices[2], np.zeros((130, 4))), strict=True):
        np.testing.assert_allclose(total.value, parts + more @ more.T, rtol=1e-4, atol=1e-4)


def test_a_calibration_uses_no_time_of_nodes_that_compute_jointly() -> None:
    calibration = Calibration()
    session(text()).run(["result:0"], feeds(14), trace=calibration)
    assert "GatherV2" in calibration.text()
    assert "MatMul" not in calibration.text()
    calibration = Calibration()
    session(text(), memory={}).run(["result:0"], feeds(14), trace=calibration)
    assert "MatMul" in calibration.text()


def test_products_of_another_shape_than_the_sum_are_an_error_of_the_addition() -> None:
    source = text().replace("[128,160]", "?").replace("[?,?,160]", "?").replace("[?,?,128]", "?")
    source = source.replace(
        "b = GatherV2(ys, body, axis)",
        "rows = GatherV2(ys, body, axis)\n"
        "b = Slice(rows, from, size)\nfrom = Pack(axis, body)\n"
        "size = Const(^body) {dtype=int32, value=int32[2]:[-1, -1]}",
    )
    messages = []
    for options in ({"engine": "compiled"}, {"engine": "tokens"}, {"memory": {}}):
        with pytest.raises(cfgraph.CfgraphError, match="do not broadcast") as error:
            session(source, **options).run(["result:0"], feeds(3))
        assert error.value.node == "sum"
        messages.append(str(error.value))
    assert len({*messages}) == 1


def test_the_virtual_clock_counts_each_product() -> None:
    times = []
    for memory in (None, {}):
        run = session(text(), costs=CostModel(), memory=memory)
        run.run(["result:0"], feeds(14))
        times.append(run.elapsed)
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize("request_of_product", ["", "/cpu:0"])
@pytest.mark.parametrize("device", ["cpu:0", "cpu:1"])
def test_a_slice_of_a_product_on_a_device_agrees(request_of_product: str, device: str) -> None:
    values = []
    for engine in (*ENGINES, "auto"):
        b = cfgraph.Builder()
        x = b.placeholder("x", "float32", [None, None])
        b.Slice(b.MatMul(x, x, name="product"), [0, 0], [3, 7], name="part")
        b.graph.set_device(b.graph["product"], request_of_product)
        run = Session(b.graph, engine=engine, devices="cpu:0-1", rules={"part": device})
        matrix = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
        values.append(run.run(["part:0"], {"x:0": matrix})[0].tobytes())
        assert run.fallback == ("the engine is tokens" if engine == "tokens" else "")
    assert len(set(values)) == 1
