"""Scenarios of optionals, stand-ins and lists of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import bool_, float32, int32, string, variant
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from tests.ops.scenario import Runs, Scenario, Sketch


def value_of(g: Sketch, optional: Output, *types: Any, shapes: Any = None) -> list[Output]:
    node = g(
        "OptionalGetValue",
        optional,
        output_types=types,
        output_shapes=shapes or (UNKNOWN_SHAPE,) * len(types),
    ).node
    return [node.output(port) for port in range(len(types))]


def optionals(g: Sketch) -> Runs:
    some = g("OptionalFromValue", [1.0, 2.0], 3)
    one = g("OptionalFromValue", 1.5)
    none = g("OptionalNone")
    return [
        value_of(g, some, float32, int32),
        value_of(g, one, float32),
        [g("OptionalHasValue", some), g("OptionalHasValue", none)],
        value_of(g, none, float32),
        value_of(g, some, float32, int32, shapes=(Shape([3]), UNKNOWN_SHAPE)),
        value_of(g, some, float32, int32, shapes=(Shape([None]), Shape([]))),
        value_of(g, some, float32),
    ]


def sums_of_optionals(g: Sketch) -> Runs:
    some = g("OptionalFromValue", [1.0, 2.0], 3)
    none = g("OptionalNone")
    text = g("OptionalFromValue", "a")
    return [
        value_of(g, g("AddN", some, some), float32, int32),
        value_of(g, g("ZerosLike", some), float32, int32),
        [g("OptionalHasValue", g("ZerosLike", none))],
        [g("OptionalHasValue", g("AddN", none, none))],
        [g("AddN", some, none).node],
        [g("ZerosLike", text).node],
        [g("AddN", text, text).node],
        [g("AddN", some, g.hidden(g("OptionalFromValue", 1.0))).node],
    ]


def variants_in_variants(g: Sketch) -> Runs:
    handle = g("TensorListPushBack", g("EmptyTensorList", [], -1, element_dtype=float32), 1.0)
    box = g("OptionalFromValue", handle)
    back = g("OptionalGetValue", box, output_types=(variant,), output_shapes=(UNKNOWN_SHAPE,))
    twice = g("AddN", box, g("ZerosLike", box), box)
    added = g("OptionalGetValue", twice, output_types=(variant,), output_shapes=(UNKNOWN_SHAPE,))
    listed = g("TensorListPushBack", g("EmptyTensorList", [], -1, element_dtype=variant), box)
    item = g("TensorListGetItem", listed, 0, -1, element_dtype=variant)
    return [
        [g("TensorListStack", back, [], element_dtype=float32)],
        [g("TensorListStack", added, [], element_dtype=float32)],
        [g("OptionalHasValue", item)],
        [g("TensorListLength", box)],
        [g("OptionalHasValue", handle)],
    ]


def truth(g: Sketch) -> Runs:
    values = [
        0,
        3,
        0.0,
        -0.5,
        np.nan,
        np.bool_(True),
        "",
        "a",
        [0.0],
        [0.0, 0.0],
        np.zeros([0, 3], np.float32),
        ["", ""],
        np.int64(0),
        np.complex64(0),
        np.uint8(1),
    ]
    return [[g("ToBool", value)] for value in values]


def stand_ins(g: Sketch) -> Runs:
    fakes = [
        g("FakeParam", dtype=dtype, shape=Shape(shape))
        for dtype, shape in ((float32, [2]), (string, []), (bool_, [3, None]), (int32, None))
    ]
    return [[g("Shape", fake)] for fake in (fakes[0], fakes[1])]


def where_am_i(g: Sketch) -> Runs:
    return [
        [g("DeviceIndex", device_names=names)]
        for names in ((b"CPU", b"GPU"), (b"GPU", b"CPU"), (b"TPU",), ())
    ]


def regrouped(g: Sketch) -> Runs:
    one = g("_ListToArray", 1.0, [2.0], Tin=(float32, float32), T=float32, N=2).node
    two = g("_ArrayToList", 3, T=int32, N=1, out_types=(int32,))
    return [[one.output(0), one.output(1)], [two]]


SCENES: list[Scenario] = [
    optionals,
    sums_of_optionals,
    variants_in_variants,
    truth,
    stand_ins,
    where_am_i,
    regrouped,
]
