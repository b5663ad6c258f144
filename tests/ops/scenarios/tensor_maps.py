"""Scenarios of maps from tensors to tensors."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import float32, float64, int32, string, variant
from cfgraph.ir.graph import Output
from tests.ops.scenario import Runs, Sketch

VECTOR = np.array([1, 2, 3], np.int32)


def filled(g: Sketch, *entries: tuple[Any, Any]) -> Output:
    return reduce(
        lambda handle, entry: g("TensorMapInsert", handle, *entry), entries, g("EmptyTensorMap")
    )


def looked_up(g: Sketch, handle: Output, key: Any, dtype: Any = float32) -> Output:
    return g("TensorMapLookup", handle, key, value_dtype=dtype)


def erased(g: Sketch, handle: Output, key: Any) -> Output:
    return g("TensorMapErase", handle, key, value_dtype=float32)


def keys_of_all_types(g: Sketch) -> Runs:
    keys: list[Any] = [1, 1.0, np.float64(1), True, "one", ["one"], [["one"]], VECTOR, VECTOR[:1]]
    keys += [np.array([], np.int32), -0.0, 0.0, np.float32(np.nan), np.array([], np.float32)]
    handle = filled(g, *((key, float(place)) for place, key in enumerate(keys)))
    return [
        [looked_up(g, handle, key) for key in keys],
        [g("TensorMapHasKey", handle, key) for key in (2, "two", np.int64(1), [[1]], VECTOR[:2])],
        [g("TensorMapSize", handle)],
    ]


def versions_of_a_map(g: Sketch) -> Runs:
    first = filled(g, (1, VECTOR), ("a", 2.0))
    second = g("TensorMapInsert", first, 1, "text")
    third = erased(g, second, "a")
    return [
        [looked_up(g, first, 1, int32), looked_up(g, second, 1, string)],
        [g("TensorMapSize", handle) for handle in (first, second, third)],
        [g("TensorMapHasKey", handle, "a") for handle in (second, third)],
    ]


def stacked_keys(g: Sketch) -> Runs:
    numbers, words = filled(g, (VECTOR, 1.0), (VECTOR, 2.0)), filled(g, (["a", "b"], 1.0))
    return [
        [g("TensorMapStackKeys", numbers, key_dtype=int32)],
        [g("TensorMapStackKeys", words, key_dtype=string)],
    ]


def sums_and_zeros(g: Sketch) -> Runs:
    total = g("AddN", filled(g, (1, 1.0), (2, 2.0)), filled(g, (2, 3.0), (3, 4.0)), N=2, T=variant)
    return [
        [looked_up(g, total, key) for key in (1, 2, 3)],
        [g("TensorMapSize", g("ZerosLike", total))],
    ]


def maps_in_a_map(g: Sketch) -> Runs:
    inner = looked_up(g, filled(g, ("inner", filled(g, (1, 2.0)))), "inner", variant)
    return [[looked_up(g, inner, 1)]]


def faults(g: Sketch) -> Runs:
    handle, two_shapes = filled(g, (1, 2.0)), filled(g, (1, 1.0), (VECTOR, 2.0))
    plain = g("OptionalNone")
    return [
        [looked_up(g, handle, 2)],
        [erased(g, handle, "one")],
        [looked_up(g, handle, 1, float64)],
        [g("TensorMapStackKeys", g("EmptyTensorMap"), key_dtype=int32)],
        [g("TensorMapStackKeys", two_shapes, key_dtype=int32)],
        [g("TensorMapStackKeys", handle, key_dtype=float32)],
        [g("TensorMapSize", plain)],
        [g("TensorMapSize", g("Pack", handle, handle, N=2, axis=0))],
    ]


SCENES = [
    keys_of_all_types,
    versions_of_a_map,
    stacked_keys,
    sums_and_zeros,
    maps_in_a_map,
    faults,
]
