"""Random programs on tensor lists that grow, shrink, branch, and loop, many with errors."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

import cfgraph
from cfgraph.ir.graph import Output

_CAPACITY = 5
_STATE = [[], [], [2]]


class ListProgram(NamedTuple):
    """A serialized graph, the tensors to fetch, and values of its inputs."""

    data: bytes
    fetches: tuple[str, ...]
    feeds: dict[str, Any]


class ListProgramAuthor:
    """Draws operations on one list, whose state is the list and a total."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.b = cfgraph.Builder()
        self.n = self.b.placeholder("n", "int32", [])
        self.p = self.b.placeholder("p", "bool", [])
        self.x = self.b.placeholder("x", "float32", [2])
        self.shape = self.draw.choice([[2], [-1], -1, -1])

    def program(self) -> ListProgram:
        """Draw a program: a list, one or two loops, and what is read at the end."""
        b, draw = self.b, self.draw
        tensor_list, total = self.new_list(), b.const([0.0, 0.0])
        for _ in range(draw.choice([1, 1, 2])):
            tensor_list, total = self.loop(tensor_list, total)
        for index, kind in enumerate(draw.sample([*self.READS, "stack"], 3)):
            b.Identity(self.read(kind, tensor_list, total), name=f"y{index}")
        feeds = {
            "n": np.int32(draw.choice([0, 1, 3, 4])),
            "p": np.bool_(draw.random() < 0.5),
            "x": np.array([1.5, -2], np.float32),
        }
        return ListProgram(cfgraph.dumps(b.graph), ("y0", "y1", "y2"), feeds)

    def new_list(self) -> Output:
        """Draw a list: empty, reserved, or of a tensor."""
        b, draw = self.b, self.draw
        capacity = draw.randrange(_CAPACITY)
        kind = draw.choice(["empty", "reserve", "of", "of n"])
        shape = b.const(np.array(self.shape, np.int32))
        if kind == "empty":
            most = b.const(draw.choice([-1, capacity + 1, 6, 6]))
            return b.EmptyTensorList(shape, most, element_dtype="float32")
        if kind == "of":
            rows = np.arange(capacity * 2, dtype=np.float32).reshape(capacity, 2) + 1
            return b.TensorListFromTensor(b.const(rows), shape)
        count = self.n if kind == "of n" else b.const(capacity)
        return b.TensorListReserve(shape, count, element_dtype="float32")

    def loop(self, tensor_list: Output, total: Output) -> tuple[Output, Output]:
        """Draw a loop of one or two operations."""
        b, draw = self.b, self.draw
        limit, count = draw.choice([self.n, self.n, b.const(3)]), draw.choice([1, 1, 2])
        is_bounded = draw.random() < 0.15

        def body(i: Output, *state: Output) -> tuple[Output, ...]:
            for _ in range(count):
                state = self.operation(i, state[0], state[1], 0)
            return (i + 1, *state)

        def cond(i: Output, tensor_list: Output, total: Output) -> Output:
            going = i < limit
            if not is_bounded:
                return going
            first = b.TensorListGetItem(
                tensor_list, b.const(0), self.shape_input(), element_dtype="float32"
            )
            return b.LogicalAnd(going, b.Sum(first, [0]) < 100.0)

        start = [b.const(0), tensor_list, total]
        _, *after = b.while_loop(cond, body, start, shape_invariants=_STATE)
        return after[0], after[1]

    OPERATIONS = (
        *("push", "put", "put", "extend", "get", "get", "get", "pop"),
        *("branch", "length", "length", "repeat", "resize"),
    )
    INNER = ("push", "put", "put", "get", "pop")

    def operation(
        self, i: Output, tensor_list: Output, total: Output, depth: int
    ) -> tuple[Output, Output]:
        """Draw an operation on the list in iteration `i`."""
        b, draw = self.b, self.draw
        match draw.choice(self.OPERATIONS if depth < 2 else self.INNER):
            case "push":
                return b.TensorListPushBack(tensor_list, self.row(i, total)), total
            case "put":
                index = self.index(i, tensor_list)
                return b.TensorListSetItem(tensor_list, index, self.row(i, total)), total
            case "extend":
                index, row = self.index(i, tensor_list), self.row(i, total)
                resize: dict[str, Any] = {"resize_if_index_out_of_bounds": True}
                return b.TensorListSetItem(tensor_list, index, row, **resize), total
            case "get":
                index = self.index(i, tensor_list)
                element = self.read_element(tensor_list, index)
                return tensor_list, total + b.Reshape(element, [2])
            case "pop":
                shorter, element = b.TensorListPopBack(
                    tensor_list, self.shape_input(), element_dtype="float32"
                )
                return shorter, total + b.Reshape(element, [2])
            case "length":
                length = b.Cast(b.TensorListLength(tensor_list), DstT="float32")
                return tensor_list, total + length
            case "resize":
                size = b.TensorListLength(tensor_list) + draw.choice([0, 1])
                return b.TensorListResize(tensor_list, size), total
            case "branch":
                pred = b.LogicalOr(self.p, i < 1) if draw.random() < 0.5 else self.p
                stays = draw.random() < 0.5
                return b.cond(
                    pred,
                    lambda: self.operation(i, tensor_list, total, depth + 1),
                    lambda: (
                        (tensor_list, total)
                        if stays
                        else self.operation(i, tensor_list, total, depth + 1)
                    ),
                )
            case _:
                _, *after = b.while_loop(
                    lambda j, *state: j < 2,
                    lambda j, *state: (j + 1, *self.operation(j, *state, depth + 1)),
                    [b.const(0), tensor_list, total],
                    shape_invariants=_STATE,
                )
                return after[0], after[1]

    READS = ("stack", "gather", "concat", "get", "length", "total")

    def read(self, kind: str, tensor_list: Output, total: Output) -> Output:
        """Read the final list, or the total."""
        b, draw = self.b, self.draw
        dtype: dict[str, Any] = {"element_dtype": "float32"}
        match kind:
            case "stack":
                return b.TensorListStack(tensor_list, self.shape_input(), **dtype)
            case "gather":
                indices = b.const(draw.choice([[0], [0, 1], [2, 0]]))
                return b.TensorListGather(tensor_list, indices, self.shape_input(), **dtype)
            case "concat":
                lengths = b.const(np.zeros(0, np.int64))
                return b.TensorListConcatV2(tensor_list, b.const([2]), lengths, **dtype)[0]
            case "get":
                return self.read_element(tensor_list, b.const(0))
            case "length":
                return b.TensorListLength(tensor_list)
        return total

    def read_element(self, tensor_list: Output, index: Output) -> Output:
        """Read an element by an index that may be out of range."""
        return self.b.TensorListGetItem(
            tensor_list, index, self.shape_input(), element_dtype="float32"
        )

    def shape_input(self) -> Output:
        """Draw the shape of elements, as far as a reader knows it."""
        return self.b.const(np.array(self.draw.choice([self.shape, [2], -1]), np.int32))

    def row(self, i: Output, total: Output) -> Output:
        """Draw an element."""
        rows = (lambda: self.x * self.b.Cast(i, DstT="float32"), lambda: total + self.x)
        return self.draw.choice((*rows, lambda: self.x))()

    def index(self, i: Output, tensor_list: Output) -> Output:
        """Draw an index."""
        constant = self.draw.randrange(3)
        indices = (
            lambda: i,
            lambda: i,
            lambda: i + 1,
            lambda: self.b.const(constant),
            lambda: self.b.TensorListLength(tensor_list) - 1,
        )
        return self.draw.choice(indices)()


def list_program(seed: int) -> ListProgram:
    """Return the program of a seed."""
    return ListProgramAuthor(seed).program()
