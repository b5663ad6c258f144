from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.passes.differentiable_programs import SmoothProgram
from tests.sampled import in_sweep, sampled

XS = ["x:0", "w:0"]


def first_order(
    program: SmoothProgram, **options: Any
) -> tuple[list[float], cfgraph.Graph, list[str]]:
    """The gradients of a program's output, its graph, and their names."""
    graph = program.graph()
    names = cfgraph.gradients(graph, ["y:0"], XS, unconnected="zero")
    wanted = [name for name in names if name is not None]
    values = cfgraph.Session(graph, **options).run(wanted, program.feeds)
    return [float(value) for value in values], graph, wanted


def close(have: list[float], want: list[float], rtol: float = 1e-6) -> bool:
    return bool(np.allclose(have, want, rtol, 1e-8 * max(1, *map(abs, want))))


@pytest.mark.parametrize("seed", sampled(range(60), 3))
def test_gradients_of_a_random_program_are_its_slopes(seed: int) -> None:
    program = SmoothProgram(seed)
    have, graph, _ = first_order(program, schedule="random", schedule_seed=seed)
    assert close(have, [program.slope(0), program.slope(1)])
    value = cfgraph.Session(graph).run("y:0", program.feeds)[0]
    assert np.isclose(value, program.value(program.x, program.w))


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_sweep(range(1000, 1600)))
def test_gradients_of_many_random_programs_are_their_slopes(seed: int) -> None:
    program = SmoothProgram(seed, depth=3)
    have, _, _ = first_order(program, schedule="random", schedule_seed=seed)
    assert close(have, [program.slope(0), program.slope(1)], 1e-5)


def second_order(program: SmoothProgram, argument: int) -> list[float]:
    _, graph, names = first_order(program)
    again = cfgraph.gradients(graph, names[:1], XS, unconnected="zero")
    wanted = [name for name in again if name is not None]
    values = cfgraph.Session(graph).run(wanted, program.feeds)
    return [float(value) for value in values]


@pytest.mark.parametrize("seed", sampled(range(20), 2))
def test_second_order_gradients_of_a_random_program_are_slopes_of_the_first(seed: int) -> None:
    program = SmoothProgram(seed)
    have = second_order(program, 0)
    step, want = 1e-5, []
    for argument in ("x", "w"):
        neighbors = []
        for sign in (1, -1):
            moved = SmoothProgram(seed)
            setattr(moved, argument, getattr(moved, argument) + sign * step)
            neighbors.append(first_order(moved)[0][0])
        want.append((neighbors[0] - neighbors[1]) / (2 * step))
    assert close(have, want, 1e-4)
