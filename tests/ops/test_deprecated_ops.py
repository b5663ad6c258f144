"""Ops that TensorFlow has no CPU kernel for any more: their values, and who they agree with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfgraph.ops.opdef.op import OpError
from tests.ops.harness import case, run_ours


def run(op: str, *inputs: Any, **attrs: Any) -> list[Any]:
    return run_ours(case(op, inputs, attrs))


def test_tile_grad_sums_the_tiles() -> None:
    tiles = np.arange(12, dtype=np.float32).reshape(2, 6)
    [total] = run("TileGrad", tiles, np.array([2, 3], np.int32))
    np.testing.assert_array_equal(total, tiles.reshape(2, 1, 3, 2).sum((0, 2)))
    with pytest.raises(OpError, match="length 2"):
        run("TileGrad", tiles, np.array([2], np.int32))


def test_top_k_is_top_k_v2() -> None:
    rows = np.array([[3, 1, 3, 2], [0, 5, 5, 5]], np.float32)
    old, new = run("TopK", rows, k=3), run("TopKV2", rows, np.int32(3))
    for mine, wanted in zip(old, new, strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [("Sum", [3, 0, 3, 0]), ("Prod", [2, 1, 3, 1]), ("Min", [1, 0, 3, 0]), ("Max", [2, 0, 3, 0])],
)
def test_an_explicit_number_of_segments_pads_the_result(how: str, wanted: list[float]) -> None:
    data, ids = np.array([1, 2, 3], np.float32), np.array([0, 0, 2], np.int32)
    [result] = run(f"Segment{how}V2", data, ids, np.int32(4))
    np.testing.assert_array_equal(result, np.array(wanted, np.float32))
    with pytest.raises(OpError, match="num_segments"):
        run(f"Segment{how}V2", data, ids, np.int32(2))
