"""Small programs on arrays, lists and optionals, of x (4 by 3 doubles) and y (3 doubles)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import float64, int32, variant
from cfgraph.ir.graph import Output, Versions
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from tests.ops.scenario import Sketch

Program = Callable[[Sketch, Output, Output], list[Output]]
LONGS = np.int64


class Array:
    """A TensorArray of doubles, each operation on it after the one before."""

    def __init__(self, g: Sketch, size: Any, version: str = "V3", **attrs: Any) -> None:
        self.g, self.version = g, version
        self.handle = g(f"TensorArray{version}", size, dtype=float64, **attrs)
        self.flow = self.handle.node.output(1) if version == "V3" else g.const(0.0)

    def change(self, verb: str, *inputs: Any) -> None:
        """An operation that gives nothing but the next flow."""
        self.flow = self.g(self._op(verb), self.handle, *inputs, self.flow)

    def get(self, verb: str, *inputs: Any, **attrs: Any) -> Output:
        """An operation that gives elements."""
        return self.g(self._op(verb), self.handle, *inputs, self.flow, dtype=float64, **attrs)

    def _op(self, verb: str) -> str:
        return f"TensorArray{verb}{self.version}"


def square(g: Sketch, x: Output) -> Output:
    return g("Mul", x, x)


# -- arrays ----------------------------------------------------------------------------------------


def elements_of_an_array(g: Sketch, x: Output, y: Output) -> list[Output]:
    array = Array(g, 2, clear_after_read=False)
    array.change("Write", 1, square(g, x))
    array.change("Write", 0, y)
    return [array.get("Read", 1), array.get("Read", 0), array.get("Read", 1)]


def array_that_grows_after_a_read(g: Sketch, x: Output, y: Output) -> list[Output]:
    array = Array(g, 0, dynamic_size=True)
    array.change("Write", 0, square(g, x))
    first = array.get("Read", 0)
    array.change("Write", 1, g("Mul", first, y))
    return [array.get("Read", 1)]


def rows_of_an_array(g: Sketch, x: Output, y: Output) -> list[Output]:
    array = Array(g, 5, clear_after_read=False, element_shape=Shape([3]))
    array.change("Scatter", [3, 0, 1, 2], square(g, x))
    array.change("Write", 4, y)
    return [array.get("Gather", [4, 0, 2, 2])]


def pieces_of_an_array(g: Sketch, x: Output, y: Output) -> list[Output]:
    array = Array(g, 3)
    array.change("Split", square(g, x), np.array([1, 0, 3], LONGS))
    return [array.get("Concat")]


def arrays_of_the_second_version(g: Sketch, x: Output, y: Output) -> list[Output]:
    return old_arrays(g, x, y, "V2")


def arrays_of_the_first_version(g: Sketch, x: Output, y: Output) -> list[Output]:
    g.graph.versions = Versions(producer=15)  # the last that knows them
    whole = Array(g, 4, "")
    whole.change("Unpack", square(g, x))
    return [whole.get("Pack"), *old_arrays(g, x, y, "")]


def old_arrays(g: Sketch, x: Output, y: Output, version: str) -> list[Output]:
    element, rows, pieces = (Array(g, size, version) for size in (1, 5, 2))
    element.change("Write", 0, square(g, y))
    rows.change("Scatter", [3, 0, 1, 2], square(g, x))
    pieces.change("Split", square(g, x), np.array([1, 3], LONGS))
    return [element.get("Read", 0), rows.get("Gather", [0, 2]), pieces.get("Concat")]


# -- lists -----------------------------------------------------------------------------------------


def empty(g: Sketch, dtype: Any = float64) -> Output:
    return g("EmptyTensorList", -1, -1, element_dtype=dtype)


def rows(g: Sketch, x: Output) -> Output:
    return g("TensorListFromTensor", x, [3])


def stacked(g: Sketch, listed: Output) -> Output:
    return g("TensorListStack", listed, [3], element_dtype=float64)


def item(g: Sketch, listed: Output, index: int, shape: Any = 3, dtype: Any = float64) -> Output:
    return g("TensorListGetItem", listed, index, [shape], element_dtype=dtype)


def pop(g: Sketch, listed: Output) -> Any:
    return g("TensorListPopBack", listed, -1, element_dtype=float64).node


def list_as_a_stack(g: Sketch, x: Output, y: Output) -> list[Output]:
    pushed = g("TensorListPushBack", empty(g), square(g, y))
    pushed = g("TensorListPushBack", pushed, y)
    last = pop(g, pushed)
    first = pop(g, last.output(0))
    again = g("TensorListPushBack", last.output(0), g("Mul", y, last.output(1)))
    return [last.output(1), first.output(1), stacked(g, again)]


def items_of_a_list(g: Sketch, x: Output, y: Output) -> list[Output]:
    before = rows(g, square(g, x))
    after = g("TensorListSetItem", before, 2, square(g, y))
    return [item(g, before, 2), item(g, after, 2), item(g, after, 1), stacked(g, after)]


def item_behind_the_end_of_a_list(g: Sketch, x: Output, y: Output) -> list[Output]:
    before = rows(g, square(g, x))
    after = g("TensorListSetItem", before, 6, y, resize_if_index_out_of_bounds=True)
    return [stacked(g, after), stacked(g, before)]


def list_of_varying_lengths(g: Sketch, x: Output, y: Output) -> list[Output]:
    before = rows(g, square(g, x))
    return [stacked(g, g("TensorListResize", before, size)) for size in (2, 6)]


def rows_of_a_list(g: Sketch, x: Output, y: Output) -> list[Output]:
    listed = rows(g, square(g, x))
    places = [g.const([3, 0]), g.hidden([1, 2])]
    return [g("TensorListGather", listed, i, [3], element_dtype=float64) for i in places]


def rows_of_a_list_taken_twice(g: Sketch, x: Output, y: Output) -> list[Output]:
    listed = rows(g, square(g, x))
    places = [g.const([3, 1, 3]), g.hidden([1, 1])]
    return [g("TensorListGather", listed, i, [3], element_dtype=float64) for i in places]


def rows_put_into_a_list(g: Sketch, x: Output, y: Output) -> list[Output]:
    one = g("TensorListScatter", square(g, x), [3, 0, 1, 2], [3])
    other = g("TensorListScatterV2", x, [5, 0, 1, 3], [3], 7)
    both = g("TensorListScatterIntoExistingList", one, square(g, rows_of(g, y)), [1, 2])
    sums = g("AddN", one, both, one)
    return [stacked(g, listed) for listed in (one, other, both, sums)]


def rows_put_behind_the_end_of_a_list(g: Sketch, x: Output, y: Output) -> list[Output]:
    before = rows(g, square(g, x))
    after = g("TensorListScatterIntoExistingList", before, rows_of(g, y), [4, 1])
    return [stacked(g, after), stacked(g, before)]


def rows_of(g: Sketch, y: Output) -> Output:
    return g("Pack", y, square(g, y))


def pieces_of_a_list(g: Sketch, x: Output, y: Output) -> list[Output]:
    listed = g("TensorListSplit", square(g, x), [-1, 3], np.array([1, 3], LONGS))
    leading = g.const(np.zeros(0, LONGS))
    second = g("TensorListGetItem", listed, 1, [3, 3], element_dtype=float64)
    return [
        g("TensorListConcat", listed, element_dtype=float64),
        g("TensorListConcatV2", listed, [-1, 3], leading, element_dtype=float64),
        second,
    ]


def lists_in_a_list(g: Sketch, x: Output, y: Output) -> list[Output]:
    one = rows(g, square(g, x))
    other = g("TensorListPushBack", one, y)
    outer = g("TensorListPushBack", empty(g, variant), one)
    outer = g("TensorListPushBack", outer, other)
    scalar = g.const(np.zeros(0, np.int32))
    got = g("TensorListGetItem", outer, 1, scalar, element_dtype=variant)
    popped = g("TensorListPopBack", outer, scalar, element_dtype=variant)
    return [stacked(g, got), stacked(g, popped.node.output(1))]


# -- optionals -------------------------------------------------------------------------------------


def optional(g: Sketch, x: Output, y: Output) -> list[Output]:
    whole = g("Identity", g("OptionalFromValue", square(g, x), y, 3))
    parts = [
        g(
            "OptionalGetValue",
            whole,
            output_types=(float64, float64, int32),
            output_shapes=(UNKNOWN_SHAPE, UNKNOWN_SHAPE, Shape([])),
        ).node
        for _ in range(2)
    ]
    return [parts[0].output(0), parts[0].output(1), parts[1].output(1)]


def values_of_a_map(g: Sketch, x: Output, y: Output) -> list[Output]:
    handle = g("EmptyTensorMap")
    for key, value in (("a", y), ("b", square(g, x)), ("a", g("Mul", x, y)), ("c", x), ("d", y)):
        handle = g("TensorMapInsert", handle, key, value)
    handle = g("TensorMapErase", handle, "d", value_dtype=float64)
    return [g("TensorMapLookup", handle, key, value_dtype=float64) for key in ("a", "b", "b")]


PROGRAMS: list[Program] = [
    elements_of_an_array,
    array_that_grows_after_a_read,
    rows_of_an_array,
    pieces_of_an_array,
    arrays_of_the_second_version,
    arrays_of_the_first_version,
    list_as_a_stack,
    items_of_a_list,
    item_behind_the_end_of_a_list,
    list_of_varying_lengths,
    rows_of_a_list,
    rows_of_a_list_taken_twice,
    rows_put_into_a_list,
    rows_put_behind_the_end_of_a_list,
    pieces_of_a_list,
    lists_in_a_list,
    optional,
    values_of_a_map,
]

# What TensorFlow gives no gradient for, or a wrong one.
OURS: set[Program] = {
    arrays_of_the_second_version,
    arrays_of_the_first_version,
    array_that_grows_after_a_read,  # may make its size final too soon
    rows_of_a_list_taken_twice,  # counts one of the two
    rows_put_behind_the_end_of_a_list,  # adds lists of two lengths
    optional,  # has no zeros for the integer
}

# A gradient array has no gradient array.
NO_SECOND: set[Program] = {
    elements_of_an_array,
    array_that_grows_after_a_read,
    rows_of_an_array,
    pieces_of_an_array,
    arrays_of_the_second_version,
    arrays_of_the_first_version,
}
