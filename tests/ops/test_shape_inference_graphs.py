"""Shape inference over the graphs that TensorFlow's own tests built."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cfgraph.ops
from cfgraph.ir.files import loads
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from tests.ops import harness

assert cfgraph.ops
RECORDED = Path(__file__).parents[2] / "fixtures" / "conformance" / "tensorflow.zip"


def graphs(every: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(RECORDED) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".pb"))
        for name in names[::every]:
            yield name, archive.read(name)


@pytest.mark.parametrize("every", [15, pytest.param(7, marks=pytest.mark.slow)])
def test_no_graph_that_runs_has_errors(every: int) -> None:
    for name, data in graphs(every):
        assert [(node.name, text) for node, text in infer_shapes(loads(data)).errors] == [], name


def is_handle(node: Node, port: int) -> bool:
    """TensorFlow calls a handle a pair of strings, which it has not been for long."""
    dtype = node.output(port).dtype
    return dtype is None or dtype.is_object


@pytest.mark.interop
def test_no_shape_contradicts_tensorflow() -> None:
    tf = harness.tensorflow()
    if tf is None:
        pytest.skip("TensorFlow is not installed (extra `interop`)")
    for name, data in graphs(every=40):
        definition = tf.compat.v1.GraphDef.FromString(data)
        with tf.Graph().as_default() as theirs:
            try:
                tf.import_graph_def(definition, name="")
            except ValueError:
                continue
        graph = loads(data)
        inferred = infer_shapes(graph)
        for node in graph:
            for port, output in enumerate(theirs.get_operation_by_name(node.name).outputs):
                sizes = None if output.shape.rank is None else output.shape.as_list()
                assert is_handle(node, port) or agree(inferred, node, port, sizes), (name, node)


def agree(inferred: StaticShapes, node: Node, port: int, sizes: list[int | None] | None) -> bool:
    try:
        inferred[Output(node, port)].merge(Shape(sizes))
    except ValueError:
        return False
    return True
