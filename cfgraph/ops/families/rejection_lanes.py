"""Samples by rejection from a random stream, in which each output has its own stretch: its lane.

All lanes make a turn at once: NumPy continues with those that have no sample yet, and jax masks the
others. A few lanes cost less one by one, in numbers of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.ops.families import float_namespace
from cfgraph.ops.families.rejection_rules import CONSTANT, Distribution, Rejection, State
from cfgraph.ops.kernels.philox import PhiloxStream, RandomStream, TracedStream, unit_float64

# up to this many outputs, numbers of Python are faster than arrays
MAX_FEW: Final = 24

Distributions = Callable[..., Distribution]


def draw_samples(
    distributions: Distributions, stream: RandomStream, samples: int, parameters: Sequence[Any]
) -> Any:
    """Samples per parameters, as float64: those of the first parameters first."""
    few = _few_samples(distributions, stream, samples, parameters)
    if few is not None:
        return np.array(few)
    xp = stream.xp
    flat = [xp.repeat(x, samples) for x in parameters]
    outputs = xp.arange(len(flat[0]), dtype=np.uint64)
    distribution = distributions(xp, *flat)
    result = xp.zeros(len(outputs)) + distribution.otherwise
    for lanes, way in distribution.ways:
        starts = outputs * np.uint64(way.reserved)
        if isinstance(stream, TracedStream):
            state = way.start(xp, *distribution.parameters)
            result = xp.where(lanes, _traced_samples(stream, way, starts, lanes, state), result)
        else:
            rows = np.flatnonzero(lanes)
            parts = (x[rows] for x in distribution.parameters)
            _store_samples(result, stream, way, starts[rows], rows, way.start(xp, *parts))
    return result


def _numbers(stream: RandomStream, positions: Any, samples: int) -> Any:
    """The numbers of some Philox samples of each lane, a row for each number."""
    offsets = positions + np.arange(samples, dtype=np.uint64)[:, None]
    numbers = unit_float64(stream.words(offsets))[..., ::-1]
    return numbers.swapaxes(1, 2).reshape(2 * samples, len(positions))


def _store_samples(
    result: Any, stream: PhiloxStream, way: Rejection, positions: Any, rows: Any, state: State
) -> None:
    """Store a sample for each lane in the row of the result that is its own."""
    while len(rows):
        numbers = _numbers(stream, positions, way.samples)
        done, drawn, used, state = way.turn(np, numbers, *state)
        result[rows[done]] = drawn[done]
        rest = ~done
        rows, positions = rows[rest], (positions + np.uint64(used))[rest]
        state = tuple(x[rest] for x in state)


def _traced_samples(
    stream: TracedStream, way: Rejection, starts: Any, lanes: Any, state: State
) -> Any:
    """A sample for each lane in a mask."""
    from jax import lax

    xp = stream.xp

    def turn(carried: Any) -> Any:
        lanes, positions, result, state = carried
        numbers = _numbers(stream, positions, way.samples)
        done, drawn, used, state = way.turn(xp, numbers, *state)
        result = xp.where(lanes & done, drawn, result)
        return lanes & ~done, positions + xp.uint64(used), result, state

    start = lanes, starts, xp.zeros(len(starts)), state
    return lax.while_loop(lambda carried: carried[0].any(), turn, start)[2]


def _few_samples(
    distributions: Distributions, stream: RandomStream, samples: int, parameters: Sequence[Any]
) -> list[float] | None:
    """The samples in numbers of Python; None where arrays have to draw them.

    Numbers of Python have no infinities and no NaN: they raise an error.
    """
    count = samples * len(parameters[0])
    if isinstance(stream, TracedStream) or not 0 < count <= MAX_FEW:
        return None
    try:
        batch = [distributions(float_namespace, *row) for row in zip(*parameters, strict=True)]
        lanes = [lane for distribution in batch for lane in [_lane(distribution)] * samples]
        starts = [index * way.reserved for index, (way, _) in enumerate(lanes)]
        ahead = max(way.expected for way, _ in lanes)
        ready = stream.unit_numbers([start + n for start in starts for n in range(ahead)])
        parts = (ready[first : first + 2 * ahead] for first in range(0, len(ready), 2 * ahead))
        return [
            _sample(stream, start, part, *lane)
            for start, part, lane in zip(starts, parts, lanes, strict=True)
        ]
    except (ArithmeticError, ValueError):
        return None


def _lane(distribution: Distribution) -> tuple[Rejection, State]:
    """The way to sample a distribution of numbers, and its first state."""
    for is_chosen, way in distribution.ways:
        if is_chosen:
            return way, way.start(float_namespace, *distribution.parameters)
    return CONSTANT, (distribution.otherwise,)


def _sample(
    stream: PhiloxStream, start: int, ready: list[float], way: Rejection, state: State
) -> float:
    """A sample of a lane whose first numbers are ready."""
    position, size = 0, 2 * way.samples
    while True:
        if position + size > len(ready):
            after = start + len(ready) // 2
            ready += stream.unit_numbers([after, after + 1])
        numbers = ready[position : position + size]
        is_done, sample, used, state = way.turn(float_namespace, numbers, *state)
        if is_done:
            return float(sample)
        position += 2 * used
