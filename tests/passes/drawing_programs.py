"""Random structured programs that draw random numbers, in functional form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import DType, float32, int32
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.shapes import Shape
from tests.passes.random_programs import ProgramAuthor
from tests.passes.structured_programs import (
    Block,
    BodyWriter,
    Call,
    Memory,
    ProgramStep,
    Write,
    placeholder,
)

SAMPLERS = (
    "Multinomial",
    "NonDeterministicInts",
    "RandomGamma",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
)


class _Unpredicted(ProgramStep):
    """A step whose values no calculation in Python predicts."""

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        raise NotImplementedError


@dataclass
class Draw(_Unpredicted):
    """A random number, which also changes the variable if it is `written`."""

    op: str
    seeds: tuple[int, int]
    written: bool = False

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        drawn = random_number(body.graph, self.op, self.seeds)
        if self.written:
            Write(0).build(body, [drawn])
        return [drawn]


@dataclass
class Twice(_Unpredicted):
    """Two calls of one function."""

    call: Call

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        first = self.call.build(body, env)
        block = _KnownBlock(**vars(self.call.block))
        block.name = f"f{len(body.library.functions) - 1}"
        return [*first, *Call(self.call.arguments, block, self.call.by_name).build(body, env)]


class _KnownBlock(Block):
    """A block whose function is in the library."""

    name = ""

    def function(self, library: Graph, form: str = "call") -> Func:
        return Func(self.name)


def random_number(graph: Graph, op: str, seeds: tuple[int, int]) -> Output:
    """A random int32, of which two are rarely equal."""
    none, one = _constant(graph, [], int32), _constant(graph, 1, int32)
    inputs: dict[str, tuple[Output, ...]] = {
        "Multinomial": (_constant(graph, [[0] * 999], float32), one),
        "RandomGamma": (none, _constant(graph, 500, float32)),
        "RandomPoissonV2": (none, _constant(graph, 5000, float32)),
        "RandomShuffle": (_constant(graph, range(999), int32),),
        "RandomUniformInt": (none, one, _constant(graph, 999, int32)),
    }
    types: dict[str, dict[str, DType]] = {
        "Multinomial": {"output_dtype": int32},
        "NonDeterministicInts": {"dtype": int32, "shape_dtype": int32},
        "RandomGamma": {},
        "RandomShuffle": {},
        "RandomUniformInt": {"Tout": int32},
    }
    seeded = {} if op == "NonDeterministicInts" else {"seed": seeds[0], "seed2": seeds[1]}
    attrs = {**types.get(op, {"dtype": float32}), **seeded}
    drawn = graph.add(op, *inputs.get(op, (none,)), name=op, attrs=attrs).output()
    flat = graph.add("Reshape", drawn, _constant(graph, [-1], int32)).output()
    drawn = graph.add("GatherV2", flat, _constant(graph, 0, int32), _constant(graph, 0, int32))
    if flat.dtype is int32:
        return drawn.output()
    scaled = graph.add("Mul", drawn.output(), _constant(graph, 1000, float32))
    return graph.add("Cast", scaled.output(), DstT=int32).output()


def _constant(graph: Graph, value: Any, dtype: DType) -> Output:
    tensor = TensorValue(np.array(value, dtype.numpy))
    return graph.add("Const", name="c", dtype=dtype, value=tensor).output()


class DrawingAuthor(ProgramAuthor):
    """Draws random blocks, whose steps draw random numbers and call functions twice."""

    def step(self, values: int, depth: int) -> tuple[ProgramStep, int]:
        draw = self.draw
        if draw.random() < 0.4:
            seeds = draw.choice([(0, 0), (1, 2), (0, 3)])
            return Draw(draw.choice(SAMPLERS), seeds, draw.random() < 0.2), 1
        step, added = super().step(values, depth)
        return (Twice(step), 2 * added) if isinstance(step, Call) else (step, added)


@dataclass
class DrawingProgram:
    """A program with two inputs. `init` sets its variable, and `memory:0` reads it."""

    graph: Graph
    feeds: dict[str, Any]
    fetches: list[str]
    targets: list[str]


def drawing_program(seed: int) -> DrawingProgram:
    """A random program that draws at least one number."""
    author = DrawingAuthor(seed)
    block = author.block(2, author.draw.randint(1, 4), 0)
    graph = Graph()
    attrs = {"dtype": int32, "shape": Shape([]), "shared_name": b"v"}
    handle = graph.add("VarHandleOp", name="v", attrs=attrs).output()
    body = BodyWriter(graph, handle, graph)
    graph.add("AssignVariableOp", handle, body.constant(1), name="init", dtype=int32)
    graph.add("ReadVariableOp", handle, name="memory", dtype=int32)
    tensors = [placeholder(graph, f"x{number}", int32) for number in range(2)]
    for step in (*block.steps, Draw("RandomUniform", (1, 2))):
        tensors += step.build(body, tensors)
    feeds = {f"x{number}:0": np.int32(author.draw.randint(-2, 3)) for number in range(2)}
    targets = [] if body.last is None else [body.last.name]
    return DrawingProgram(graph, feeds, [tensor.name for tensor in tensors], targets)
