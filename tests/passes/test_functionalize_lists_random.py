"""Random programs on lists: whole loops in clusters, the same values and errors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from tests.passes.list_programs import ListProgram, list_program
from tests.sampled import in_sweep

ENGINES = [
    "numpy",
    pytest.param("xla", marks=pytest.mark.skipif(find_spec("jax") is None, reason="jax is absent")),
]
each_engine = pytest.mark.parametrize("engine", ENGINES)


def fetched(program: ListProgram, fetch: str, **options: Any) -> Any:
    """Return the value of a fetch, or None if the run fails."""
    session = cfgraph.Session(cfgraph.loads(program.data), **options)
    try:
        return session.run(fetch, program.feeds)[0]
    except ExecutionError:
        return None


def assert_agrees(seed: int, engine: str) -> None:
    """Compare every fetch of a program with and without clusters."""
    program = list_program(seed)
    for fetch in program.fetches:
        expected = fetched(program, fetch)
        value = fetched(program, fetch, jit=engine, regions=True)
        assert (value is None) == (expected is None), (fetch, value, expected)
        np.testing.assert_array_equal(value, expected, strict=True)


@each_engine
@pytest.mark.parametrize("seed", range(1000, 1006))
def test_a_program_on_lists_agrees(engine: str, seed: int) -> None:
    assert_agrees(seed, engine)


@pytest.mark.slow
@each_engine
@pytest.mark.parametrize("seed", in_sweep(range(300)))
def test_every_program_on_lists_agrees(engine: str, seed: int) -> None:
    assert_agrees(seed, engine)
