"""Scenarios of changes to parts of variables, each in both forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import Shape
from tests.ops.scenario import Runs, Scenario, Sketch

ROWS = ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max")
PLACES = ("Update", "Add", "Sub", "Min", "Max")


def both_forms(
    g: Sketch, op: str, start: Any, changes: list[tuple[Any, Any]], **attrs: Any
) -> Runs:
    """Apply changes one after the other, reading the variable after each."""
    dtype = DType.from_numpy(start.dtype)
    ref = g("VariableV2", dtype=dtype, shape=Shape(start.shape))
    handle = g("VarHandleOp", dtype=dtype, shape=Shape(start.shape))
    read = g("ReadVariableOp", handle, dtype=dtype)
    kind = {} if "Nd" in op else {"dtype": dtype}
    runs: list[list[Any]] = []
    for indices, updates in changes:
        ports = [i if isinstance(i, Output) else g.const(i) for i in (indices, updates)]
        runs.append([g(op, ref, *ports, **attrs)])
        runs.append([g(f"Resource{op}", handle, *ports, **kind, **attrs).node])
        runs.append([ref, read])
    init = [g("Assign", ref, start), g("AssignVariableOp", handle, start).node]
    return [*runs[:2], init, *runs]


def rows(op: str, dtype: Any) -> Scenario:
    def scene(g: Sketch) -> Runs:
        start = np.array([[7, 20], [30, 45], [-50, 63]]).astype(dtype)
        updates = np.array([[2, 3], [5, 7]]).astype(dtype)
        return both_forms(
            g,
            f"Scatter{op}",
            start,
            [
                ([2, 0], updates),
                ([1, 1], updates[[0, 0]]),
                ([[2], [1]], updates[:, None]),
                (np.int64(1), updates[0]),
                (np.array([0, 2], np.int64), updates[0, 0]),
                (np.zeros(0, np.int32), updates[:0]),
                (g.hidden([3]), updates[:1]),
                (g.hidden([-1]), updates[:1]),
                (g.hidden([0]), updates),
            ],
        )

    scene.__name__ = f"rows_{op}_{np.dtype(dtype).name}"
    return scene


def places(op: str, dtype: Any) -> Scenario:
    def scene(g: Sketch) -> Runs:
        start = np.array([[7, 20], [30, 45], [-50, 63]]).astype(dtype)
        updates = np.array([[2, 3], [5, 7]]).astype(dtype)
        return both_forms(
            g,
            f"ScatterNd{op}",
            start,
            [
                ([[2], [0]], updates),
                ([[0, 1], [2, 0]], updates[0]),
                ([[1, 1], [1, 1]], updates[[0, 0], [0, 0]]),
                (np.array([[1], [2]], np.int64), updates),
                (np.zeros([0, 1], np.int32), updates[:0]),
                (g.hidden([[3]]), updates[:1]),
                (g.hidden([[-1, 0]]), updates[0, :1]),
                (g.hidden([[0]]), updates),
            ],
        )

    scene.__name__ = f"places_{op}_{np.dtype(dtype).name}"
    return scene


def bad_indices_ignored(g: Sketch) -> Runs:
    start = np.zeros(3, np.float32)
    indices = g.hidden([[0], [5], [2]])
    return both_forms(
        g, "ScatterNdAdd", start, [(indices, [1.0, 2.0, 3.0])], bad_indices_policy="IGNORE"
    )


SCENES = [
    *(rows(op, dtype) for op in ROWS for dtype in (np.float32, np.int32)),
    *(rows(op, np.float64) for op in ("Update", "Add", "Min")),
    *(rows(op, np.float16) for op in ("Add", "Mul", "Div", "Max")),
    *(places(op, dtype) for op in PLACES for dtype in (np.float32, np.int32)),
    rows("Add", np.int64),
    rows("Div", np.int8),
    rows("Sub", np.complex64),
    bad_indices_ignored,
]
