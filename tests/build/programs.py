"""Random structured programs with two interpreters: Python, and graphs of the Builder."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from cfgraph import Builder

PRIME = 1009
INTEGERS, FLOATS = ("i", "j"), ("x", "y")
NAMES = (*INTEGERS, *FLOATS)
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
COMPARISONS = {"<": operator.lt, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True)
class Read:
    """The value of a name."""

    name: str


@dataclass(frozen=True)
class Arithmetic:
    """An operator between expressions or numbers of one type."""

    operator: str
    left: Any
    right: Any
    integer: bool


@dataclass(frozen=True)
class Test:
    """A comparison, or its negation."""

    comparison: str
    left: Any
    right: Any
    negated: bool


@dataclass(frozen=True)
class Assign:
    """Assign a value to a name."""

    name: str
    value: Any


@dataclass(frozen=True)
class Add:
    """Add to the variable that outlives the run, and assign its value to a name."""

    value: Any
    into: str


@dataclass(frozen=True)
class Branch:
    """One of two blocks."""

    test: Test
    then: tuple[Any, ...]
    other: tuple[Any, ...]


@dataclass(frozen=True)
class Choose:
    """One of several blocks, by the value of an integer."""

    index: Any
    blocks: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Repeat:
    """Repeat a block while a test is true."""

    times: int
    test: Test
    block: tuple[Any, ...]


def expressions(integer: bool) -> st.SearchStrategy[Any]:
    """Expressions of one type."""
    names = st.sampled_from(INTEGERS if integer else FLOATS).map(Read)
    constants = st.integers(-5, 5) if integer else st.sampled_from([-1.5, 0.0, 0.25, 2.0])
    parts = st.one_of(names, constants)
    return st.one_of(
        names,
        st.builds(Arithmetic, st.sampled_from(list(OPERATORS)), names, parts, st.just(integer)),
    )


def tests() -> st.SearchStrategy[Test]:
    """Comparisons of either type."""
    comparisons = st.sampled_from(list(COMPARISONS))
    return st.booleans().flatmap(
        lambda integer: st.builds(
            Test, comparisons, expressions(integer), expressions(integer), st.booleans()
        )
    )


def assignments() -> st.SearchStrategy[Assign]:
    """Assignments to any name."""
    return st.one_of(
        st.builds(Assign, st.sampled_from(INTEGERS), expressions(True)),
        st.builds(Assign, st.sampled_from(FLOATS), expressions(False)),
    )


def blocks(inner: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """A sequence of statements, possibly empty."""
    return st.lists(inner, max_size=most).map(tuple)


def several(block: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """The branches of a choice."""
    return st.lists(block, min_size=1, max_size=3).map(tuple)


def programs() -> st.SearchStrategy[tuple[Any, ...]]:
    """Nested conditionals and loops around assignments."""
    simple = st.one_of(assignments(), st.builds(Add, expressions(True), st.sampled_from(INTEGERS)))
    statements = st.recursive(
        simple,
        lambda inner: st.one_of(
            st.builds(Branch, tests(), blocks(inner), blocks(inner)),
            st.builds(Repeat, st.integers(0, 3), tests(), blocks(inner)),
            st.builds(
                Choose,
                expressions(True),
                st.lists(blocks(inner, 2), min_size=1, max_size=3).map(tuple),
            ),
        ),
        max_leaves=10,
    )
    return blocks(statements, 4)


def assigned(block: tuple[Any, ...]) -> list[str]:
    """The names that a block may change, in a fixed order."""
    result = set(_assigned(block))
    return [name for name in NAMES if name in result]


def _assigned(block: tuple[Any, ...]) -> Iterator[str]:
    for statement in block:
        match statement:
            case Assign(name):
                yield name
            case Add(_, into):
                yield into
            case Branch(_, then, other):
                yield from _assigned((*then, *other))
            case Choose(_, inner):
                yield from (name for value in inner for name in _assigned(value))
            case Repeat(_, _, inner):
                yield from _assigned(inner)


def evaluated(expression: Any, env: dict[str, Any]) -> Any:
    """Evaluate an expression over numbers or tensors, which have the same operators."""
    match expression:
        case Read(name):
            return env[name]
        case Arithmetic(sign, left, right, integer):
            value = OPERATORS[sign](evaluated(left, env), evaluated(right, env))
            return value % PRIME if integer else value
        case Test(comparison, left, right, _):
            return COMPARISONS[comparison](evaluated(left, env), evaluated(right, env))
    return expression


class PythonInterpreter:
    """Runs a program in Python."""

    def __init__(self, start: dict[str, Any], total: int) -> None:
        self.env, self.total = dict(start), total

    def run(self, block: tuple[Any, ...]) -> None:
        for statement in block:
            self.step(statement)

    def holds(self, test: Test) -> bool:
        return bool(evaluated(test, self.env)) != test.negated

    def step(self, statement: Any) -> None:
        match statement:
            case Assign(name, value):
                self.env[name] = evaluated(value, self.env)
            case Add(value, into):
                self.total += evaluated(value, self.env)
                self.env[into] = self.total % PRIME
            case Branch(test, then, other):
                self.run(then if self.holds(test) else other)
            case Choose(index, inner):
                place = evaluated(index, self.env)
                self.run(inner[place if 0 <= place < len(inner) else -1])
            case Repeat(times, test, inner):
                done = 0
                while done < times and self.holds(test):
                    self.run(inner)
                    done += 1


class BuilderInterpreter:
    """Builds a program with the Builder."""

    def __init__(self, builder: Builder, total: Any) -> None:
        self.builder, self.total = builder, total

    def run(self, block: tuple[Any, ...], env: dict[str, Any]) -> dict[str, Any]:
        """Build a block; returns the names after it."""
        env = dict(env)
        for statement in block:
            self.step(statement, env)
        return env

    def block(self, block: tuple[Any, ...], env: dict[str, Any], names: list[str]) -> Any:
        """A function that builds a block and returns some of the names."""

        def write() -> dict[str, Any]:
            after = self.run(block, env)
            return {name: after[name] for name in names}

        return write

    def holds(self, test: Test, env: dict[str, Any]) -> Any:
        value = evaluated(test, env)
        return ~value if test.negated else value

    def step(self, statement: Any, env: dict[str, Any]) -> None:
        b = self.builder
        match statement:
            case Assign(name, value):
                env[name] = evaluated(value, env)
            case Add(value, into):
                self.total.assign_add(evaluated(value, env))
                env[into] = self.total % PRIME
            case Branch(test, then, other):
                names = assigned((*then, *other))
                tensor = b.cond(
                    self.holds(test, env),
                    self.block(then, env, names),
                    self.block(other, env, names),
                )
                env.update(tensor if names else {})
            case Choose(index, inner):
                names = assigned(tuple(s for value in inner for s in value))
                blocks = [self.block(value, env, names) for value in inner]
                tensor = b.case(evaluated(index, env), blocks)
                env.update(tensor if names else {})
            case Repeat():
                self.repeat(statement, env)

    def repeat(self, loop: Repeat, env: dict[str, Any]) -> None:
        names = assigned(loop.block)

        def going(state: dict[str, Any]) -> Any:
            return (state["done"] < loop.times) & self.holds(loop.test, {**env, **state})

        def body(state: dict[str, Any]) -> dict[str, Any]:
            after = self.run(loop.block, {**env, **state})
            return {"done": state["done"] + 1, **{name: after[name] for name in names}}

        start = {"done": 0, **{name: env[name] for name in names}}
        after = self.builder.while_loop(going, body, start)
        env.update({name: after[name] for name in names})
