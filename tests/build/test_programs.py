from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfgraph import Builder
from tests.build.execution import run_builder, run_with_tensorflow
from tests.build.programs import (
    FLOATS,
    INTEGERS,
    NAMES,
    BuilderInterpreter,
    PythonInterpreter,
    programs,
)

STARTS = st.fixed_dictionaries(
    {
        **{name: st.integers(0, 9) for name in INTEGERS},
        **{name: st.sampled_from([-2.0, 0.0, 0.5, 3.0]) for name in FLOATS},
    }
)
SCALAR: list[int] = []
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def written(
    program: tuple[Any, ...], float_shape: list[int] | None = SCALAR
) -> tuple[Builder, list[Any]]:
    """A graph with the program in a function, so that its effects stay in order."""
    b = Builder()
    env = {name: b.placeholder(name, "int32", []) for name in INTEGERS}
    env |= {name: b.placeholder(name, "float64", float_shape) for name in FLOATS}
    total = b.variable(7, "int32", name="total")

    @b.function
    def program_of(env: dict[str, Any]) -> tuple[Any, ...]:
        after = BuilderInterpreter(b, total).run(program, env)
        return (*(b.Identity(after[name]) for name in NAMES), total.read())

    return b, list(program_of(env))


def expected(program: tuple[Any, ...], start: dict[str, Any]) -> list[Any]:
    python = PythonInterpreter(start, 7)
    python.run(program)
    return [*(python.env[name] for name in NAMES), python.total]


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(program=programs(), start=STARTS, seed=st.integers(0, 99))
def test_a_written_program_does_what_it_says_under_every_schedule(
    program: tuple[Any, ...], start: dict[str, Any], seed: int
) -> None:
    assert_does_what_it_says(program, start, seed)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=SLOW)
@given(program=programs(), start=STARTS, seed=st.integers(0, 99))
def test_many_written_programs_do_what_they_say(
    program: tuple[Any, ...], start: dict[str, Any], seed: int
) -> None:
    assert_does_what_it_says(program, start, seed)


def assert_does_what_it_says(program: tuple[Any, ...], start: dict[str, Any], seed: int) -> None:
    """Compare a run in order and one in random order with the program in Python."""
    b, fetches = written(program)
    reference, before = expected(program, start), [b.initializer()]
    assert run_builder(b, fetches, start, before) == reference
    assert (
        run_builder(b, fetches, start, before, schedule="random", schedule_seed=seed) == reference
    )


@pytest.mark.interop
@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(program=programs(), start=STARTS)
def test_tensorflow_agrees(program: tuple[Any, ...], start: dict[str, Any]) -> None:
    b, fetches = written(program)
    assert run_with_tensorflow(b, fetches, start, [b.initializer()]) == expected(program, start)
