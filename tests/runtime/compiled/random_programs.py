"""Random structured programs, each from a seed of its own."""

from __future__ import annotations

import random
from typing import Any

from tests.build.programs import (
    COMPARISONS,
    FLOATS,
    INTEGERS,
    OPERATORS,
    Add,
    Arithmetic,
    Assign,
    Branch,
    Choose,
    Read,
    Repeat,
    Test,
)

_FLOAT_CONSTANTS = (-1.5, 0.0, 0.25, 2.0)


class RandomProgram:
    """Writes blocks of statements, nested at most `depth` deep."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.left = self.random.choice((4, 8, 16, 32))

    def block(self, depth: int, most: int = 3) -> tuple[Any, ...]:
        return tuple(self.statement(depth) for _ in range(self.random.randint(0, most)))

    def statement(self, depth: int) -> Any:
        self.left -= 1
        choose = self.random.choice
        if depth and self.left > 0 and self.random.random() < 0.6:
            form = choose((Branch, Branch, Repeat, Repeat, Choose))
            if form is Branch:
                return Branch(self.test(), self.block(depth - 1), self.block(depth - 1))
            if form is Repeat:
                return Repeat(self.random.randint(0, 3), self.test(), self.block(depth - 1))
            blocks = tuple(self.block(depth - 1, 2) for _ in range(self.random.randint(1, 3)))
            return Choose(self.expression(True), blocks)
        if self.random.random() < 0.2:
            return Add(self.expression(True), choose(INTEGERS))
        integer = self.random.random() < 0.5
        return Assign(choose(INTEGERS if integer else FLOATS), self.expression(integer))

    def expression(self, integer: bool) -> Any:
        choose = self.random.choice
        name = Read(choose(INTEGERS if integer else FLOATS))
        if self.random.random() < 0.4:
            return name
        constants = range(-5, 6) if integer else _FLOAT_CONSTANTS
        right = Read(choose(INTEGERS if integer else FLOATS))
        if self.random.random() < 0.5:
            right = choose(constants)
        return Arithmetic(choose(list(OPERATORS)), name, right, integer)

    def test(self) -> Test:
        integer = self.random.random() < 0.5
        left, right = self.expression(integer), self.expression(integer)
        return Test(self.random.choice(list(COMPARISONS)), left, right, self.random.random() < 0.5)


def random_program(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A program, and the values that it starts from."""
    source = RandomProgram(seed)
    program = source.block(source.random.randint(1, 5), 4)
    start: dict[str, Any] = {name: source.random.randint(0, 9) for name in INTEGERS}
    start |= {name: source.random.choice((-2.0, 0.0, 0.5, 3.0)) for name in FLOATS}
    return program, start
