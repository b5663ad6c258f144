"""Scenarios of ragged tensors in variants."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import float32, int32, int64, string, variant
from cfgraph.ir.graph import Output
from tests.ops.scenario import Runs, Sketch

SPLITS = np.array([0, 2, 2, 5])
OUTER = np.array([0, 1, 3])
VALUES = np.arange(10, dtype=np.float32).reshape(5, 2)


def encoded(g: Sketch, values: Any, *splits: Any, batched: bool = True) -> Output:
    node = g.graph.add(
        "RaggedTensorToVariant",
        *(x if isinstance(x, Output) else g.const(x) for x in (*splits, values)),
        attrs={
            "RAGGED_RANK": len(splits),
            "batched_input": batched,
            **({} if splits else {"Tsplits": int64}),
        },
    )
    return node.output(0)


def decoded(
    g: Sketch, packed: Output, rank: int, inner: int = -1, values: Any = float32, ids: Any = int64
) -> list[Output]:
    node = g(
        "RaggedTensorFromVariant",
        packed,
        input_ragged_rank=inner,
        output_ragged_rank=rank,
        Tvalues=values,
        Tsplits=ids,
    ).node
    return [node.output(port) for port in range(rank + 1)]


def element(g: Sketch, packed: Output, index: int) -> Output:
    items = g("TensorListFromTensor", packed, np.array([], np.int32), element_dtype=variant)
    return g("TensorListGetItem", items, index, np.array([], np.int32), element_dtype=variant)


def round_trips(g: Sketch) -> Runs:
    words = np.array([b"a", b"b", b"c", b"d", b"e"], object)
    short = [x.astype(np.int32) for x in (OUTER, SPLITS)]
    return [
        decoded(g, encoded(g, VALUES, SPLITS), 1),
        decoded(g, encoded(g, VALUES, SPLITS, batched=False), 1),
        decoded(g, encoded(g, VALUES, OUTER, SPLITS), 2),
        decoded(g, encoded(g, VALUES, OUTER, SPLITS, batched=False), 2, 2),
        decoded(g, encoded(g, words, SPLITS), 1, 0, string),
        decoded(g, encoded(g, VALUES, *short), 2, 1, ids=int32),
        decoded(g, encoded(g, VALUES), 0),
        decoded(g, encoded(g, VALUES), 1),
        decoded(g, encoded(g, VALUES, batched=False), 0, 0),
        decoded(g, encoded(g, VALUES[:0], SPLITS[:1]), 1),
    ]


def rows(g: Sketch) -> Runs:
    nested = encoded(g, VALUES, OUTER, SPLITS)
    flat = encoded(g, VALUES, SPLITS)
    both = g("Pack", flat, flat, axis=0, N=2)
    return [
        decoded(g, element(g, nested, 1), 1),
        decoded(g, element(g, flat, 1), 0),
        decoded(g, element(g, flat, 2), 0, 0),
        decoded(g, both, 2),
        decoded(g, both, 2, 0),
    ]


def faults(g: Sketch) -> Runs:
    flat = encoded(g, VALUES, SPLITS)
    return [
        decoded(g, flat, 0),
        decoded(g, flat, 2),
        decoded(g, flat, 1, values=int32),
        decoded(g, encoded(g, VALUES, OUTER, SPLITS), 2, ids=int32),
        decoded(g, encoded(g, VALUES[:, 0]), 1),
        [encoded(g, VALUES, np.array([0, 9])).node],
        [encoded(g, VALUES, np.array([1, 5])).node],
        [encoded(g, VALUES, np.array([0, 3])).node],
        [encoded(g, g.hidden(np.float32(1))).node],
        decoded(g, g("OptionalNone"), 1),
    ]


def gradients(g: Sketch) -> Runs:
    def joined(packed: Output, sizes: list[int]) -> list[Output]:
        return [g("RaggedTensorToVariantGradient", packed, SPLITS, sizes, Tvalues=float32)]

    flat = encoded(g, VALUES, SPLITS)
    return [
        joined(flat, [5, 2]),
        joined(encoded(g, VALUES, SPLITS, batched=False), [5, 2]),
        joined(encoded(g, VALUES, OUTER, SPLITS), [5, 2]),
    ]


SCENES = [round_trips, rows, faults, gradients]
