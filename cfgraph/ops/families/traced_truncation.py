"""Truncated normal samples that jax traces, one distribution after the other.

As in the NumPy kernel, a distribution starts where the random stream of the one before ends.
"""

from __future__ import annotations

from typing import Any

from cfgraph.ops.families.normal_interval import (
    MAX_DRAWN,
    MAX_REJECTIONS,
    NormalInterval,
    has_samples,
)
from cfgraph.ops.opdef.array_namespace import defer_check
from cfgraph.ops.opdef.philox import TracedStream


def traced_intervals(
    stream: TracedStream, samples: int, mean: Any, deviation: Any, low: Any, high: Any
) -> Any:
    """A row of samples per distribution. A check fails where the NumPy kernel might."""
    from jax import lax

    xp = stream.xp
    if not samples or not len(mean):
        return xp.zeros((len(mean), samples), mean.dtype)
    valid = has_samples(xp, deviation, low, high)
    intervals = NormalInterval.from_bounds(xp, mean, deviation, low, high)

    def add_row(index: Any, state: Any) -> Any:
        rows, is_valid, stream = state
        interval = NormalInterval(*(numbers[index] for numbers in intervals))
        row, accepts, stream = _draw_row(interval, TracedStream(xp, *stream), samples)
        return rows.at[index].set(row), is_valid & accepts, stream

    start = xp.zeros((len(mean), samples), mean.dtype), valid.all(), stream[1:]
    rows, is_valid, _ = lax.fori_loop(0, len(mean), add_row, start)
    defer_check(lambda: is_valid)
    return rows


def _draw_row(
    interval: NormalInterval, stream: TracedStream, samples: int
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Samples of a distribution, false if too few were accepted, and the stream after them."""
    from jax import lax

    xp, size = stream.xp, interval.group_size
    groups = min(max(samples, 8), MAX_DRAWN)
    # as many proposals of each kind: those of a group, and the Philox samples that it takes
    kind = xp.where(interval.is_wide, 0, xp.where(interval.is_narrow(xp), 1, 2))
    facts = [[size, 1, groups], [size, 2, groups], [size // 2, 1, 2 * groups]]
    per_group, taken, count = xp.asarray(facts)[kind]

    def body(state: Any) -> Any:
        row, filled, is_valid, position = state
        stream = TracedStream(xp, *position)
        proposed, accepted = lax.switch(
            kind,
            [
                lambda: _flat(interval.normal(stream, groups)),
                lambda: _flat(interval.uniform(stream, groups)),
                lambda: _flat(interval.exponential(stream, 2 * groups)),
            ],
        )
        ranks = filled + xp.cumsum(accepted)
        slots = xp.where(accepted, ranks - 1, samples)
        row = row.at[slots].set(proposed, mode="drop")
        used = xp.where(ranks[-1] >= samples, xp.argmax(ranks >= samples) // per_group + 1, count)
        indices = xp.arange(len(ranks))
        rejections = indices - lax.cummax(xp.where(accepted, indices, -1))
        is_valid &= accepted.any() & (rejections < MAX_REJECTIONS).all()
        return row, ranks[-1], is_valid, stream.skip(used * taken)[1:]

    row = xp.zeros(samples, interval.low.dtype)
    row, _, is_valid, position = lax.while_loop(
        lambda state: (state[1] < samples) & state[2],
        body,
        (row, xp.int64(0), xp.bool_(True), stream[1:]),
    )
    return row * interval.deviation + interval.mean, is_valid, position


def _flat(arrays: tuple[Any, Any]) -> tuple[Any, ...]:
    return tuple(array.reshape(-1) for array in arrays)
