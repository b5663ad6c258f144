"""Scenarios of random generators, whose state is a variable."""

from __future__ import annotations

import numpy as np

from cfgraph.ir.dtypes import float32, float64, int32, int64, uint32, uint64
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from tests.ops.scenario import Runs, Sketch

PHILOX = np.int64(1)
STATE = np.array([2**62, 5, -7], np.int64)


def _generator(g: Sketch, state: np.ndarray = STATE) -> tuple:
    handle = g("VarHandleOp", dtype=int64, shape=UNKNOWN_SHAPE)
    init = g("AssignVariableOp", handle, state).node
    return handle, init, g("ReadVariableOp", handle, dtype=int64)


def reading_skips(g: Sketch) -> Runs:
    handle, init, state = _generator(g)
    read = g("RngReadAndSkip", handle, np.int32(1), np.uint64(3))
    skip = g("RngSkip", handle, PHILOX, np.int64(5)).node
    far = g("RngReadAndSkip", handle, np.int32(1), np.uint64(2**55))
    wrong = g("RngReadAndSkip", handle, np.int32(7), np.uint64(3))
    return [[init], [read], [state], [skip], [state], [far], [state], [wrong], [state]]


def a_state_may_be_unusable(g: Sketch) -> Runs:
    handle, init, _ = _generator(g, np.array([1, 2], np.int64))
    read = g("RngReadAndSkip", handle, np.int32(1), np.uint64(3))
    return [[init], [read]]


def floats(g: Sketch) -> Runs:
    handle, init, state = _generator(g)
    shape = np.array([2, 3], np.int64)
    runs: list = [[init]]
    for op in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal"):
        for dtype in (float32, float64):
            runs += [[g(op, handle, PHILOX, shape, dtype=dtype)], [state]]
    return runs


def integers(g: Sketch) -> Runs:
    handle, init, state = _generator(g)
    shape = np.array([7], np.int32)
    runs: list = [[init]]
    for dtype in (int32, int64, uint32, uint64):
        runs.append([g("StatefulUniformFullInt", handle, PHILOX, shape, dtype=dtype)])
    bounds = [np.int32(-5), np.int32(9)]
    runs.append([g("StatefulUniformInt", handle, PHILOX, shape, *bounds)])
    runs.append([g("StatefulUniformInt", handle, PHILOX, shape, *reversed(bounds))])
    return [*runs, [state]]


def the_first_form_begins_with_its_algorithm(g: Sketch) -> Runs:
    handle, init, state = _generator(g, np.array([1, 2, 3, 4], np.int64))
    draw = g("StatefulStandardNormal", handle, np.array([5], np.int64))
    return [[init], [draw], [state]]


def binomial(g: Sketch) -> Runs:
    handle, init, state = _generator(g)
    counts, probs = np.array([10.0, 300.0]), np.array([0.25, 0.5])
    shape = np.array([6, 2], np.int32)
    draw = g("StatefulRandomBinomial", handle, PHILOX, shape, counts, probs)
    # TensorFlow updates the constant instead of the variable as long as they share a buffer
    skip = g("RngSkip", handle, PHILOX, np.int64(1)).node
    return [[init], [skip], [draw], [state], [draw]]


SCENES = [
    reading_skips,
    a_state_may_be_unusable,
    floats,
    integers,
    the_first_form_begins_with_its_algorithm,
    binomial,
]
