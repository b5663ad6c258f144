"""Random programs with StopGradient, TensorArrays, and TensorLists, and their exact Hessians.

StopGradient drops the derivatives that a number in Python carries: that is its meaning for
gradients of every order, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cfgraph
from tests.passes.differentiable_programs import (
    GraphAlgebra,
    Jet,
    JetAlgebra,
    SmoothProgram,
    SmoothProgramAuthor,
    Step,
)

# body of a loop: the state and an element, to the next state
Body = Callable[[Any, Any], Any]


class ContainerJetAlgebra(JetAlgebra):
    """Python's control flow and containers."""

    def stop(self, x: Jet) -> Jet:
        return x.through(x.value, 0.0, 0.0)

    def same(self, x: Jet) -> Jet:
        return x

    def less(self, x: Jet, y: Jet) -> bool:
        return x.value < y.value

    def collect(self, kind: str, count: int, body: Body, start: Jet, other: Jet) -> Jet:
        state, total = start, other
        for _ in range(count):
            state = body(state, other)
            total = total + state * state
        return total

    def elements(self, kind: str, count: int, body: Body, start: Jet, others: list[Jet]) -> Jet:
        state = start
        for index in range(min(count, len(others))):
            state = body(state, others[index])
        return state

    def history(self, kind: str, count: int, body: Body, start: Jet, other: Jet) -> Jet:
        rows, state = [start], other
        for index in range(count):
            state = body(state, rows[index])
            rows.append(state)
        return rows[-1] * rows[count // 2]

    def guarded(self, kind: str, count: int, body: Body, start: Jet, other: Jet) -> Jet:
        total = start
        for index in range(count):
            total = total + body(total, other) * (start if index % 2 == 0 else total)
        return total

    def nested(self, kind: str, count: int, body: Body, start: Jet, other: Jet) -> Jet:
        rows, state = [start], other
        for _ in range(count):
            for _ in range(2):
                state = body(state, rows[-1])
                rows.append(state)
        return rows[-1] * rows[count]

    def frozen(self, kind: str, count: int, body: Body, start: Jet, other: Jet) -> Jet:
        rows, state = list[Jet](), start
        for _ in range(count):
            state = body(state, other)
            rows.append(state)
        total = start
        for row in rows:
            total = body(total, self.stop(row)) * row
        return total

    def until(self, kind: str, count: int, body: Body, start: Jet, other: Jet) -> Jet:
        state, index = start, 0
        while index < 2 * count and state.value < 1.5:
            state, index = state * state + body(state, other), index + 1
        return state

    def reverse(self, kind: str, count: int, body: Body, start: Jet, other: Jet) -> Jet:
        rows, state = list[Jet](), start
        for _ in range(count):
            state = body(state, other)
            rows.append(state)
        for row in reversed(rows):
            state = body(state, row)
        return state


class ContainerAlgebra(GraphAlgebra):
    """Nodes of a graph, containers among them."""

    def stop(self, x: Any) -> Any:
        return self.b.StopGradient(x)

    def same(self, x: Any) -> Any:
        return self.b.Identity(x)

    def less(self, x: Any, y: Any) -> Any:
        return self.b.Less(x, y)

    def collect(self, kind: str, count: Any, body: Body, start: Any, other: Any) -> Any:
        box = self._new(kind, count)
        _, _, rows = self._times(
            count,
            lambda i, state, rows: self._written(box, i, body(state, other), rows),
            start,
            box,
        )
        return self.b.Sum(self.b.Square(box.stacked(rows, count)), [0]) + other

    def elements(self, kind: str, count: Any, body: Body, start: Any, others: list[Any]) -> Any:
        b, size = self.b, len(others)
        packed = b.Pack(others)
        box = self._new(kind, b.const(size))
        rows = box.unstacked(packed, size)
        limit = b.Minimum(count, b.const(size))
        results = b.while_loop(
            lambda i, state: b.Less(i, limit),
            lambda i, state: (b.AddV2(i, 1), body(state, box.read(rows, i))),
            [b.const(0), start],
            parallel_iterations=self.parallel,
        )
        return results[1]

    def history(self, kind: str, count: Any, body: Body, start: Any, other: Any) -> Any:
        b = self.b
        box = self._new(kind, b.AddV2(count, 1))
        box.rows = box.write(box.rows, b.const(0), start)

        def step(i: Any, state: Any, rows: Any) -> Any:
            after = body(state, box.read(rows, i))
            return after, box.write(rows, b.AddV2(i, 1), after)

        _, _, rows = self._times(count, step, other, box)
        middle = b.FloorDiv(count, b.const(2))
        return b.Mul(box.read(rows, count), box.read(rows, middle))

    def guarded(self, kind: str, count: Any, body: Body, start: Any, other: Any) -> Any:
        b = self.b
        box = self._new(kind, count)

        def step(i: Any, total: Any, rows: Any) -> Any:
            value = body(total, other)
            even = b.Equal(b.FloorMod(i, 2), 0)
            rows = b.cond(
                even,
                lambda: box.write(rows, i, b.Mul(value, start)),
                lambda: box.write(rows, i, b.Mul(value, total)),
            )
            return b.AddV2(total, box.read(rows, i)), rows

        return self._times(count, step, start, box)[1]

    def nested(self, kind: str, count: Any, body: Body, start: Any, other: Any) -> Any:
        b = self.b
        box = self._new(kind, b.AddV2(b.Mul(count, 2), 1))
        box.rows = box.write(box.rows, b.const(0), start)

        def step(i: Any, state: Any, rows: Any) -> Any:
            def inner(j: Any, state: Any, rows: Any) -> Any:
                index = b.AddV2(b.Mul(i, 2), j)
                after = body(state, box.read(rows, index))
                return b.AddV2(j, 1), after, box.write(rows, b.AddV2(index, 1), after)

            results = b.while_loop(
                lambda j, *state: b.Less(j, 2),
                inner,
                [b.const(0), state, rows],
                parallel_iterations=self.parallel,
            )
            return results[1], results[2]

        _, _, rows = self._times(count, step, other, box)
        return b.Mul(box.read(rows, b.Mul(count, 2)), box.read(rows, count))

    def frozen(self, kind: str, count: Any, body: Body, start: Any, other: Any) -> Any:
        b = self.b
        box = self._new(kind, count)
        _, _, rows = self._times(
            count, lambda i, s, rows: self._written(box, i, body(s, other), rows), start, box
        )
        stopped = b.StopGradient(rows)
        results = b.while_loop(
            lambda i, total: b.Less(i, count),
            lambda i, total: (
                b.AddV2(i, 1),
                b.Mul(body(total, box.read(stopped, i)), box.read(rows, i)),
            ),
            [b.const(0), start],
            parallel_iterations=self.parallel,
        )
        return results[1]

    def until(self, kind: str, count: Any, body: Body, start: Any, other: Any) -> Any:
        b = self.b
        results = b.while_loop(
            lambda i, s: b.LogicalAnd(b.Less(i, b.Mul(count, 2)), b.Less(s, 1.5)),
            lambda i, s: (b.AddV2(i, 1), b.AddV2(b.Mul(s, s), body(s, other))),
            [b.const(0), start],
            parallel_iterations=self.parallel,
        )
        return results[1]

    def reverse(self, kind: str, count: Any, body: Body, start: Any, other: Any) -> Any:
        b = self.b
        if kind == "array":
            box = self._new(kind, count)
            _, state, rows = self._times(
                count, lambda i, s, rows: self._written(box, i, body(s, other), rows), start, box
            )
            results = b.while_loop(
                lambda i, s: b.GreaterEqual(i, 0),
                lambda i, s: (b.Sub(i, 1), body(s, box.read(rows, i))),
                [b.Sub(count, 1), state],
                parallel_iterations=self.parallel,
            )
            return results[1]
        most = b.const(-1) if kind == "list" else count
        empty = b.EmptyTensorList(b.const([], "int32"), most, element_dtype="float64")

        def push(i: Any, state: Any, rows: Any) -> Any:
            after = body(state, other)
            return b.AddV2(i, 1), after, b.TensorListPushBack(rows, after)

        def pop(i: Any, state: Any, rows: Any) -> Any:
            rows, row = b.TensorListPopBack(rows, b.const([], "int32"), element_dtype="float64")
            return b.AddV2(i, 1), body(state, row), rows

        values = [b.const(0), start, empty]
        for body_of in (push, pop):
            values = [b.const(0), *values[1:]]
            values = b.while_loop(
                lambda i, *state: b.Less(i, count),
                body_of,
                values,
                parallel_iterations=self.parallel,
            )
        return values[1]

    def _new(self, kind: str, count: Any) -> Any:
        return (ArrayBox if kind == "array" else ListBox)(self.b, count)

    def _written(self, box: Any, i: Any, value: Any, rows: Any) -> Any:
        return value, box.write(rows, i, value)

    def _times(self, count: Any, step: Any, start: Any, box: Any) -> Any:
        b = self.b
        return b.while_loop(
            lambda i, *state: b.Less(i, count),
            lambda i, *state: (b.AddV2(i, 1), *step(i, *state)),
            [b.const(0), start, box.rows],
            parallel_iterations=self.parallel,
        )


class ArrayBox:
    """A TensorArray; `rows` is its flow."""

    def __init__(self, b: cfgraph.Builder, count: Any) -> None:
        self.b = b
        self.handle, self.rows = b.TensorArrayV3(
            count, dtype="float64", element_shape=[], clear_after_read=False
        )

    def write(self, rows: Any, index: Any, value: Any) -> Any:
        return self.b.TensorArrayWriteV3(self.handle, index, value, rows)

    def read(self, rows: Any, index: Any) -> Any:
        element = self.b.TensorArrayReadV3(self.handle, index, rows, dtype="float64")
        return self.b.EnsureShape(element, shape=[])

    def unstacked(self, packed: Any, size: int) -> Any:
        indices = self.b.Range(0, size, 1)
        return self.b.TensorArrayScatterV3(self.handle, indices, packed, self.rows)

    def stacked(self, rows: Any, count: Any) -> Any:
        return self.b.TensorArrayGatherV3(
            self.handle, self.b.Range(0, count, 1), rows, dtype="float64", element_shape=[]
        )


class ListBox:
    """A TensorList."""

    def __init__(self, b: cfgraph.Builder, count: Any) -> None:
        self.b = b
        self.shape = b.const([], "int32")
        self.rows = b.TensorListReserve(self.shape, count, element_dtype="float64")

    def write(self, rows: Any, index: Any, value: Any) -> Any:
        return self.b.TensorListSetItem(rows, index, value)

    def read(self, rows: Any, index: Any) -> Any:
        return self.b.TensorListGetItem(rows, index, self.shape, element_dtype="float64")

    def unstacked(self, packed: Any, size: int) -> Any:
        return self.b.TensorListFromTensor(packed, self.shape)

    def stacked(self, rows: Any, count: Any) -> Any:
        return self.b.TensorListStack(rows, self.shape, element_dtype="float64")


class StoppedProgramAuthor(SmoothProgramAuthor):
    """Draws blocks in which gradients stop, and loops over containers."""

    PLAIN = ("stop", "same", "stop")
    CONTAINERS = (
        *("collect", "history", "reverse", "elements"),
        *("guarded", "nested", "frozen", "until"),
    )

    def step(self, depth: int, values: int) -> Step:
        draw = self.draw
        if draw.random() < 0.5:
            return super().step(depth, values)
        a, b = draw.randrange(values), draw.randrange(values)
        name = draw.choice((*self.PLAIN, *(("branch", *self.CONTAINERS) if depth else ())))
        if name in self.PLAIN:
            return lambda m, flag, count, known: getattr(m, name)(known[a])
        if name == "branch":
            first, second = self.block(depth - 1, values), self.block(depth - 1, values)
            return lambda m, flag, count, known: m.choose(
                m.less(known[a], known[b]),
                lambda: first(m, flag, count, known),
                lambda: second(m, flag, count, known),
            )
        return self._container(name, depth, values, a, b)

    def _container(self, name: str, depth: int, values: int, a: int, b: int) -> Step:
        inner = self.block(depth - 1, values + 2)
        kind = self.draw.choice(["array", "list", "bounded list"])
        others = [self.draw.randrange(values) for _ in range(2)]

        def run(m: Any, flag: Any, count: Any, known: list[Any]) -> Any:
            def body(state: Any, element: Any) -> Any:
                return m.tanh(inner(m, flag, count, [*known, state, element]))

            other = [known[o] for o in others] if name == "elements" else known[b]
            return getattr(m, name)(kind, count, body, known[a], other)

        return run


class StoppedProgram(SmoothProgram):
    """A random program of three numbers, a flag, and a count."""

    XS = ("x:0", "w:0", "v:0")
    COUNTS = (0, 1, 2, 3, 3)
    author = StoppedProgramAuthor
    algebra = ContainerAlgebra
    python = ContainerJetAlgebra
