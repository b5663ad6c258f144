"""Loops over arrays and lists, of x (4 by 3 doubles) and y (3 doubles)."""

from __future__ import annotations

from typing import Any

from cfgraph.build.builder import Builder
from cfgraph.ir.dtypes import float64


def element(b: Builder, handle: Any, i: Any, flow: Any) -> Any:
    row = b.TensorArrayReadV3(handle, i, flow, dtype=float64)
    return b.Reshape(row, [3])


def rows_read_and_written_in_turn(b: Builder, x: Any, y: Any) -> list[Any]:
    source = b.TensorArrayV3(4, dtype=float64)
    flow = b.TensorArrayScatterV3(source.handle, b.Range(0, 4, 1), x, source.flow)
    made = b.TensorArrayV3(4, dtype=float64)

    def body(i: Any, state: Any, done: Any) -> tuple[Any, Any, Any]:
        row = element(b, source.handle, i, flow)
        state = state * row + y
        return i + 1, state, b.TensorArrayWriteV3(made.handle, i, state, done)

    _, state, done = b.while_loop(lambda i, state, done: i < 4, body, (0, y, made.flow))
    rows = b.TensorArrayGatherV3(made.handle, [1, 3], done, dtype=float64, element_shape=[3])
    return [rows, state]


def element_written_by_the_iteration_before(b: Builder, x: Any, y: Any) -> list[Any]:
    made = b.TensorArrayV3(0, dtype=float64, dynamic_size=True, clear_after_read=False)
    flow = b.TensorArrayWriteV3(made.handle, 0, y, made.flow)

    def body(i: Any, total: Any, flow: Any) -> tuple[Any, Any, Any]:
        before = element(b, made.handle, i, flow)
        flow = b.TensorArrayWriteV3(made.handle, i + 1, before * y, flow)
        return i + 1, total * before, flow

    _, total, _ = b.while_loop(lambda i, total, flow: i < 3, body, (0, y, flow))
    return [total]


def list_filled_and_read_by_index(b: Builder, x: Any, y: Any) -> list[Any]:
    rows = b.TensorListFromTensor(x, [3])
    made = b.TensorListReserve([3], 4, element_dtype=float64)

    def body(i: Any, state: Any, made: Any) -> tuple[Any, Any, Any]:
        row = b.TensorListGetItem(rows, i, [3], element_dtype=float64)
        state = state * row + y
        return i + 1, state, b.TensorListSetItem(made, i, state)

    _, state, made = b.while_loop(lambda i, state, made: i < 4, body, (0, y, made))
    return [b.TensorListStack(made, [3], element_dtype=float64), state]


def list_pushed_and_popped_in_two_loops(b: Builder, x: Any, y: Any) -> list[Any]:
    empty = b.TensorListPushBack(b.EmptyTensorList([3], -1, element_dtype=float64), x[0])

    def push(i: Any, state: Any, made: Any) -> tuple[Any, Any, Any]:
        state = state * y
        return i + 1, state, b.TensorListPushBack(made, state)

    def pop(i: Any, state: Any, made: Any) -> tuple[Any, Any, Any]:
        popped = b.TensorListPopBack(made, [3], element_dtype=float64)
        return i - 1, state * popped.tensor, popped.output_handle

    n, _, made = b.while_loop(lambda i, state, made: i < 3, push, (0, y, empty))
    _, state, made = b.while_loop(lambda i, state, made: i > 0, pop, (n - 1, y, made))
    return [state, b.TensorListStack(made, [3], element_dtype=float64)]


def list_changed_now_and_then(b: Builder, x: Any, y: Any) -> list[Any]:
    rows = b.TensorListFromTensor(x, [3])

    def body(i: Any, made: Any) -> tuple[Any, Any]:
        def change() -> Any:
            row = b.TensorListGetItem(made, i, [3], element_dtype=float64)
            return b.TensorListSetItem(made, i + 1, row * y)

        return i + 1, b.cond(b.Equal(i % 2, 0), change, lambda: made)

    _, made = b.while_loop(lambda i, made: i < 3, body, (0, rows))
    return [b.TensorListStack(made, [3], element_dtype=float64)]


LOOPS = [
    rows_read_and_written_in_turn,
    element_written_by_the_iteration_before,
    list_filled_and_read_by_index,
    list_pushed_and_popped_in_two_loops,
    list_changed_now_and_then,
]
