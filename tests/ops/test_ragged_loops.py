"""Loops over the rows of a ragged tensor, which reach the body as variants."""

from __future__ import annotations

import numpy as np
import pytest

import cfgraph

SPLITS = np.array([0, 2, 2, 5])
VALUES = np.arange(5, dtype=np.float32)
SCALE = np.float32(3)


@pytest.fixture
def program() -> cfgraph.Graph:
    """`y` is the sum of the scaled squares of each row, `z` the scaled rows."""
    b = cfgraph.Builder()
    values, scale = b.placeholder("values", "float32", [5]), b.placeholder("scale", "float32", [])
    empty = b.const(np.array([], np.int32))
    packed = b.RaggedTensorToVariant([b.const(SPLITS)], values, batched_input=True)
    rows = b.TensorListFromTensor(packed, empty, element_dtype="variant")
    sums = b.TensorListReserve(empty, 3, element_dtype="float32")
    scaled = b.TensorListReserve(empty, 3, element_dtype="variant")
    ranks = {"input_ragged_rank": -1, "Tvalues": "float32", "Tsplits": "int64"}

    def step(i, sums, scaled):
        packed_row = b.TensorListGetItem(rows, i, empty, element_dtype="variant")
        row = b.RaggedTensorFromVariant(packed_row, output_ragged_rank=0, **ranks)[-1]
        square = b.Sum(row * row, [0]) * scale
        again = b.RaggedTensorToVariant([], row * scale, batched_input=False, Tsplits="int64")
        sums = b.TensorListSetItem(sums, i, square)
        return i + 1, sums, b.TensorListSetItem(scaled, i, again)

    _, sums, scaled = b.while_loop(lambda i, *_: i < 3, step, [0, sums, scaled])
    b.TensorListStack(sums, empty, element_dtype="float32", name="y")
    packed = b.TensorListStack(scaled, empty, element_dtype="variant")
    b.RaggedTensorFromVariant(packed, output_ragged_rank=1, name="z", **ranks)
    return b.graph


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_rows_of_a_loop_and_their_gradient_agree_with_map_fn(program, engine):
    feeds = {"values": VALUES, "scale": SCALE}
    grads = cfgraph.gradients(program, ys=["y:0", "z:1"], xs=["values:0", "scale:0"])
    session = cfgraph.Session(program, engine=engine)
    sums, splits, rows, *found = session.run(["y:0", "z:0", "z:1", *grads], feeds)
    np.testing.assert_array_equal(sums, np.float32([3, 0, 87]))
    np.testing.assert_array_equal(splits, SPLITS)
    np.testing.assert_array_equal(rows, VALUES * SCALE)
    np.testing.assert_array_equal(found[0], 2 * SCALE * VALUES + SCALE)
    np.testing.assert_array_equal(found[1], np.float32(40))
