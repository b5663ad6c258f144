"""Scenarios of shapes that only the run sees: there kernels decide, and no shape function."""

from __future__ import annotations

import numpy as np

from cfgraph.ir.dtypes import float32
from tests.ops.scenario import Runs, Sketch


def a_number_for_the_sizes_of_a_fill(g: Sketch) -> Runs:
    sizes = (g.hidden(3), g.hidden([2, 1]), g.hidden([[2]]), g.hidden(-1))
    return [[g("Fill", size, np.float32(1.5))] for size in sizes]


def a_vector_of_indices(g: Sketch) -> Runs:
    runs: list[list[object]] = []
    updates_by_shape = [
        ([0], [[1.0, 2.0]], [2, 2]),
        ([0, 1], [[1.0, 2.0], [3.0, 4.0]], [2, 2]),
        ([1], [5.0], [3]),
        (np.zeros(0, np.int32), np.zeros([0, 2], np.float32), [2, 2]),
        (np.zeros(0, np.int32), np.zeros([0, 2], np.float32), [0, 2]),
    ]
    for indices, updates, shape in updates_by_shape:
        where, what = g.hidden(indices), g.hidden(np.asarray(updates, np.float32))
        runs.append([g("ScatterNd", where, what, g.hidden(shape))])
        zeros = g.hidden(np.zeros(shape, np.float32))
        runs.append([g("TensorScatterUpdate", zeros, where, what)])
    return runs


def matrices_that_are_not_square(g: Sketch) -> Runs:
    ops = ("Cholesky", "MatrixInverse", "MatrixDeterminant")
    shapes = ([0, 2], [2, 3], [1, 0, 2], [2, 2])
    return [
        [g(op, g.hidden(np.eye(*shape[-2:], dtype=np.float32).reshape(shape)), T=float32)]
        for op in ops
        for shape in shapes
    ]


SCENES = [a_number_for_the_sizes_of_a_fill, a_vector_of_indices, matrices_that_are_not_square]
