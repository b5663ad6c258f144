from __future__ import annotations

import pytest

from cfgraph.ir.dtypes import float32, int32, int64
from cfgraph.ir.signature import Signature

STITCH = Signature("indices: N*int32, data: N*T -> merged: T", "N: int >= 1, T: type")
CONCAT = Signature("values: N*T, axis: Tidx -> output: T", "N: int >= 2, T: type, Tidx: type")


def test_lists_of_one_count_share_the_inputs() -> None:
    assert STITCH.infer([int32, int32, float32, float32], {}) == {"N": 2, "T": float32}


def test_inputs_that_do_not_share_out_are_refused() -> None:
    with pytest.raises(ValueError, match="3 inputs cannot be divided into 2 lists"):
        STITCH.infer([int32, int32, float32], {})


def test_a_list_leaves_one_input_to_each_argument_after_it() -> None:
    assert CONCAT.infer([float32] * 3 + [int64], {}) == {"N": 3, "T": float32, "Tidx": int64}


def test_an_explicit_count_is_used() -> None:
    with pytest.raises(ValueError, match="got 4 inputs, expected 2"):
        STITCH.infer([int32, float32, int32, float32], {"N": 1})


def test_too_few_inputs_name_the_argument() -> None:
    with pytest.raises(ValueError, match="'values' is missing"):
        CONCAT.infer([], {})
