"""Rejection samplers that jax traces: all lanes draw until the last of them accepts.

A lane is an output; it starts at its own offset of the random stream. The numbers of one Philox
sample are used last to first. Each loop carries the lanes without a sample as a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ops.families.rejection_rules import (
    BinomialConstants,
    accepts_gamma,
    binomial_candidates,
    gamma_parameters,
    poisson_candidates,
)
from cfgraph.ops.opdef import philox
from cfgraph.ops.opdef.philox import TracedStream

# Philox samples per lane and iteration of the loops whose lanes use many
_AHEAD: Final = 4

Convert = Callable[[Any], Any]


class LaneBuffer(NamedTuple):
    """Two numbers per lane, and how many of them are left."""

    numbers: Any
    left: Any


def traced_gamma(stream: TracedStream, starts: Any, alpha: Any) -> Any:
    """Gamma samples for float64 `alpha`, as `draw_gamma` computes them."""
    from jax import lax

    xp = stream.xp
    d, c = gamma_parameters(xp, alpha)
    below, normal = alpha < 1, partial(philox.normal_float64, xp=xp)
    first = philox.unit_float64(stream.words(starts))[:, 1]
    exponential = -xp.log1p(-first)
    buffer = LaneBuffer(xp.zeros((len(starts), 2)), xp.zeros(len(starts), np.int32))

    def body(state: Any) -> Any:
        todo, positions, normals, uniforms, result = state
        x, positions, normals = _draw(stream, todo, positions, normals, normal)
        v = 1 + c * x
        valid = todo & ~(v <= 0)
        v = v**3
        u, positions, uniforms = _draw(stream, valid, positions, uniforms, philox.unit_float64)
        accepted = valid & accepts_gamma(xp, x, v, u, d)
        power, positions, uniforms = _draw(
            stream, accepted & below, positions, uniforms, philox.unit_float64
        )
        sample = d * v * xp.where(below, power ** (1 / alpha), 1.0)
        todo, result = todo & ~accepted, xp.where(accepted, sample, result)
        can_end = (todo & xp.isfinite(d)).any()
        result = xp.where(todo & ~can_end, np.nan, result)
        return todo & can_end, positions, normals, uniforms, result

    start = alpha != 1, starts, buffer, buffer, exponential
    return lax.while_loop(lambda state: state[0].any(), body, start)[-1]


def _draw(
    stream: TracedStream, lanes: Any, positions: Any, buffer: LaneBuffer, convert: Convert
) -> tuple[Any, Any, LaneBuffer]:
    """The next number of the lanes in a mask, and the positions and the buffer after it."""
    xp = stream.xp
    empty = lanes & (buffer.left == 0)
    numbers = xp.where(empty[:, None], convert(stream.words(positions)), buffer.numbers)
    left = xp.where(empty, 2, buffer.left) - lanes
    drawn = xp.where(left == 1, numbers[:, 1], numbers[:, 0])
    return drawn, positions + empty.astype(np.uint64), LaneBuffer(numbers, left)


def traced_products(stream: TracedStream, starts: Any, lanes: Any, rate: Any) -> Any:
    """Poisson samples of the lanes in a mask: numbers whose product exceeds exp(-rate)."""
    limit = stream.xp.exp(-rate)

    def count(product: Any, u: Any) -> tuple[Any, Any]:
        product = product * u
        return product, product > limit

    return _counts(stream, starts, lanes, stream.xp.ones_like(rate), count)


def traced_inversion(stream: TracedStream, starts: Any, lanes: Any, count: Any, prob: Any) -> Any:
    """Binomial samples of the lanes in a mask: geometric ones whose sum is at most `count`."""
    xp = stream.xp
    scale = xp.log1p(-prob)

    def within(total: Any, u: Any) -> tuple[Any, Any]:
        total = total + xp.ceil(xp.log(u) / scale)
        return total, total <= count

    return _counts(stream, starts, lanes, xp.zeros_like(count), within)


def _counts(
    stream: TracedStream,
    starts: Any,
    lanes: Any,
    total: Any,
    step: Callable[[Any, Any], tuple[Any, Any]],
) -> Any:
    """The steps of each lane in a mask until one fails; a step takes a total and a number."""
    from jax import lax

    xp = stream.xp

    def body(state: Any) -> Any:
        todo, positions, total, result = state
        offsets = positions[:, None] + np.arange(_AHEAD, dtype=np.uint64)
        numbers = philox.unit_float64(stream.words(offsets))[..., ::-1].reshape(len(starts), -1)
        for column in range(numbers.shape[1]):
            total, holds = step(total, numbers[:, column])
            todo = todo & holds
            result = result + todo
        return todo, positions + np.uint64(_AHEAD), total, result

    start = lanes, starts, total, xp.zeros(len(starts))
    return lax.while_loop(lambda state: state[0].any(), body, start)[-1]


def traced_ratios(stream: TracedStream, starts: Any, lanes: Any, rate: Any) -> Any:
    """Poisson samples of the lanes in a mask, by ratios of uniform numbers."""
    return _accepted(stream, starts, lanes, lambda u, v: poisson_candidates(stream.xp, u, v, rate))


def traced_binomial(stream: TracedStream, starts: Any, lanes: Any, count: Any, prob: Any) -> Any:
    """Binomial samples of the lanes in a mask, by transformed rejection."""
    constants = BinomialConstants.from_parameters(stream.xp, count, prob)
    return _accepted(
        stream, starts, lanes, lambda u, v: binomial_candidates(stream.xp, u, v, constants)
    )


def _accepted(
    stream: TracedStream,
    starts: Any,
    lanes: Any,
    candidates: Callable[[Any, Any], tuple[Any, Any]],
) -> Any:
    """The first accepted candidate of each lane in a mask; each is made of two numbers."""
    from jax import lax

    xp = stream.xp

    def body(state: Any) -> Any:
        todo, positions, result = state
        numbers = philox.unit_float64(stream.words(positions))
        k, accepted = candidates(numbers[:, 1], numbers[:, 0])
        result = xp.where(todo & accepted, k, result)
        return todo & ~accepted, positions + np.uint64(1), result

    start = lanes, starts, xp.zeros(len(starts))
    return lax.while_loop(lambda state: state[0].any(), body, start)[-1]
