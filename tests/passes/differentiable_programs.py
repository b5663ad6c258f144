"""Random smooth programs with nested conditionals and loops, as graphs and in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import cfgraph

# a step maps an algebra and the values so far to one more value
Step = Callable[[Any, list[Any]], Any]
UNARY = ("sin", "tanh", "half")
BINARY = ("add", "sub", "mul")


class PythonAlgebra:
    """Python's own numbers and control flow."""

    def sin(self, x: float) -> float:
        return math.sin(x)

    def tanh(self, x: float) -> float:
        return math.tanh(x)

    def half(self, x: float) -> float:
        return 0.5 * x

    def add(self, x: float, y: float) -> float:
        return x + y

    def sub(self, x: float, y: float) -> float:
        return x - y

    def mul(self, x: float, y: float) -> float:
        return x * y

    def choose(self, flag: bool, first: Any, second: Any) -> float:
        return float(first() if flag else second())

    def loop(self, count: int, body: Any, start: list[float]) -> list[float]:
        values = start
        for step in range(count):
            values = body(step % 2 == 0, values)
        return values


class GraphAlgebra:
    """Nodes of a graph."""

    def __init__(self, builder: cfgraph.Builder, parallel: int) -> None:
        self.b = builder
        self.parallel = parallel

    def sin(self, x: Any) -> Any:
        return self.b.Sin(x)

    def tanh(self, x: Any) -> Any:
        return self.b.Tanh(x)

    def half(self, x: Any) -> Any:
        return self.b.Mul(x, self.b.const(0.5, "float64"))

    def add(self, x: Any, y: Any) -> Any:
        return self.b.AddV2(x, y)

    def sub(self, x: Any, y: Any) -> Any:
        return self.b.Sub(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        return self.b.Mul(x, y)

    def choose(self, flag: Any, first: Any, second: Any) -> Any:
        return self.b.cond(
            flag, lambda: self.b.Identity(first()), lambda: self.b.Identity(second())
        )

    def loop(self, count: Any, body: Any, start: list[Any]) -> list[Any]:
        b = self.b

        def once(step: Any, *values: Any) -> list[Any]:
            even = b.Equal(b.FloorMod(step, 2), 0)
            return [b.AddV2(step, 1), *body(even, list(values))]

        variables = [b.const(0), *start]
        results = b.while_loop(
            lambda step, *values: b.Less(step, count),
            once,
            variables,
            parallel_iterations=self.parallel,
        )
        return list(results[1:])


class SmoothProgramAuthor:
    """Draws random blocks. The first two values of a block are a flag and a trip count."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def block(self, depth: int, values: int) -> Callable[[Any, Any, Any, list[Any]], Any]:
        """Draw a block: a function of an algebra, a flag, a count, and values."""
        steps = []
        for _ in range(self.draw.randint(1, 4)):
            steps.append(self.step(depth, values))
            values += 1
        last = self.draw.randrange(values - 1, values) if values else 0

        def run(m: Any, flag: Any, count: Any, inputs: list[Any]) -> Any:
            known = list(inputs)
            for step in steps:
                known.append(step(m, flag, count, known))
            return known[last]

        return run

    def step(self, depth: int, values: int) -> Callable[[Any, Any, Any, list[Any]], Any]:
        """Draw a step."""
        draw = self.draw
        kind = draw.choice(["unary", "binary", "binary", *(["choose", "loop"] * (depth > 0))])
        a, b = draw.randrange(values), draw.randrange(values)
        if kind == "unary":
            op = draw.choice(UNARY)
            return lambda m, flag, count, known: getattr(m, op)(known[a])
        if kind == "binary":
            op = draw.choice(BINARY)
            return lambda m, flag, count, known: getattr(m, op)(known[a], known[b])
        if kind == "choose":
            first, second = self.block(depth - 1, values), self.block(depth - 1, values)
            return lambda m, flag, count, known: m.choose(
                flag,
                lambda: first(m, flag, count, known),
                lambda: second(m, flag, count, known),
            )
        return self.loop(depth, values, a, b)

    def loop(
        self, depth: int, values: int, a: int, b: int
    ) -> Callable[[Any, Any, Any, list[Any]], Any]:
        """Draw a loop over two variables, whose body also reads outer values."""
        first_body, second_body = (
            self.block(depth - 1, values + 2),
            self.block(depth - 1, values + 2),
        )
        out, swapped = self.draw.randrange(2), self.draw.random() < 0.3

        def run(m: Any, flag: Any, count: Any, known: list[Any]) -> Any:
            def body(even: Any, inner: list[Any]) -> list[Any]:
                inputs = [*known, *inner]
                made = [
                    m.tanh(first_body(m, even, count, inputs)),
                    m.tanh(second_body(m, flag, count, inputs)),
                ]
                return [inner[1], made[0]] if swapped else made

            return m.loop(count, body, [known[a], known[b]])[out]

        return run


class SmoothProgram:
    """A random program of two numbers x and w, a flag and a count."""

    def __init__(self, seed: int, depth: int = 2) -> None:
        author = SmoothProgramAuthor(seed)
        self.block = author.block(depth, 2)
        self.parallel = author.draw.choice([1, 2, 10])
        self.flag = author.draw.random() < 0.5
        self.count = author.draw.randint(0, 3)
        self.x, self.w = author.draw.uniform(-1, 1), author.draw.uniform(-1, 1)

    def value(self, x: float, w: float) -> float:
        """The output, computed in Python."""
        return float(self.block(PythonAlgebra(), self.flag, self.count, [x, w]))

    def graph(self) -> cfgraph.Graph:
        """The program as a graph: inputs x, w, flag and count, output y."""
        b = cfgraph.Builder()
        x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
        flag, count = b.placeholder("flag", "bool", []), b.placeholder("count", "int32", [])
        b.Identity(self.block(GraphAlgebra(b, self.parallel), flag, count, [x, w]), name="y")
        return b.graph

    @property
    def feeds(self) -> dict[str, Any]:
        """The values of the inputs."""
        return {"x:0": self.x, "w:0": self.w, "flag:0": self.flag, "count:0": self.count}

    def slope(self, argument: int, step: float = 1e-5) -> float:
        """The derivative with respect to an argument, by central differences of fourth order."""

        def at(offset: float) -> float:
            inputs = [self.x, self.w]
            inputs[argument] += offset
            return self.value(*inputs)

        near, far = at(step) - at(-step), at(2 * step) - at(-2 * step)
        return (8 * near - far) / (12 * step)
