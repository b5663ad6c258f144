"""Kernels reserve the memory they work in, whatever the size of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cfgraph.errors import ExecutionError, RunTimeout
from cfgraph.limits import limited
from cfgraph.ops.opdef.op import OpError
from tests.ops.test_fast_paths import compute

EMPTY = np.zeros((1_000_000, 0), np.int64)
NUMBERS = np.zeros(0, np.float32)
FIRST_AND_IDS = {
    "row_partition_types": (b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"),
    "num_row_partition_tensors": 2,
}
PADS = {"separator": b"", "left_pad": b"", "right_pad": b"", "preserve_short_sequences": True}


def int64(*values: int) -> Any:
    return np.array(values, np.int64)


def ngrams(**attrs: Any) -> object:
    words = np.array([b"a"], object)
    return compute("StringNGrams", words, int64(0, 1), **PADS, **attrs)


def dense_rows(first: int) -> object:
    inputs = int64(2, 2), NUMBERS, np.float32(0), np.array(first), int64()
    return compute("RaggedTensorToTensor", *inputs, **FIRST_AND_IDS)


WORK: dict[str, Callable[[], object]] = {
    "sets of empty rows": lambda: compute(
        "DenseToDenseSetOperation", EMPTY, EMPTY, set_operation=b"union"
    ),
    "rows that are cut": lambda: dense_rows(1 << 40),
    "ranges whose total overflows": lambda: compute(
        "RaggedRange", int64(0, 0, 0, 0), int64(*[1 << 61] * 4), int64(1, 1, 1, 1)
    ),
    "pads of a short row": lambda: ngrams(ngram_widths=[], pad_width=1 << 40),
    "pads of a wide n-gram": lambda: ngrams(ngram_widths=[1 << 40], pad_width=-1),
    "crops without channels": lambda: compute(
        "CropAndResize",
        np.zeros((1, 2, 2, 0), np.float32),
        np.zeros((1, 4), np.float32),
        np.zeros(1, np.int32),
        np.array([1 << 20, 1 << 20], np.int32),
    ),
    "counts of many values": lambda: compute(
        "DenseBincount", int64(1), np.array(700_000), np.zeros(0, np.float32)
    ),
    "regions whose total overflows": lambda: compute(
        "FractionalAvgPoolGrad",
        int64(1, 1 << 62, 1, 1),
        np.ones((1, 7, 1, 1), np.float32),
        int64(*[0, (1 << 62) - 1] * 4),
        int64(0, 1),
        overlapping=True,
    ),
    "rows that are empty": lambda: compute(
        "RaggedFillEmptyRows", int64(), NUMBERS, np.array(1 << 20), np.float32(0)
    ),
    "beams without bound": lambda: compute(
        "CTCBeamSearchDecoder",
        np.zeros((20, 1, 9), np.float32),
        np.array([20], np.int32),
        beam_width=1 << 40,
        top_paths=1,
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_working_memory_is_reserved(name: str) -> None:
    with limited(max_memory=4_000_000), pytest.raises(ExecutionError, match="the limit is 4000000"):
        WORK[name]()


def test_a_ragged_tensor_has_no_negative_number_of_rows() -> None:
    with pytest.raises(OpError, match="FIRST_DIM_SIZE must not be negative"):
        dense_rows(-1)


def test_attempts_to_crop_an_image_end_at_the_deadline() -> None:
    box, size = np.array([[[0, 0, 1, 1]]], np.float32), np.array([40, 50, 3])
    inputs = size, box, np.float32(2), int64(1, 2)  # no crop covers twice a box
    with pytest.raises(RunTimeout), limited(timeout=0.05):
        compute("StatelessSampleDistortedBoundingBox", *inputs, max_attempts=1 << 40)


@pytest.mark.parametrize("sizes", [(1 << 40, 1 << 39, 3), (-5, 4, 3)])
def test_a_crop_is_sampled_of_sizes_of_an_int32(sizes: tuple[int, ...]) -> None:
    inputs = int64(*sizes), np.zeros((1, 0, 4), np.float32), np.float32(0.1), int64(1, 2)
    with pytest.raises(OpError, match="sizes from 0 to 2147483646"), limited(timeout=5):
        compute("StatelessSampleDistortedBoundingBox", *inputs, use_image_if_no_bounding_boxes=True)


def test_a_long_isotonic_regression_ends_at_the_deadline() -> None:
    with pytest.raises(RunTimeout), limited(timeout=1e-9):
        compute("IsotonicRegression", np.zeros(9, np.float32))
