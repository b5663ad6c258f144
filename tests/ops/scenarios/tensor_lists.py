"""Scenarios of tensor lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import float32, float64, int32, int64, string, variant
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from tests.ops.scenario import Runs, Scenario, Sketch


def empty(g: Sketch, shape: Any, limit: int = -1, dtype: Any = float32) -> Output:
    return g("EmptyTensorList", shape, limit, element_dtype=dtype)


def reserve(g: Sketch, shape: Any, count: Any, dtype: Any = float32) -> Output:
    return g("TensorListReserve", shape, count, element_dtype=dtype)


def push(g: Sketch, handle: Output, *values: Any) -> Output:
    for value in values:
        handle = g("TensorListPushBack", handle, value)
    return handle


def stack(g: Sketch, handle: Output, shape: Any = -1, dtype: Any = float32, **attrs: Any) -> Output:
    return g("TensorListStack", handle, shape, element_dtype=dtype, **attrs)


def get(g: Sketch, handle: Output, index: Any, shape: Any = -1, dtype: Any = float32) -> Output:
    return g("TensorListGetItem", handle, index, shape, element_dtype=dtype)


def concat(g: Sketch, handle: Output, shape: Any, leading: Any = (), **attrs: Any) -> Output:
    lengths = np.asarray(leading, np.int64)
    return g("TensorListConcatV2", handle, shape, lengths, element_dtype=float32, **attrs)


def push_and_pop(g: Sketch) -> Runs:
    one = push(g, empty(g, [2]), [1.0, 2.0], [3.0, 4.0])
    length = g("TensorListLength", one)
    popped = g("TensorListPopBack", one, [2], element_dtype=float32).node
    rest, last = popped.output(0), popped.output(1)
    other = push(g, rest, [5.0, 6.0])
    none = g("TensorListPopBack", empty(g, [2]), [2], element_dtype=float32).node
    return [
        [length, stack(g, one, [2])],
        [last, g("TensorListLength", rest), stack(g, other, [2]), stack(g, one, [2])],
        [none.output(1)],
    ]


def push_faults(g: Sketch) -> Runs:
    full = push(g, empty(g, -1, 1), 1.0)
    return [
        [stack(g, full)],
        [push(g, full, 2.0).node],
        [push(g, empty(g, [2]), g.hidden([1.0])).node],
        [push(g, g.hidden(empty(g, [2])), g.hidden([1, 2])).node],
        [push(g, empty(g, g.hidden([None or -1, 2])), g.hidden([[1.0, 2.0]])).node],
        [empty(g, g.hidden(3)).node],
        [empty(g, g.hidden([-2])).node],
        [reserve(g, [2], g.hidden(-1)).node],
    ]


def set_and_get(g: Sketch) -> Runs:
    start = reserve(g, [2], 3)
    one = g("TensorListSetItem", start, 1, [1.0, 2.0])
    two = g("TensorListSetItem", one, 1, [9.0, 9.0])
    three = g("TensorListSetItem", one, 0, [7.0, 7.0])
    return [
        [stack(g, start, [2]), stack(g, one, [2])],
        [stack(g, three, [2]), stack(g, two, [2]), stack(g, one, [2]), stack(g, start, [2])],
        [get(g, one, 1), get(g, one, 0), get(g, three, 0, [2]), get(g, two, 1)],
        [get(g, g.hidden(one), g.hidden([[1]])), get(g, one, g.hidden(0))],
        [get(g, one, g.hidden(3)).node],
        [get(g, one, g.hidden(-1)).node],
        [g("TensorListSetItem", start, g.hidden(3), [1.0, 2.0]).node],
        [g("TensorListSetItem", start, g.hidden(-1), [1.0, 2.0]).node],
        [g("TensorListSetItem", start, 0, g.hidden([1.0])).node],
        [g("TensorListSetItem", g.hidden(start), 0, g.hidden([1, 2])).node],
        [g("TensorListGetItem", g.hidden(start), 0, [2], element_dtype=int32).node],
    ]


def set_beyond_the_end(g: Sketch) -> Runs:
    start = reserve(g, [], 1)
    grown = g("TensorListSetItem", start, 3, 5.0, resize_if_index_out_of_bounds=True)
    return [[stack(g, grown, [])]]


def unset_elements(g: Sketch) -> Runs:
    unknown = reserve(g, -1, 2)
    half = g("TensorListSetItem", unknown, 0, [1.0, 2.0])
    mixed = g("TensorListSetItem", reserve(g, [-1], 3), 0, [1.0, 2.0])
    mixed = g("TensorListSetItem", mixed, 1, [1.0, 2.0, 3.0])
    return [
        [get(g, unknown, 0)],
        [get(g, unknown, 0, [3])],
        [get(g, half, 1)],
        [stack(g, half)],
        [stack(g, unknown)],
        [stack(g, unknown, [2])],
        [stack(g, mixed)],
        [get(g, mixed, 2)],
        [get(g, mixed, 2, [4])],
        [stack(g, reserve(g, [2, -1], 2), [-1, 3])],
        [stack(g, reserve(g, [2], 2), g.hidden([3]))],
        [g("TensorListPopBack", unknown, -1, element_dtype=float32).node.output(1)],
        [g("TensorListPopBack", unknown, [2], element_dtype=float32).node.output(1)],
        [g("TensorListPopBack", half, -1, element_dtype=float32).node.output(1)],
    ]


def stacking(g: Sketch) -> Runs:
    one = push(g, empty(g, -1), [1.0], [2.0])
    uneven = push(g, empty(g, -1), [1.0], [2.0, 3.0])
    return [
        [stack(g, one, num_elements=2)],
        [stack(g, one, num_elements=3)],
        [stack(g, uneven)],
        [stack(g, one, g.hidden([2]))],
        [stack(g, empty(g, -1))],
        [stack(g, empty(g, [2]))],
        [stack(g, empty(g, -1), [3])],
        [stack(g, empty(g, [-1]), [-1])],
        [stack(g, g.hidden(one), dtype=int32)],
    ]


def shapes(g: Sketch) -> Runs:
    runs: list[list[Output]] = []
    for shape in (-1, [2, -1], [3], [], np.array([4], np.int64)):
        handle = empty(g, shape)
        runs.append(
            [
                g("TensorListElementShape", handle, shape_type=int32),
                g("TensorListElementShape", handle, shape_type=int64),
            ]
        )
    return runs


def resize(g: Sketch) -> Runs:
    one = push(g, empty(g, []), 1.0, 2.0)
    scalar: list[int] = []
    return [
        *([stack(g, g("TensorListResize", one, size), scalar)] for size in (0, 1, 2, 4)),
        [g("TensorListResize", one, g.hidden(-1)).node],
        [stack(g, one)],
    ]


def from_tensor(g: Sketch) -> Runs:
    def made(value: Any, shape: Any) -> Output:
        return g("TensorListFromTensor", value, shape)

    matrix = [[1.0, 2.0], [3.0, 4.0]]
    words = made(["a", "b"], [])
    return [
        [stack(g, made(matrix, [2]))],
        [stack(g, made(matrix, -1)), get(g, made(matrix, [-1]), 1)],
        [made(g.hidden(matrix), [3]).node],
        [made(g.hidden(1.0), -1).node],
        [stack(g, made(np.zeros([0, 2], np.float32), [2]))],
        [stack(g, words, dtype=string), get(g, words, 1, dtype=string)],
        [get(g, g("TensorListResize", words, 3), 2, dtype=string)],
    ]


def gather(g: Sketch) -> Runs:
    one = push(g, empty(g, -1), [1.0], [2.0], [3.0])
    uneven = push(g, empty(g, -1), [1.0], [2.0, 3.0])
    unset = g("TensorListSetItem", reserve(g, -1, 3), 0, [1.0])

    def taken(handle: Output, indices: Any, shape: Any = -1) -> Output:
        return g("TensorListGather", handle, indices, shape, element_dtype=float32)

    none: list[int] = []
    return [
        [taken(one, [2, 0, 2])],
        [taken(one, none)],
        [taken(one, none, [1])],
        [taken(one, g.hidden([3]))],
        [taken(one, g.hidden([-1]))],
        [taken(uneven, [0, 1])],
        [taken(uneven, [1])],
        [taken(unset, [0, 1])],
        [taken(unset, [1, 2])],
        [taken(unset, [1, 2], [4])],
        [taken(one, [0], g.hidden([2]))],
        [taken(g.hidden(one), g.hidden([[2, 0], [1, 1]])), taken(g.hidden(one), g.hidden(1))],
    ]


def scatter(g: Sketch) -> Runs:
    values = [[1.0, 2.0], [3.0, 4.0]]

    def placed(indices: Any, count: Any, shape: Any = (2,), value: Any = values) -> Output:
        made = g("TensorListScatterV2", value, indices, g.const(list(shape)), count)
        return stack(g, g.hidden(made), [2])

    first = g("TensorListScatter", values, [2, 0], [2])
    return [
        [placed([1, 0], -1)],
        [placed([3, 1], -1)],
        [placed([3, 1], 5)],
        [placed([0, 0], -1)],
        [placed(g.hidden([3, 1]), 2)],
        [placed(g.hidden([-1, 1]), -1)],
        [placed(g.hidden([0, 1]), g.hidden(-2))],
        [placed(g.hidden([0]), -1)],
        [placed(g.hidden([[2], [0]]), -1)],
        [placed([0, 1], 0)],
        [placed([0, 1], -1, (3,), g.hidden(values))],
        [stack(g, first, [2])],
    ]


def scatter_into_a_list(g: Sketch) -> Runs:
    start = push(g, empty(g, [2]), [1.0, 2.0], [3.0, 4.0])

    def placed(value: Any, indices: Any) -> Output:
        return stack(g, g("TensorListScatterIntoExistingList", start, value, indices), [2])

    return [
        [placed([[9.0, 9.0]], [1])],
        [placed(g.hidden([[9.0, 9.0]]), g.hidden([[1]]))],
        [placed(g.hidden([[9.0, 9.0]]), g.hidden([0, 1]))],
        [stack(g, start, [2])],
    ]


def concatenation(g: Sketch) -> Runs:
    pieces = push(g, empty(g, [-1, 2]), [[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]])
    rough = push(g, empty(g, -1), [1.0], [2.0, 3.0])
    scalars = push(g, empty(g, []), 1.0)
    misfit = push(g, empty(g, -1), [1.0], [[2.0]])
    unset = g("TensorListSetItem", reserve(g, [-1, 2], 3), 1, [[1.0, 2.0]])
    runs = [
        [concat(g, pieces, [-1, 2])],
        [concat(g, pieces, -1)],
        [concat(g, rough, -1)],
        [concat(g, scalars, -1)],
        [concat(g, g.hidden(empty(g, [])), -1)],
        [concat(g, g.hidden(empty(g, -1)), g.hidden([]))],
        [concat(g, misfit, -1)],
        [concat(g, unset, [-1, 2], [2, 0, 1])],
        [concat(g, unset, [-1, 2], [2])],
        [concat(g, unset, [-1, 2])],
        [concat(g, unset, -1, [1, 1, 1])],
        [concat(g, reserve(g, [1, 2], 2), [-1, 2], [2, 3])],
        [concat(g, reserve(g, [1, 2], 2), [-1, 2])],
        [concat(g, empty(g, [-1, 2]), [-1, 2])],
        [concat(g, empty(g, -1), -1)],
        [concat(g, empty(g, [1, 2]), -1)],
        [concat(g, pieces, g.hidden([-1, 3]))],
        [concat(g, push(g, empty(g, -1), [[1.0]]), g.hidden([5, 1]))],
        [concat(g, pieces, g.hidden([]))],
        [g("TensorListConcat", pieces, element_dtype=float32, element_shape=UNKNOWN_SHAPE)],
        [g("TensorListConcat", rough, element_dtype=float32, element_shape=Shape([None]))],
        [g("TensorListConcat", unset, element_dtype=float32, element_shape=Shape([1, 2]))],
    ]
    return [[run[0], run[0].node.output(1)] for run in runs]


def split(g: Sketch) -> Runs:
    rows = [[1.0], [2.0], [3.0]]

    def pieces(value: Any, lengths: Any, shape: Any = (-1, 1)) -> Output:
        of = g.const(-1 if shape == -1 else list(shape))
        return g("TensorListSplit", value, of, np.asarray(lengths, np.int64))

    made = pieces(rows, [1, 2])
    none = pieces(rows, [0, 3, 0])
    return [
        [get(g, made, 0), get(g, made, 1), g("TensorListElementShape", made, shape_type=int32)],
        [get(g, none, 0), get(g, none, 2), g("TensorListLength", none)],
        [pieces(g.hidden(rows), [1, 1]).node],
        [pieces(g.hidden(rows), [1, 3]).node],
        [pieces(g.hidden(rows), [4, -1]).node],
        [pieces(g.hidden(1.0), [1]).node],
        [pieces(g.hidden(rows), [3], (-1, 2)).node],
        [pieces(g.hidden(rows), [3], (2, 1)).node],
        [g("TensorListLength", pieces(g.hidden(rows), [1, 2], -1))],
        [g("TensorListSplit", [1.0, 2.0], g.hidden([]), np.array([1, 1])).node],
    ]


def joined_lists(g: Sketch) -> Runs:
    def both(a: Output, b: Output, dtype: Any = float32) -> Output:
        return g("TensorListConcatLists", a, b, element_dtype=dtype)

    one, two = push(g, empty(g, [1]), [1.0]), push(g, empty(g, [1]), [2.0], [3.0])
    joined = both(one, two)
    other = push(g, empty(g, [2]), [1.0, 2.0])
    return [
        [stack(g, joined), g("TensorListElementShape", joined, shape_type=int32)],
        [both(two, g.hidden(other)).node],
        [both(g.hidden(one), g.hidden(two), int32).node],
        [stack(g, both(empty(g, -1), one))],
        [both(push(g, empty(g, [-1]), [1.0]), two).node],
    ]


def batches(g: Sketch) -> Runs:
    handles = g("Pack", empty(g, [2]), push(g, empty(g, [2]), [0.0, 0.0]))
    more = g("TensorListPushBackBatch", handles, [[1.0, 2.0], [3.0, 4.0]])
    parts = g("Unpack", more, num=2).node
    wrong = g("TensorListPushBackBatch", handles, g.hidden([[1.0, 2.0]]))
    return [
        [stack(g, parts.output(0)), stack(g, parts.output(1))],
        [wrong.node],
        [g("TensorListPushBackBatch", handles, g.hidden([[1.0], [2.0]])).node],
    ]


def nested(g: Sketch) -> Runs:
    inner = push(g, empty(g, []), 1.0, 2.0)
    outer = push(g, empty(g, [], dtype=variant), inner)
    back = get(g, outer, 0, dtype=variant)
    popped = g("TensorListPopBack", outer, -1, element_dtype=variant).node
    again = g("TensorListSetItem", reserve(g, -1, 2, variant), 1, inner)
    stacked = stack(g, push(g, outer, empty(g, [])), dtype=variant)
    parts = g("Unpack", stacked, num=2).node
    listed = g("TensorListFromTensor", stacked, [])
    unset = get(g, again, 0, [], dtype=variant)
    return [
        [stack(g, back)],
        [stack(g, popped.output(1)), g("TensorListLength", popped.output(0))],
        [stack(g, get(g, again, 1, dtype=variant))],
        [stack(g, parts.output(0)), g("TensorListLength", parts.output(1))],
        [stack(g, get(g, listed, 0, dtype=variant))],
        [unset.node],
        [g("TensorListLength", unset)],
        [stack(g, again, dtype=variant).node],
    ]


def zeros_and_sums(g: Sketch) -> Runs:
    one, two = push(g, empty(g, [-1]), [1.0], [2.0]), push(g, empty(g, [1]), [3.0], [4.0])
    zero = g("ZerosLike", one)
    total = g("AddN", one, two, zero)
    unset = g("TensorListSetItem", reserve(g, [1], 2), 0, [5.0])
    outer = push(g, empty(g, [], dtype=variant), one)
    twice = g("AddN", outer, outer, g("ZerosLike", outer))
    return [
        [stack(g, zero)],
        [stack(g, total), g("TensorListElementShape", total, shape_type=int32)],
        [stack(g, g("AddN", one, unset))],
        [stack(g, g("AddN", unset, unset)), stack(g, g("ZerosLike", unset))],
        [stack(g, get(g, twice, 0, dtype=variant))],
        [g("AddN", one, push(g, empty(g, [1]), [1.0])).node],
        [g("AddN", one, g.hidden(push(g, empty(g, [2]), [1.0, 2.0], [1.0, 2.0]))).node],
        [g("AddN", one, g.hidden(g("TensorListFromTensor", [[1], [2]], [1]))).node],
    ]


def several_types(g: Sketch) -> Runs:
    doubles = push(g, empty(g, [], dtype=float64), np.float64(1.5))
    texts = push(g, empty(g, [1], dtype=string), ["a"])
    return [
        [stack(g, doubles, dtype=float64)],
        [stack(g, texts, dtype=string)],
        [stack(g, g("ZerosLike", texts), dtype=string)],
        [stack(g, g("AddN", texts, texts), dtype=string)],
    ]


SCENES: list[Scenario] = [
    push_and_pop,
    push_faults,
    set_and_get,
    set_beyond_the_end,
    unset_elements,
    stacking,
    shapes,
    resize,
    from_tensor,
    gather,
    scatter,
    scatter_into_a_list,
    concatenation,
    split,
    joined_lists,
    batches,
    nested,
    zeros_and_sums,
    several_types,
]
