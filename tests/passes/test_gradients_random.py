"""Gradients of both orders of random programs, with StopGradient and containers or without."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.passes.differentiable_programs import SmoothProgram
from tests.passes.stopped_random_programs import StoppedProgram
from tests.sampled import in_sweep, sampled

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")


def assert_exact(program: SmoothProgram, seed: int, **options: Any) -> None:
    """Compare the value and both orders, the first weighted, with exact ones."""
    expected = program.expected()
    weights = np.random.default_rng(seed).normal(size=len(program.XS))
    graph = program.graph()
    first = cfgraph.gradients(graph, ["y:0"], program.XS, unconnected="zero")
    names = [name for name in first if name is not None]
    second = cfgraph.gradients(graph, names, program.XS, grad_ys=list(weights), unconnected="zero")
    fetches = ["y:0", *names, *(name for name in second if name is not None)]
    value, *slopes = cfgraph.Session(graph, **options).run(fetches, program.feeds)
    np.testing.assert_allclose(value, expected.value)
    want = [*expected.first, *(expected.second @ weights)]
    np.testing.assert_allclose(slopes, want, 1e-7, 1e-9 * max(1, np.abs(expected.second).max()))


@pytest.mark.parametrize("seed", sampled(range(60), 3))
def test_second_order_of_a_program_without_containers_is_exact(seed: int) -> None:
    assert_exact(SmoothProgram(seed), seed, schedule="random", schedule_seed=seed)


@pytest.mark.parametrize("seed", sampled(range(30), 3))
def test_second_order_of_a_random_program_is_exact(seed: int) -> None:
    assert_exact(StoppedProgram(seed), seed, schedule="random", schedule_seed=seed)


@pytest.mark.parametrize("seed", sampled(range(100, 106), 6))
def test_second_order_of_a_clustered_program_is_exact(seed: int) -> None:
    assert_exact(StoppedProgram(seed), seed, jit="numpy", regions=True)


@needs_jax
@pytest.mark.parametrize("seed", sampled(range(200, 203), 3))
def test_second_order_of_a_compiled_program_is_exact(seed: int) -> None:
    assert_exact(StoppedProgram(seed), seed, jit="xla", regions=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_sweep(range(1000, 1400)))
def test_second_order_of_many_programs_is_exact(seed: int) -> None:
    assert_exact(StoppedProgram(seed, depth=3), seed, schedule="random", schedule_seed=seed)
    assert_exact(StoppedProgram(seed), seed, jit="numpy", regions=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_sweep(range(1000, 1600)))
def test_second_order_of_many_programs_without_containers_is_exact(seed: int) -> None:
    assert_exact(SmoothProgram(seed, depth=3), seed, schedule="random", schedule_seed=seed)
