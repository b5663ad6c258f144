"""Rejection samplers of few outputs, in numbers of Python, which cost less than short arrays.

A distribution is prepared per parameters, and draws from the lane of each output. Parameters and
numbers that Python's arithmetic refuses raise ArithmeticError or ValueError; arrays, which have
infinities and NaN, then draw all outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from cfgraph.ops.families import float_namespace
from cfgraph.ops.families.rejection_rules import (
    RESERVED,
    RESERVED_BY_INVERSION,
    BinomialConstants,
    accepts_gamma,
    binomial_candidates,
    gamma_parameters,
    poisson_candidates,
)
from cfgraph.ops.opdef.philox import PhiloxStream

# up to this many outputs, numbers of Python are faster than arrays
MAX_LANES: Final = 24
# Philox samples that are computed at once for all lanes, and the most for one
_SAMPLES_AT_ONCE: Final = 96

Pair = list[float]


class Lane:
    """Uniform and normal numbers of one output; those of a Philox sample are used last to first."""

    __slots__ = ("_normals", "_samples", "_uniforms")

    def __init__(self, stream: PhiloxStream, start: int, ready: list[Pair]) -> None:
        self._samples = _samples(stream, start, ready)
        self._uniforms: Pair = []
        self._normals: Pair = []

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        if not self._uniforms:
            self._uniforms = next(self._samples)
        return self._uniforms.pop()

    def uniforms(self) -> Iterator[float]:
        """Numbers in [0, 1), of a lane that is drawn from in no other way."""
        for first, second in self._samples:
            yield second
            yield first

    def normal(self) -> float:
        """The next normal number."""
        if not self._normals:
            radius, turn = next(self._samples)
            length, angle = math.sqrt(-2.0 * math.log(max(radius, 1e-7))), 2.0 * math.pi * turn
            self._normals = [math.sin(angle) * length, math.cos(angle) * length]
        return self._normals.pop()


def _samples(stream: PhiloxStream, start: int, ready: list[Pair]) -> Iterator[Pair]:
    while True:
        yield from ready
        start += len(ready)
        ready = stream.unit_pairs([start, start + 1])


class ScalarDistribution(NamedTuple):
    """A distribution with its parameters.

    An output owns `reserved` Philox samples, and probably uses `expected` of them.
    """

    draw: Callable[[Lane], float]
    reserved: int = RESERVED
    expected: int = 2


def few_samples(
    prepare: Callable[..., ScalarDistribution],
    stream: PhiloxStream,
    samples: int,
    *parameters: Any,
) -> list[float] | None:
    """A number of samples per parameters, batch by batch; None where arrays have to draw them."""
    if not 0 < samples * len(parameters[0]) <= MAX_LANES:
        return None
    try:
        batch = map(prepare, *parameters)
        distributions = [d for d in batch for _ in range(samples)]
        starts = [index * d.reserved for index, d in enumerate(distributions)]
        return _draw_lanes(stream, distributions, starts)
    except (ArithmeticError, ValueError):
        return None


def few_at(
    prepare: Callable[..., ScalarDistribution],
    stream: PhiloxStream,
    starts: list[int],
    *parameters: Any,
) -> list[float] | None:
    """A sample from each start, for parameters of its own; None where arrays have to draw them."""
    if len(starts) > MAX_LANES:
        return None
    try:
        return _draw_lanes(stream, list(map(prepare, *parameters)), starts)
    except (ArithmeticError, ValueError):
        return None


def _draw_lanes(
    stream: PhiloxStream, distributions: list[ScalarDistribution], starts: list[int]
) -> list[float]:
    most = max(d.expected for d in distributions)
    ahead = max(1, min(most, _SAMPLES_AT_ONCE // len(starts)))
    pairs = stream.unit_pairs([start + n for start in starts for n in range(ahead)])
    return [
        d.draw(Lane(stream, start, pairs[first : first + ahead]))
        for d, start, first in zip(distributions, starts, range(0, len(pairs), ahead), strict=True)
    ]


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("parameters without a distribution of finite numbers")


def scalar_gamma(alpha: Any) -> ScalarDistribution:
    """The gamma distribution (Marsaglia and Tsang 2000); exponential for alpha 1."""
    alpha = float(alpha)
    _require(0 < alpha < math.inf)
    if alpha == 1:
        return ScalarDistribution(lambda lane: -math.log1p(-lane.uniform()), expected=1)
    d, c = gamma_parameters(float_namespace, alpha)

    def draw(lane: Lane) -> float:
        while True:
            x = lane.normal()
            v = 1 + c * x
            if v > 0:
                v = v**3
                if accepts_gamma(float_namespace, x, v, lane.uniform(), d):
                    factor = lane.uniform() ** (1 / alpha) if alpha < 1 else 1.0
                    return float(d * v * factor)

    return ScalarDistribution(draw)


def scalar_poisson(rate: Any) -> ScalarDistribution:
    """The Poisson distribution: products of uniform numbers below rate 10, else ratios."""
    rate = float(rate)
    _require(0 <= rate < math.inf)
    if rate >= 10:
        return _by_pairs(lambda u, v: poisson_candidates(float_namespace, u, v, rate))
    limit = math.exp(-rate)

    def draw(lane: Lane) -> float:
        product, count = 1.0, 0
        for u in lane.uniforms():
            product *= u
            if product <= limit:
                break
            count += 1
        return count

    return ScalarDistribution(draw, expected=int(rate) + 1)


def _by_pairs(candidate: Callable[[float, float], tuple[Any, Any]]) -> ScalarDistribution:
    """Draw the first accepted candidate of two uniform numbers."""

    def draw(lane: Lane) -> float:
        uniforms = lane.uniforms()
        while True:
            k, accepted = candidate(next(uniforms), next(uniforms))
            if accepted:
                return float(k)

    return ScalarDistribution(draw)


def scalar_binomial(count: Any, prob: Any) -> ScalarDistribution:
    """The binomial distribution: sums of geometric samples for small means, else Hörmann 1993."""
    _require(0 <= count < math.inf and 0 <= prob <= 1)
    likely = 1 - prob if prob > 0.5 else prob
    many = count * likely >= 10  # in the precision of the parameters
    count, likely = float(count), float(likely)
    if not count or not likely:
        constant = count if prob > 0.5 else 0.0
        return ScalarDistribution(lambda lane: constant, expected=0)
    drawn = _by_transformation(count, likely) if many else _by_inversion(count, likely)
    if prob <= 0.5:
        return drawn
    return drawn._replace(draw=lambda lane: count - drawn.draw(lane))


def _by_transformation(count: float, prob: float) -> ScalarDistribution:
    """The binomial distribution of a large mean, by transformed rejection."""
    constants = BinomialConstants.from_parameters(float_namespace, count, prob)
    return _by_pairs(lambda u, v: binomial_candidates(float_namespace, u, v, constants))


def _by_inversion(count: float, prob: float) -> ScalarDistribution:
    """The binomial distribution of a small mean: geometric samples whose sum is at most `count`."""
    scale = math.log1p(-prob)

    def draw(lane: Lane) -> float:
        total, result = 0, 0
        for u in lane.uniforms():
            total += math.ceil(math.log(u) / scale)
            if total > count:
                break
            result += 1
        return result

    expected = int(count * prob) + 1
    return ScalarDistribution(draw, RESERVED_BY_INVERSION, expected)
