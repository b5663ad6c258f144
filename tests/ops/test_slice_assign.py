from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph.ops
from cfgraph.ir.dtypes import float32, int32, resource
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import OpError, lookup

assert cfgraph.ops


def assign(op: str, cell: Variable, bounds: list[list[int]], value: Any, **masks: int) -> Any:
    graph = Graph()
    ref = float32.ref if op == "StridedSliceAssign" else resource
    types = [ref, *[int32] * 3, float32]
    inputs = [graph.add("Placeholder", dtype=t, shape=Shape(None)) for t in types]
    attrs = {"T": float32, "Index": int32, **masks}
    node = graph.create("op", op, [i.output(0) for i in inputs], attrs=attrs)
    found = lookup(op)
    assert found is not None
    arrays = [np.array(item, np.int32) for item in bounds]
    return found.prepare(node, np)(None, cell, *arrays, np.asarray(value, np.float32))


def cell() -> Variable:
    return Variable(float32, Shape((2, 3)), "v", value=np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("op", ["StridedSliceAssign", "ResourceStridedSliceAssign"])
def test_a_part_of_a_variable_is_replaced(op: str) -> None:
    variable = cell()
    before = variable.value
    result = assign(op, variable, [[1, 0], [2, 2], [1, 1]], [[5, 6]])
    np.testing.assert_array_equal(variable.value, [[0, 0, 0], [5, 6, 0]])
    assert not before.any()
    assert result is (variable if op == "StridedSliceAssign" else None)


@pytest.mark.parametrize("op", ["StridedSliceAssign", "ResourceStridedSliceAssign"])
def test_one_element_of_a_variable_is_replaced(op: str) -> None:
    variable = cell()
    assign(op, variable, [[-1, 1], [0, 0], [1, 1]], 7, shrink_axis_mask=3)
    np.testing.assert_array_equal(variable.value, [[0, 0, 0], [0, 7, 0]])


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OpError, match=r"\[4\] to \[2, 3\]"):
        assign("StridedSliceAssign", cell(), [[0], [2], [1]], [1, 2, 3, 4])
    with pytest.raises(OpError, match="out of bounds"):
        assign("StridedSliceAssign", cell(), [[5], [0], [1]], 1, shrink_axis_mask=1)
