"""Products that a slice or the sum of a loop computes: values, engines, and where they apply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.console.transforms.convert import PythonOptions
from cfgraph.integrations.python_export.convert import python_source, write_python
from cfgraph.runtime.cost_model import Calibration
from cfgraph.runtime.engine.joint_products import DeferredProduct, JoinedSum
from cfgraph.runtime.session import Session
from tests.recorder import Recorder
from tests.runtime.graphs import LOOP
from tests.sampled import sampled

# sum = Σ xᵢᵀ yᵢ over rows of two tensors, [n, rows, 128] and [n, rows, 160]
SUM = (
    LOOP.replace("PARALLEL", "10")
    + """
x = Placeholder() {dtype=float32, shape=[?,?,128]}
y = Placeholder() {dtype=float32, shape=?}
xs = Enter(x) {frame_name="loop", is_constant=true}
ys = Enter(y) {frame_name="loop", is_constant=true}
axis = Const(^body) {dtype=int32, value=int32[]:0}
a = GatherV2(xs, body, axis)
b = GatherV2(ys, body, axis)
product = MatMul(a, b) {transpose_a=true}
start = Placeholder() {dtype=float32, shape=[128,160]}
first = Enter(start) {frame_name="loop"}
total = Merge(first, following)
kept = Switch(total, cond)
before = Identity(kept:1)
sum = AddV2(before, product)
following = NextIteration(sum)
result = Exit(kept)
"""
)

ENGINES = ("compiled", "tokens")


def session(source: str, **options: Any) -> Session:
    return Session(cfgraph.loads(source.encode(), "graph"), **options)


def feeds(count: int, rows: int = 32) -> dict[str, Any]:
    random = np.random.default_rng(count)
    x, y = (random.standard_normal((count, rows, n)).astype(np.float32) for n in (128, 160))
    start = random.standard_normal((128, 160)).astype(np.float32)
    return {"n:0": np.int32(count), "x:0": x, "y:0": y, "start:0": start}


def require_sum(value: Any, fed: dict[str, Any]) -> None:
    total = np.einsum("nij,nik->jk", fed["x:0"].astype(np.float64), fed["y:0"])
    np.testing.assert_allclose(value, fed["start:0"] + total, rtol=1e-4, atol=1e-3)


def agreed(source: str, fed: dict[str, Any], fetch: str = "result:0", **options: Any) -> Any:
    """The value, which is the same in all engines."""
    values = [session(source, engine=each, **options).run([fetch], fed)[0] for each in ENGINES]
    assert values[0].tobytes() == values[1].tobytes()
    return values[0]


@pytest.mark.parametrize("rows", sampled([32, 200, 100], 3))
@pytest.mark.parametrize("count", [0, 1, 12, 13, 30])
def test_a_sum_of_products_is_that_of_numpy_in_each_engine(count: int, rows: int) -> None:
    fed = feeds(count, rows)
    require_sum(agreed(SUM, fed), fed)


def test_an_observer_sees_each_product_and_each_sum() -> None:
    fed, observer = feeds(14), Recorder(values=True)
    (value,) = session(SUM).run(["result:0"], fed, trace=observer)
    assert value.tobytes() == agreed(SUM, fed).tobytes()
    events = {(event.node, event.iteration): event.outputs for event in observer.events}
    products = [events["product", index][0] for index in range(14)]
    alone = np.einsum("nij,nik->njk", fed["x:0"], fed["y:0"])
    np.testing.assert_allclose(products, alone, rtol=1e-5, atol=1e-4)
    require_sum(events["sum", 13][0], fed)


@pytest.mark.parametrize("moved", [[], ["product"], ["product", "sum"]])
def test_a_sum_on_another_device_than_the_loop_agrees(moved: list[str]) -> None:
    fed, rules = feeds(14), dict.fromkeys(moved, "cpu:1")
    require_sum(agreed(SUM, fed, devices=["cpu:0", "cpu:1"], rules=rules), fed)


def test_a_python_file_has_the_same_sums(tmp_path: Any) -> None:
    graph, fed = cfgraph.loads(SUM.encode(), "graph"), feeds(14)
    file = tmp_path / "converted.py"
    write_python(python_source(graph, PythonOptions(("result:0",))), str(file))
    names: dict[str, Any] = {"__name__": "converted", "__file__": str(file)}
    exec(compile(file.read_text(), file, "exec"), names)
    parameters = {tensor: name for name, tensor in names["script"].tensors.items()}
    (value,) = names["run"](**{parameters[tensor]: array for tensor, array in fed.items()})
    assert value.tobytes() == agreed(SUM, fed).tobytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("following = NextIteration(sum)", "following = NextIteration(also)\nalso = Neg(sum)"),
        ("before = Identity(kept:1)", "before = Neg(kept:1)"),
        ("sum = AddV2(before, product)", "also = Neg(product)\nsum = AddV2(before, also)"),
        ("sum = AddV2(before, product)", "sum = AddN(before, product, product)"),
        ("product = MatMul(a, b)", "a_ = Neg(a)\nproduct = MatMul(a_, b)"),
    ],
)
def test_a_product_that_is_not_only_summed_has_the_same_bits_alone(old: str, new: str) -> None:
    source, fed = SUM.replace(old, new), feeds(14)
    assert source != SUM
    (alone,) = session(source, memory={}).run(["result:0"], fed)  # each node is computed
    is_joined = "MatMul(a_" in new
    assert (agreed(source, fed).tobytes() != alone.tobytes()) == is_joined


def test_products_of_another_shape_than_the_sum_are_an_error_of_the_addition() -> None:
    fed = feeds(3) | {"y:0": np.zeros((3, 32, 161), np.float32)}
    for options in ({"engine": "compiled"}, {"engine": "tokens"}, {"memory": {}}):
        with pytest.raises(cfgraph.CfgraphError, match="do not broadcast") as error:
            session(SUM, **options).run(["result:0"], fed)
        assert error.value.node == "sum"


def test_sums_that_share_products_are_independent() -> None:
    matrices = np.random.default_rng(0).standard_normal((3, 130, 4)).astype(np.float32)
    first, second, third = (DeferredProduct(matrix, matrix.T) for matrix in matrices)
    shared = JoinedSum(np.zeros((130, 130), np.float32)).add(first)
    parts = matrices @ matrices.transpose(0, 2, 1)
    values = [each.value for each in (shared.add(second), shared.add(third), shared)]
    expected = [parts[0] + parts[1], parts[0] + parts[2], parts[0]]
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)


def test_a_calibration_uses_no_time_of_nodes_that_compute_jointly() -> None:
    for options, is_joint in (({}, True), ({"memory": {}}, False)):
        calibration = Calibration()
        session(SUM, **options).run(["result:0"], feeds(14), trace=calibration)
        assert ("MatMul" not in calibration.text()) == is_joint


@pytest.mark.parametrize(
    "index", [np.s_[40:, :60], np.s_[3:8], np.s_[140:30:-2, 7], np.s_[..., None, 3:9]]
)
def test_a_slice_of_a_product_is_that_of_the_whole(index: Any) -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [None, None])
    product = b.MatMul(x, x, transpose_b=True, name="product")
    part = product[index]
    fed = {"x:0": np.random.default_rng(0).standard_normal((150, 70)).astype(np.float32)}
    whole = fed["x:0"] @ fed["x:0"].T
    value = agreed(cfgraph.dumps(b.graph, "graph").decode(), fed, part.name)
    np.testing.assert_allclose(value, whole[index], rtol=1e-5, atol=1e-5)
