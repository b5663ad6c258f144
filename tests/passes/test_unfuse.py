from __future__ import annotations

import numpy as np
import pytest

import cfgraph
from cfgraph import Graph
from cfgraph.errors import ExecutionError, Unsupported
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32, int32


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]


def fused_graph(op: str, count: int, **attrs: object) -> Graph:
    graph = Graph()
    inputs = [graph.add("Placeholder", name=f"x{i}", dtype=float32) for i in range(count)]
    if "paddings" in attrs:
        paddings = TensorValue(np.array(attrs.pop("paddings"), np.int32))
        inputs.append(graph.add("Const", dtype=int32, value=paddings))
    graph.add(op, *inputs, name="y", attrs=attrs)
    return graph


IMAGE, FILTER, BIAS = (1, 5, 4, 3), (3, 3, 3, 1), (3,)
CASES = {
    "_FusedMatMul": (
        [(2, 3), (3, 4), (4,)],
        {"num_args": 1, "fused_ops": (b"BiasAdd", b"Relu")},
        ["MatMul", "BiasAdd", "Relu"],
    ),
    "_MklMatMul": ([(3, 2), (3, 4)], {"transpose_a": True}, ["MatMul"]),
    "_FusedDepthwiseConv2dNative": (
        [IMAGE, FILTER, BIAS],
        {
            "num_args": 1,
            "strides": (1, 1, 1, 1),
            "padding": b"SAME",
            "fused_ops": (b"BiasAdd", b"Relu6"),
        },
        ["DepthwiseConv2dNative", "BiasAdd", "Relu6"],
    ),
    "_FusedBatchNormEx": (
        [IMAGE, BIAS, BIAS, BIAS, BIAS, IMAGE],
        {"num_side_inputs": 1, "activation_mode": b"Relu", "is_training": False},
        ["FusedBatchNormV3", "AddV2", "Relu"],
    ),
    "_MklNativePadWithFusedConv2D": (
        [IMAGE, (2, 2, 3, 2), (2,)],
        {
            "num_args": 1,
            "strides": (1, 1, 1, 1),
            "padding": b"VALID",
            "fused_ops": (b"BiasAdd", b"Relu"),
            "paddings": [[0, 0], [1, 0], [0, 2], [0, 0]],
        },
        ["Pad", "Conv2D", "BiasAdd", "Relu"],
    ),
    "_MklNativeFusedMatMul": (
        [(2, 3), (3, 4), (1, 4)],
        {"num_args": 1, "fused_ops": (b"BiasAdd", b"Relu")},
        ["MatMul", "AddV2", "Relu"],
    ),
    "_MklFusedBatchMatMulV2": (
        [(2, 2, 3), (2, 3, 4), (1,), (2, 4)],
        {"num_args": 2, "fused_ops": (b"Mul", b"Add")},
        ["BatchMatMulV2", "Mul", "AddV2"],
    ),
    "_MklNativeMaxPool": (
        [IMAGE],
        {"ksize": (1, 2, 2, 1), "strides": (1, 1, 1, 1), "padding": b"SAME"},
        ["MaxPool"],
    ),
    "_MklLayerNorm": (
        [(2, 5), (5,), (5,)],
        {},
        ["Mean", "SquaredDifference", "Mean", "AddV2", "Rsqrt", "Sub", "Mul", "Mul", "AddV2"],
    ),
    "_MklSwish": ([(2, 3)], {}, ["Sigmoid", "Mul"]),
    "_UnaryOpsComposition": ([(3,)], {"op_names": (b"Sqrt", b"Neg")}, ["Sqrt", "Neg"]),
}


@pytest.mark.parametrize("op", CASES)
def test_a_fused_op_and_its_chain_compute_the_same(op: str) -> None:
    shapes, attrs, chain = CASES[op]
    values = arrays(*shapes)
    feeds = {f"x{i}": value for i, value in enumerate(values)}
    graph = fused_graph(op, len(values), **attrs)
    before = cfgraph.Session(graph).run(["y:0"], feeds)[0]
    report = cfgraph.lower(graph, unfuse=True)
    assert report.rewrites == 1
    assert [node.op for node in graph if node.inputs] == chain
    np.testing.assert_allclose(cfgraph.Session(graph).run(["y:0"], feeds)[0], before, 1e-6)


def test_other_outputs_are_those_of_the_normalization() -> None:
    shapes, attrs, _ = CASES["_FusedBatchNormEx"]
    graph = fused_graph("_FusedBatchNormEx", len(shapes), **attrs)
    graph.add("Neg", graph["y"].output(1), name="mean")
    feeds = {f"x{i}": value for i, value in enumerate(arrays(*shapes))}
    before = cfgraph.Session(graph).run(["mean:0"], feeds)[0]
    cfgraph.lower(graph, unfuse=True)
    np.testing.assert_array_equal(cfgraph.Session(graph).run(["mean:0"], feeds)[0], before)


def test_fused_ops_stay_unless_requested() -> None:
    graph = fused_graph("_MklMatMul", 2)
    assert not cfgraph.lower(graph)
    assert graph["y"].op == "_MklMatMul"


@pytest.mark.parametrize("name", ["NoSuchOp", "Diag", "Squeeze"])
def test_an_unknown_epilogue_leaves_the_graph_unchanged(name: str) -> None:
    graph = fused_graph("_FusedMatMul", 2, num_args=0, fused_ops=(name.encode(),))
    with pytest.raises(Unsupported, match=name):
        cfgraph.lower(graph, unfuse=True)
    assert graph["y"].op == "_FusedMatMul"


def test_attributes_that_the_chain_does_not_accept_are_those_of_the_fused_op() -> None:
    attrs = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2), "padding": b"SAME"}
    graph = fused_graph("_MklNativeAvgPool", 1, **attrs)
    for run in (
        lambda: cfgraph.lower(graph, unfuse=True),
        lambda: cfgraph.Session(graph).run(["y:0"], {"x0:0": np.ones((1, 2, 2, 1), np.float32)}),
    ):
        with pytest.raises((Unsupported, ExecutionError), match="'strides' has length 3") as caught:
            run()
        assert (caught.value.node, caught.value.code) == ("y", "CFG705")
