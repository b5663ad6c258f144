"""Truncated normal distributions, and the proposals of their rejection samplers.

Numbers and streams may be traced.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ops.opdef import philox
from cfgraph.ops.opdef.philox import RandomStream

# rejections in a row after which TensorFlow fails
MAX_REJECTIONS: Final = 1000
# Philox samples that are drawn at once
MAX_DRAWN: Final = 1 << 14
# with this many deviations inside the bounds, normal samples are proposed
_WIDE: Final = 1.3

Proposal = Callable[[RandomStream, int], tuple[Any, Any]]


def has_samples(xp: ModuleType, deviation: Any, low: Any, high: Any) -> Any:
    """True for the parameters of a distribution, before its bounds are normalized."""
    return (deviation > 0) & (low < high) & (xp.isfinite(low) | xp.isfinite(high))


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
        """Normalize the bounds of distributions that have samples."""
        is_mirrored = (low == -np.inf) | (high < mean)
        scale = xp.where(is_mirrored, -deviation, deviation)
        first, last = xp.where(is_mirrored, high, low), xp.where(is_mirrored, low, high)
        return cls(mean, scale, (first - mean) / scale, (last - mean) / scale)

    def proposal(self) -> Proposal:
        """The sampler of proposals that accepts most.

        It is a function of a stream and a number of groups. It returns proposals and whether each
        is accepted, a row per group.
        """
        if self.is_wide:
            return self.normal
        return self.uniform if self.is_narrow(np) else self.exponential

    @property
    def is_wide(self) -> Any:
        """True if normal proposals are accepted most."""
        wide = self._kind(_WIDE)
        has_low = (self.low < -wide) & (self.high >= 0)
        return has_low | ((self.high > wide) & (self.low <= 0))

    def is_narrow(self, xp: ModuleType) -> Any:
        """True if, unless the interval is wide, uniform proposals are accepted most."""
        low, kind = self.low, self._kind
        root = xp.sqrt(low * low + kind(4))
        cutoff = kind(2) * xp.exp(kind(0.5) + (low * (low - root)) / kind(4)) / (low + root)
        return self.high - low < cutoff

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
