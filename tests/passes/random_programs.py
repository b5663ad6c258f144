"""Random programs built from `structured_programs`, with their expected results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape
from cfgraph.runtime.session import Session
from tests.passes.structured_programs import (
    MEMORY_START,
    Binary,
    Block,
    BodyWriter,
    Call,
    Choice,
    Constant,
    Copy,
    Counted,
    Half,
    Loop,
    Memory,
    ProgramStep,
    Read,
    Write,
    placeholder,
)


class ProgramAuthor:
    """Draws random blocks; `extra` are kinds of steps that not every program has."""

    def __init__(self, seed: int, extra: tuple[str, ...] = ()) -> None:
        self.draw = random.Random(seed)
        self.extra = extra
        self.budget = self.draw.randint(4, 25)

    def block(self, inputs: int, depth: int, outputs: int, kept: int | None = None) -> Block:
        """Draw a block; some of its outputs are its inputs from `kept` on."""
        values, steps = inputs, list[ProgramStep]()
        for _ in range(self.draw.randint(0, 4)):
            step, added = self.step(values, depth)
            steps.append(step)
            values += added
        if outputs and not values:
            steps.append(Constant(1))
            values = 1
        returns = [self.draw.randrange(values) for _ in range(outputs)]
        for place in range(outputs):
            if kept is not None and self.draw.random() < 0.4:
                returns[place] = place + kept
        return Block(inputs, steps, returns, self.draw.random() < 0.6)

    def step(self, values: int, depth: int) -> tuple[ProgramStep, int]:
        """Draw a step; also the number of values that it adds."""
        draw, self.budget = self.draw, self.budget - 1
        kinds = ["read", "constant"]
        if values:
            kinds += ["binary", "binary", "same", "write", "write", *self.extra]
        if values and depth and self.budget > 0:
            kinds += ["choice", "choice", "choice", "call", "loop", "loop", "counted"]
        kind = draw.choice(kinds)
        if kind == "read":
            return Read(), 1
        if kind == "constant":
            return Constant(draw.randint(-3, 3)), 1
        if kind == "binary":
            left, right = draw.randrange(values), draw.randrange(values)
            return Binary(draw.choice(["AddV2", "Mul", "Sub"]), left, right), 1
        if kind == "divide":
            return Binary("FloorDiv", draw.randrange(values), draw.randrange(values)), 1
        if kind == "half":
            return Half(draw.randrange(values)), 1
        if kind == "same":
            return Copy(draw.randrange(values)), 1
        if kind == "write":
            return Write(draw.randrange(values)), 0
        arguments = [draw.randrange(values) for _ in range(draw.randint(0, 4))]
        return self.functional_node(kind, values, arguments, depth - 1)

    def functional_node(
        self, kind: str, values: int, arguments: list[int], depth: int
    ) -> tuple[ProgramStep, int]:
        """A step that runs blocks."""
        draw, count = self.draw, len(arguments)
        outputs = draw.randint(0, 3)
        if kind == "call":
            block = self.block(count, depth, outputs)
            return Call(arguments, block, draw.random() < 0.5), outputs
        if kind == "choice":
            is_case = draw.random() < 0.4
            number = draw.randint(1, 4) if is_case else 2
            branches = [self.block(count, depth, outputs) for _ in range(number)]
            return Choice(draw.randrange(values), arguments, branches, is_case), outputs
        if kind == "loop":
            condition = self.block(count + 2, depth if draw.random() < 0.3 else 0, 0)
            body = self.block(count + 2, depth, count, kept=2)
            limit, parallel = draw.randint(0, 3), draw.choice([1, 2, 10])
            is_tested = "test" in self.extra and count > 0
            return Loop(limit, arguments, condition, body, parallel, is_tested), count + 2
        start, step = draw.randint(-2, 2), draw.choice([1, 2, -1, -3])
        stop = start + step * draw.randint(0, 2)
        body = self.block(count + 1, depth, count, kept=1)
        numbers = range(start, stop, step)
        return Counted(numbers, draw.random() < 0.4, arguments, body), count


@dataclass
class RandomProgram:
    """A program with two inputs: its graph, and its expected results."""

    graph: Graph
    feeds: dict[str, Any]
    fetches: list[str]
    targets: list[str]
    expected: list[int]
    memory: int

    def difference(self, **options: Any) -> str:
        """The difference of a session on the graph from the program in Python, or ``."""
        with Session(self.graph, **options) as session:
            session.run(targets=["init"])
            values = session.run(self.fetches, self.feeds, self.targets, timeout=60)
            found = [*map(int, values), int(session.run(["memory:0"])[0])]
        expected = [*self.expected, self.memory]
        return "" if found == expected else f"{found}, expected {expected}"


def random_program(seed: int, *extra: str) -> RandomProgram:
    """A random program. `init` sets the variable, `memory:0` reads it."""
    author = ProgramAuthor(seed, extra)
    return _built_program(author.block(2, author.draw.randint(1, 4), 0), author.draw)


def random_loop_program(seed: int) -> RandomProgram:
    """A random program that is one loop: several iterations change the variable."""
    author = ProgramAuthor(seed)
    draw = author.draw
    condition = author.block(4, 0, 0)
    body = author.block(4, draw.randint(0, 2), 2, kept=2)
    # the index makes each write another one
    body.steps.insert(0, Write(0))
    if draw.random() < 0.5:
        body.steps.append(Write(draw.randrange(4)))
    loop = Loop(draw.randint(2, 5), [0, 1], condition, body, draw.choice([1, 2, 10]))
    return _built_program(Block(2, [loop]), draw)


def _built_program(block: Block, draw: random.Random) -> RandomProgram:
    inputs = [np.int32(draw.randint(-2, 3)) for _ in range(2)]
    graph = Graph()
    shape = Shape([])
    handle = graph.add("VarHandleOp", name="v", dtype=int32, shape=shape, shared_name=b"v").output()
    body = BodyWriter(graph, handle, graph)
    start = body.constant(MEMORY_START)
    graph.add("AssignVariableOp", handle, start, name="init", dtype=int32)
    graph.add("ReadVariableOp", handle, name="memory", dtype=int32)
    tensors = [placeholder(graph, f"x{i}", int32) for i in range(2)]
    values, memory = list(inputs), Memory()
    with np.errstate(all="ignore"):
        for step in block.steps:
            values += step.run(values, memory)
            tensors += step.build(body, tensors)
    return RandomProgram(
        graph,
        {"x0:0": inputs[0], "x1:0": inputs[1]},
        [item.name for item in tensors],
        [body.last.name] if body.last is not None else [],
        [int(value) for value in values],
        int(memory.value),
    )


def random_programs(seeds: range) -> Iterator[tuple[int, RandomProgram]]:
    """The programs of some seeds."""
    return ((seed, random_program(seed)) for seed in seeds)
