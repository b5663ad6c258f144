"""Truncated normal distributions, sampled by rejection one after the other.

A distribution starts where the random stream of the one before ends. Numbers and streams may be
traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ops.families import float_namespace
from cfgraph.ops.kernels import philox
from cfgraph.ops.kernels.array_namespace import is_tracing, updated_at
from cfgraph.ops.kernels.philox import RandomStream

# rejections in a row after which TensorFlow fails
_MAX_REJECTIONS: Final = 1000
# groups of proposals that are drawn at once
_MIN_DRAWN: Final = 8
_MAX_DRAWN: Final = 1 << 14
# with this many deviations inside the bounds, normal samples are proposed
_WIDE: Final = 1.3


class NormalInterval(NamedTuple):
    """A truncated normal distribution; mirrored if only its upper bound is finite."""

    mean: Any
    deviation: Any
    low: Any  # in deviations from the mean
    high: Any

    @classmethod
    def from_bounds(
        cls, xp: ModuleType, mean: Any, deviation: Any, low: Any, high: Any
    ) -> NormalInterval:
        """Normalize the bounds of a distribution that has samples."""
        is_mirrored = (low == -np.inf) | (high < mean)
        scale = xp.where(is_mirrored, -deviation, deviation)
        first, last = xp.where(is_mirrored, high, low), xp.where(is_mirrored, low, high)
        return cls(mean, scale, (first - mean) / scale, (last - mean) / scale)

    def kind(self, xp: ModuleType) -> Any:
        """The kind of proposals that is accepted most, as an index of `_PROPOSALS`."""
        low, number, wide = self.low, self._kind, self._kind(_WIDE)
        is_wide = (low < -wide) & (self.high >= 0) | (self.high > wide) & (low <= 0)
        root = xp.sqrt(low * low + number(4))
        cutoff = number(2) * xp.exp(number(0.5) + (low * (low - root)) / number(4)) / (low + root)
        where = _scalar_namespace(xp).where
        return where(is_wide, 0, where(self.high - low < cutoff, 1, 2))

    @property
    def _kind(self) -> Any:
        return self.low.dtype.type

    def normal(self, stream: RandomStream, groups: int) -> tuple[Any, Any]:
        """Normal proposals."""
        drawn = philox.draw_normal(stream, groups * self.group_size, self._kind)
        rows = drawn.reshape(groups, -1)
        return rows, (rows >= self.low) & (rows <= self.high)

    def uniform(self, stream: RandomStream, groups: int) -> tuple[Any, Any]:
        """Uniform proposals; a group takes two Philox samples."""
        xp, kind = stream.xp, self._kind
        drawn = philox.draw_uniform(stream, 2 * groups * self.group_size, kind)
        pairs = drawn.reshape(groups, 2, -1)
        z = pairs[:, 0] * (self.high - self.low) + self.low
        offset = xp.where(self.low < 0, kind(0), self.low * self.low)
        return z, pairs[:, 1] <= xp.exp((offset - z * z) / kind(2))

    def exponential(self, stream: RandomStream, groups: int) -> tuple[Any, Any]:
        """Exponential proposals; a group has half as many as numbers."""
        xp, low, kind = stream.xp, self.low, self._kind
        alpha = (low + xp.sqrt(low * low + kind(4))) / kind(2)
        numbers = philox.draw_uniform(stream, groups * self.group_size, kind)
        drawn = numbers.reshape(groups, -1)
        z = -xp.log(drawn[:, ::2]) / alpha + low
        x = xp.where(low < alpha, alpha - z, low - alpha)
        return z, (drawn[:, 1::2] <= xp.exp(-x * x / kind(2))) & (z < self.high)

    @property
    def group_size(self) -> int:
        """Numbers per Philox sample."""
        return 4 // philox.words_per_number(self._kind)


# each kind: proposals of a number of groups, as a row per group and a mask of the accepted ones;
# the groups that have as many as one of normal numbers; the Philox samples that a group takes
_PROPOSALS: Final = (
    (NormalInterval.normal, 1, 1),
    (NormalInterval.uniform, 1, 2),
    (NormalInterval.exponential, 2, 1),
)


def draw_intervals(stream: RandomStream, samples: int, *parameters: Any) -> tuple[Any, Any, Any]:
    """A row of samples per distribution, which ones have samples, and which accept enough."""

    def add_row(used: Any, numbers: Any) -> tuple[Any, tuple[Any, ...]]:
        mean, deviation, low, high = numbers
        scalars = _scalar_namespace(stream.xp)
        has_samples = (deviation > 0) & (low < high)
        has_samples &= scalars.isfinite(low) | scalars.isfinite(high)
        interval = NormalInterval.from_bounds(scalars, mean, deviation, low, high)
        row, is_valid, used = _draw_row(interval, stream, used, samples, has_samples)
        return used, (row, has_samples, is_valid)

    rows: tuple[Any, Any, Any] = _scan(stream.xp, add_row, stream.xp.int64(0), parameters)
    return rows


def _scalar_namespace(xp: ModuleType) -> ModuleType:
    """A namespace for numbers, in which those of NumPy cost less."""
    return float_namespace if xp is np else xp


def _draw_row(
    interval: NormalInterval, stream: RandomStream, used: Any, samples: int, has_samples: Any
) -> tuple[Any, Any, Any]:
    """Samples after some used Philox samples, false if too few were accepted, and those used."""
    xp, size, kind = stream.xp, interval.group_size, interval.kind(stream.xp)
    groups = min(max(2 * samples // size, _MIN_DRAWN), _MAX_DRAWN)

    def propose(way: Any, more: int, taken: int, position: RandomStream) -> tuple[Any, ...]:
        proposed, accepted = way(interval, position, more * groups)
        return proposed.reshape(-1), accepted.reshape(-1), size // more, taken, more * groups

    def turn(state: Any) -> Any:
        row, filled, rejected, used = state
        position = stream.skip(used)
        ways = [partial(propose, *way, position) for way in _PROPOSALS]
        proposed, accepted, per_group, taken, count = _switch(xp, kind, ways)
        ranks = filled + xp.cumsum(accepted)
        row = updated_at(row, xp.where(accepted & (ranks <= samples), ranks, 0), proposed)
        is_full = ranks >= samples
        drawn = _scalar_namespace(xp).where(is_full[-1], xp.argmax(is_full) // per_group + 1, count)
        rejected = _count_rejections(xp, rejected, filled, ranks, samples)
        return row, ranks[-1], rejected, used + drawn * taken

    def is_missing(state: Any) -> Any:
        return (state[1] < samples) & (state[2] < _MAX_REJECTIONS)

    row = xp.zeros(samples + 1, interval.low.dtype)  # the first element takes what is rejected
    rejected = _scalar_namespace(xp).where(has_samples, xp.int64(0), xp.int64(_MAX_REJECTIONS))
    start = row, xp.int64(0), rejected, used
    row, _, rejected, used = _while(xp, is_missing, turn, start)
    return row[1:] * interval.deviation + interval.mean, rejected < _MAX_REJECTIONS, used


def _count_rejections(xp: ModuleType, before: Any, filled: Any, ranks: Any, samples: int) -> Any:
    """Proposals rejected in a row at the end; `_MAX_REJECTIONS` if the row cannot be filled."""
    first = before + ranks.searchsorted(filled, side="right")
    last = len(ranks) - 1 - ranks.searchsorted(ranks[-1])
    is_valid = (first < _MAX_REJECTIONS) & _is_dense(xp, ranks, samples)
    where = _scalar_namespace(xp).where
    return where(is_valid, where(ranks[-1] > filled, last, first), _MAX_REJECTIONS)


def _is_dense(xp: ModuleType, ranks: Any, samples: int) -> Any:
    """False if too many proposals in a row are rejected while samples are missing."""
    if len(ranks) <= _MAX_REJECTIONS:
        return True
    start = ranks[:-_MAX_REJECTIONS]
    return ((ranks[_MAX_REJECTIONS:] > start) | (start >= samples)).all()


def _scan(xp: ModuleType, body: Callable[..., Any], state: Any, rows: Any) -> Any:
    """Apply a body to a state and each row; sequences of its results."""
    if is_tracing(xp):
        from jax import lax

        return lax.scan(body, state, rows)[1]
    results = []
    for row in zip(*rows, strict=True):
        state, result = body(state, row)
        results.append(result)
    return tuple(zip(*results, strict=True))


def _while(xp: ModuleType, condition: Any, body: Any, state: Any) -> Any:
    if is_tracing(xp):
        from jax import lax

        return lax.while_loop(condition, body, state)
    while condition(state):
        state = body(state)
    return state


def _switch(xp: ModuleType, index: Any, functions: Sequence[Callable[[], Any]]) -> Any:
    if is_tracing(xp):
        from jax import lax

        return lax.switch(index, functions)
    return functions[int(index)]()
