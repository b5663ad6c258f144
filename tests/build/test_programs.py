"""Random structured programs, written with the Builder, compute what Python does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cfgraph import Builder
from tests.build.execution import run_builder, run_with_tensorflow
from tests.passes.random_programs import ProgramAuthor
from tests.passes.structured_programs import (
    MEMORY_START,
    Binary,
    Block,
    Call,
    Choice,
    Constant,
    Copy,
    Counted,
    Half,
    Loop,
    Memory,
    Read,
    Write,
)
from tests.sampled import sampled

STEP = 10


class BuilderInterpreter:
    """Writes the steps of a program with a Builder."""

    def __init__(self, builder: Builder, memory: Any) -> None:
        self.b, self.memory = builder, memory

    def block(self, block: Block, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Write a block; the tensors that it returns."""
        env = list(inputs)
        for step in block.steps:
            made = self.step(step, env)
            # an operation where there are only effects
            env += made if isinstance(made, tuple) else []
        return tuple(self.b.Identity(env[place]) for place in block.returns)

    def step(self, step: Any, env: list[Any]) -> Any:
        b = self.b
        match step:
            case Constant(value):
                return (b.const(value, "int32"),)
            case Binary(op, left, right):
                return (b.call(op, [env[left], env[right]], {}),)
            case Half(place):
                return (b.Cast(b.Floor(b.Cast(env[place], DstT="float64") * 0.6), DstT="int32"),)
            case Copy(place):
                return (b.Identity(env[place]),)
            case Read():
                return (self.memory.read(),)
            case Write(place):
                self.memory.assign(self.memory.read() * 3 + env[place])
                return ()
        inputs = [env[place] for place in step.arguments]
        match step:
            case Choice():
                return self.choice(step, env[step.selector], inputs)
            case Call(block=block):
                return b.function(lambda *values: self.block(block, values))(*inputs)
            case Loop():
                return self.loop(step, inputs)
        return self.counted(step, inputs)

    def choice(self, step: Choice, selector: Any, inputs: list[Any]) -> Any:
        writers = [lambda block=block: self.block(block, inputs) for block in step.branches]
        if step.is_case:
            return self.b.case(selector, writers)
        return self.b.cond(self.b.NotEqual(selector, 0), writers[1], writers[0])

    def loop(self, step: Loop, inputs: list[Any]) -> Any:
        def is_going(*state: Any) -> Any:
            test = state[0] < state[1]
            return test & (state[2] >= 0) if step.is_tested else test

        def body(*state: Any) -> tuple[Any, ...]:
            return (state[0] + 1, state[1], *self.block(step.body, state))

        start = [self.b.const(0), self.b.const(step.limit), *inputs]
        return tuple(self.b.while_loop(is_going, body, start, parallel_iterations=step.parallel))

    def counted(self, step: Counted, inputs: list[Any]) -> Any:
        numbers = step.range

        def is_going(index: Any, *state: Any) -> Any:
            return index < numbers.stop if numbers.step > 0 else index > numbers.stop

        def body(index: Any, *state: Any) -> tuple[Any, ...]:
            return (index + numbers.step, *self.block(step.body, (index, *state)))

        start = [self.b.const(numbers.start), *inputs]
        return tuple(self.b.while_loop(is_going, body, start)[1:])


class QuietAuthor(ProgramAuthor):
    """Draws blocks whose loops have conditions without effects, which a Builder does not order."""

    def functional_node(self, *arguments: Any) -> tuple[Any, int]:
        step, added = super().functional_node(*arguments)
        if isinstance(step, Loop):
            step.condition = Block(step.condition.inputs, [])
        return step, added


def drawn(seed: int) -> tuple[Builder, list[Any], dict[str, int], list[int]]:
    """A program in a function, so that its effects stay in order; its inputs and its values."""
    author = QuietAuthor(seed, ("half", "test"))
    block = author.block(2, author.draw.randint(1, 4), 3)
    feeds = {name: author.draw.randint(-2, 3) for name in ("x0", "x1")}
    memory, b = Memory(), Builder()
    with np.errstate(all="ignore"):
        values = block.run([np.int32(value) for value in feeds.values()], memory)
    total = b.variable(MEMORY_START, "int32", name="total")

    @b.function
    def program(*inputs: Any) -> tuple[Any, ...]:
        return (*BuilderInterpreter(b, total).block(block, inputs), total.read())

    fetches = program(*(b.placeholder(name, "int32", []) for name in feeds))
    return b, list(fetches), feeds, [int(value) for value in (*values, memory.value)]


@pytest.mark.parametrize("first", sampled(range(0, 400, STEP), 8))
def test_a_written_program_does_what_it_says_under_every_schedule(first: int) -> None:
    for seed in range(first, first + STEP):
        b, fetches, feeds, expected = drawn(seed)
        before = [b.initializer()]
        assert run_builder(b, fetches, feeds, before) == expected, seed
        options = {"schedule": "random", "schedule_seed": seed}
        assert run_builder(b, fetches, feeds, before, **options) == expected, seed


@pytest.mark.interop
@pytest.mark.parametrize("first", sampled(range(400, 460, STEP), 3))
def test_tensorflow_agrees(first: int) -> None:
    for seed in range(first, first + STEP):
        b, fetches, feeds, expected = drawn(seed)
        assert run_with_tensorflow(b, fetches, feeds, [b.initializer()]) == expected, seed
