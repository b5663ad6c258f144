"""Random programs on lists: whole loops in clusters, the same values and errors.

306 programs were drawn once: lists that grow, shrink, branch, and loop, many with errors. `make
agree` draws others.
"""

from __future__ import annotations

import functools
import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from tests.sampled import in_sweep

ARCHIVE = Path(__file__).parents[2] / "fixtures" / "conformance" / "lists.zip"
FETCHES = ("y0", "y1", "y2")


@functools.cache
def programs() -> dict[int, Any]:
    """The programs by seed: text and feeds."""
    lines = zipfile.ZipFile(ARCHIVE).read("programs.jsonl").splitlines()
    return {record["seed"]: record for record in map(json.loads, lines)}


ENGINES = [
    "numpy",
    pytest.param("xla", marks=pytest.mark.skipif(find_spec("jax") is None, reason="jax is absent")),
]
each_engine = pytest.mark.parametrize("engine", ENGINES)


def fetched(program: int, fetch: str, **options: Any) -> Any:
    """Return the value of a fetch, or None if the run fails."""
    record = programs()[program]
    session = cfgraph.Session(cfgraph.loads(record["graph"].encode(), "graph"), **options)
    try:
        return session.run(fetch, record["feeds"])[0]
    except ExecutionError:
        return None


def assert_agrees(program: int, engine: str) -> None:
    """Compare every fetch of a program with and without clusters."""
    for fetch in FETCHES:
        expected = fetched(program, fetch)
        value = fetched(program, fetch, jit=engine, regions=True)
        assert (value is None) == (expected is None), (fetch, value, expected)
        np.testing.assert_array_equal(value, expected, strict=True)


@each_engine
@pytest.mark.parametrize("program", [198, *range(1000, 1006)])
def test_a_program_on_lists_agrees(engine: str, program: int) -> None:
    assert_agrees(program, engine)


@pytest.mark.slow
@each_engine
@pytest.mark.parametrize("program", in_sweep(range(300)))
def test_every_program_on_lists_agrees(engine: str, program: int) -> None:
    assert_agrees(program, engine)
