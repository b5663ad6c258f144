"""Random smooth programs with nested conditionals and loops, as graphs and in plain Python.

In Python a number carries its derivatives of both orders.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import cfgraph

# a step maps an algebra and the values so far to one more value
Step = Callable[[Any, list[Any]], Any]
UNARY = ("sin", "tanh", "half")
BINARY = ("add", "sub", "mul")


class Jet:
    """A number with its gradient and Hessian with respect to the inputs."""

    def __init__(self, value: float, first: Any, second: Any) -> None:
        self.value, self.first, self.second = value, first, second

    def through(self, value: float, slope: float, bend: float) -> Jet:
        """A smooth function of the number, by its derivatives at it."""
        outer = np.outer(self.first, self.first)
        return Jet(value, slope * self.first, slope * self.second + bend * outer)

    def __add__(self, other: Jet) -> Jet:
        first, second = self.first + other.first, self.second + other.second
        return Jet(self.value + other.value, first, second)

    def __mul__(self, other: Jet) -> Jet:
        cross = np.outer(self.first, other.first)
        return Jet(
            self.value * other.value,
            self.value * other.first + other.value * self.first,
            self.value * other.second + other.value * self.second + cross + cross.T,
        )


class JetAlgebra:
    """Python's control flow over numbers with derivatives."""

    def sin(self, x: Jet) -> Jet:
        return x.through(math.sin(x.value), math.cos(x.value), -math.sin(x.value))

    def tanh(self, x: Jet) -> Jet:
        y = math.tanh(x.value)
        return x.through(y, 1 - y * y, -2 * y * (1 - y * y))

    def half(self, x: Jet) -> Jet:
        return x.through(0.5 * x.value, 0.5, 0.0)

    def add(self, x: Jet, y: Jet) -> Jet:
        return x + y

    def sub(self, x: Jet, y: Jet) -> Jet:
        return x + y.through(-y.value, -1.0, 0.0)

    def mul(self, x: Jet, y: Jet) -> Jet:
        return x * y

    def choose(self, flag: bool, first: Any, second: Any) -> Any:
        return first() if flag else second()

    def loop(self, count: int, body: Any, start: list[Any]) -> list[Any]:
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
    """A random program of two numbers x and w, a flag, and a count."""

    XS: tuple[str, ...] = ("x:0", "w:0")
    COUNTS: tuple[int, ...] = (0, 1, 2, 3)
    author: type[SmoothProgramAuthor] = SmoothProgramAuthor
    algebra: type[GraphAlgebra] = GraphAlgebra
    python: type[JetAlgebra] = JetAlgebra

    def __init__(self, seed: int, depth: int = 2) -> None:
        author = self.author(seed)
        self.block = author.block(depth, len(self.XS))
        self.parallel = author.draw.choice([1, 2, 10])
        self.flag = author.draw.random() < 0.5
        self.count = author.draw.choice(self.COUNTS)
        self.point = [author.draw.uniform(-1, 1) for _ in self.XS]

    def expected(self) -> Jet:
        """The result with its exact derivatives."""
        size = len(self.XS)
        unit, zero = np.eye(size), np.zeros((size, size))
        inputs = [Jet(value, unit[index], zero) for index, value in enumerate(self.point)]
        result = self.block(self.python(), self.flag, self.count, inputs)
        assert isinstance(result, Jet)
        return result

    def graph(self) -> cfgraph.Graph:
        """The program as a graph: its inputs, flag, and count, output y."""
        b = cfgraph.Builder()
        inputs = [b.placeholder(name[0], "float64", []) for name in self.XS]
        flag, count = b.placeholder("flag", "bool", []), b.placeholder("count", "int32", [])
        result = self.block(self.algebra(b, self.parallel), flag, count, inputs)
        b.Identity(result, name="y")
        return cfgraph.loads(cfgraph.dumps(b.graph))

    @property
    def feeds(self) -> dict[str, Any]:
        """The values of the inputs."""
        numbers = dict(zip(self.XS, self.point, strict=True))
        return {**numbers, "flag:0": self.flag, "count:0": self.count}
