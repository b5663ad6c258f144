"""Gradients by finite differences, and their comparison with gradients of a graph.

With F(x) the real part of the sum of conj(w) * y over all ys and their elements, and e a direction,

    D(h) = (F(x + h e) - F(x - h e)) / 2h        slope along e = (4 D(h) - D(2h)) / 3 + O(h^4)

which is the real part of the sum of conj(gradient) * e. The directions are unit steps of single
elements, real and imaginary ones if x is complex; if x has too many elements for that, one random
direction over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from zlib import crc32

import numpy as np

from cfgraph.errors import UsageError
from cfgraph.reports import Column, Count, Real

# (step, relative tolerance, rounding error) for 64-bit and 32-bit computations
DOUBLE_PRECISION: Final = (1e-5, 1e-5, 2e-16)
SINGLE_PRECISION: Final = (1e-2, 2e-2, 1e-7)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Step size (relative for values above 1), tolerance, and rounding error.

    `unit` is the rounding error of the numbers: slopes are known up to `unit / step`.
    """

    step: float = DOUBLE_PRECISION[0]
    rtol: float = DOUBLE_PRECISION[1]
    unit: float = DOUBLE_PRECISION[2]


@dataclass(frozen=True, slots=True)
class SlopeComparison:
    """Comparison of a gradient with finite differences along several directions.

    `rough` counts directions across a bend or a jump, which were not compared. The worst direction
    moves element `index` (None: the random direction); its slope is `actual` according to the
    gradient and `expected` according to differences; `max_abs` and `max_rel` are the largest gaps.
    `skipped` is the reason if nothing was compared.
    """

    x: str
    agrees: bool = True
    directions: Annotated[Count, Column(title="checked")] = 0
    rough: Annotated[
        Count, Column(title="approximate", optional=True, cell=lambda count: count or None)
    ] = 0
    max_abs: Annotated[Real, Column(cell="{:.2g}".format)] = 0.0
    max_rel: Annotated[Real, Column(cell="{:.2g}".format)] = 0.0
    index: Annotated[
        tuple[Count, ...] | None,
        Column(title="at", right=True, cell=lambda index: str(list(index))),
    ] = None
    actual: Annotated[Real | None, Column("gradient", cell="{:.4g}".format)] = None
    expected: Annotated[Real | None, Column("differences", "numeric", cell="{:.4g}".format)] = None
    #: Why nothing was compared.
    skipped: Annotated[str | None, Column(title="", optional=True)] = None


def compare_with_slopes(
    function: Callable[[Any], float],
    x: Any,
    gradient: Any,
    *,
    name: str = "x",
    most: int = 12,
    seed: int = 0,
    accuracy: Accuracy | None = None,
) -> SlopeComparison:
    """Compare a gradient with the slopes of a function of one array (see the module).

    At most `most` elements are moved individually, chosen by `seed` if there are more. Raises
    UsageError if x is not a float array.
    """
    x, gradient = np.asarray(x), np.asarray(gradient)
    if x.dtype.kind not in "fc":
        raise UsageError(f"{name} has dtype {x.dtype}, expected a float or complex dtype")
    if gradient.shape != x.shape:
        reason = f"the gradient has shape {list(gradient.shape)}, expected {list(x.shape)}"
        return SlopeComparison(name, agrees=False, skipped=reason)
    probe = _SlopeProbe(function, x, accuracy or Accuracy())
    tally = _SlopeTally(name)
    for index, direction in _directions(x, most, _random_generator(seed, name)):
        tally.count(index, probe.compare(gradient, direction))
    return tally.result()


def _random_generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed % 2**63, crc32(name.encode())])


def _directions(
    x: Any, most: int, random: np.random.Generator
) -> Iterator[tuple[tuple[int, ...] | None, Any]]:
    """Yield unit steps along elements, in order; then, if some are omitted, a random direction."""
    size = x.size
    chosen = range(size) if size <= most else sorted(random.choice(size, most, replace=False))
    for number in chosen:
        index = tuple(int(i) for i in np.unravel_index(number, x.shape))
        for unit in (1, 1j) if x.dtype.kind == "c" else (1,):
            direction = np.zeros_like(x)
            direction[index] = unit
            yield index, direction
    if size > most:
        direction = random.standard_normal(x.shape)
        if x.dtype.kind == "c":
            direction = direction + 1j * random.standard_normal(x.shape)
        yield None, direction.astype(x.dtype)


@dataclass(frozen=True, slots=True)
class _SlopeGap:
    """The two slopes along one direction, and their allowed difference."""

    actual: float
    expected: float
    allowed: float
    rough: bool

    @property
    def size(self) -> float:
        gap = abs(self.actual - self.expected)
        return gap if np.isfinite(gap) else np.inf

    @property
    def is_fine(self) -> bool:
        return self.size <= self.allowed


class _SlopeProbe:
    """Finite differences of a function at x."""

    def __init__(self, function: Callable[[Any], float], x: Any, accuracy: Accuracy) -> None:
        self.function = function
        self.x = x
        self.accuracy = accuracy
        self.middle = function(x)

    def compare(self, gradient: Any, direction: Any) -> _SlopeGap:
        """Compare the slope of the function along a direction with the slope by the gradient."""
        moved = np.abs(self.x[direction != 0])
        step = self.accuracy.step * max(1.0, float(np.max(moved, initial=0)))
        values = [self.function(self.x + k * step * direction) for k in (-2, -1, 1, 2)]
        near = (values[2] - values[1]) / (2 * step)
        far = (values[3] - values[0]) / (4 * step)
        expected = (4 * near - far) / 3
        products = (np.conj(gradient) * direction).real
        actual = float(np.sum(products))
        scale = max(abs(expected), float(np.sum(np.abs(products))), 1e-3)
        noise = 16 * self.accuracy.unit * max(abs(self.middle), 1.0) / step
        allowed = self.accuracy.rtol * scale + noise
        return _SlopeGap(actual, expected, allowed, self._is_rough(values, step, allowed))

    def _is_rough(self, values: Sequence[float], step: float, allowed: float) -> bool:
        """Return true for a bend or jump: twice the step does not double the curvature term."""
        near = (values[2] - 2 * self.middle + values[1]) / step
        far = (values[3] - 2 * self.middle + values[0]) / (2 * step)
        size = max(abs(near), abs(far))
        return bool(size > allowed and abs(far - 2 * near) > size / 4)


@dataclass(slots=True)
class _SlopeTally:
    """Accumulator of slope comparisons for one x, with one entry per direction.

    `rough` counts the directions that are left out: the slopes differ, but the function has a bend
    or a jump there.
    """

    name: str
    gaps: list[tuple[tuple[int, ...] | None, _SlopeGap]] = field(default_factory=list)
    rough: int = 0

    def count(self, index: tuple[int, ...] | None, gap: _SlopeGap) -> None:
        """Add the comparison of one direction; one in which the function is rough is counted."""
        if gap.rough and not gap.is_fine:
            self.rough += 1
        else:
            self.gaps.append((index, gap))

    def result(self) -> SlopeComparison:
        """Return the comparison for the direction with the largest excess over the tolerance."""
        if not self.gaps:
            reason = "not smooth here" if self.rough else "it has no elements"
            return SlopeComparison(self.name, rough=self.rough, skipped=reason)
        index, worst = max(self.gaps, key=lambda pair: pair[1].size / pair[1].allowed)
        gaps = [gap for _, gap in self.gaps]
        return SlopeComparison(
            self.name,
            all(gap.is_fine for gap in gaps),
            len(gaps),
            self.rough,
            max(gap.size for gap in gaps),
            max(_relative_gap(gap) for gap in gaps),
            index,
            worst.actual,
            worst.expected,
        )


def _relative_gap(gap: _SlopeGap) -> float:
    size = max(abs(gap.actual), abs(gap.expected))
    return gap.size / size if size else 0.0


def weighted_objective(weights: Sequence[Any], values: Sequence[Any]) -> float:
    """Return F(x), whose slope is taken: the real part of the sum of conj(w) * y over live ys."""
    total = 0.0
    for weight, value in zip(weights, values, strict=True):
        if value is not None:
            total += float(np.real(np.sum(np.conj(weight) * np.asarray(value))))
    return total


def worst_comparisons(cases: Sequence[Mapping[str, SlopeComparison]]) -> dict[str, SlopeComparison]:
    """Return the worst comparison of each x among several cases, with the directions of all."""
    worst: dict[str, SlopeComparison] = {}
    for case in cases:
        for x, comparison in case.items():
            worst[x] = _worse_comparison(worst[x], comparison) if x in worst else comparison
    return worst


def _worse_comparison(a: SlopeComparison, b: SlopeComparison) -> SlopeComparison:
    if (a.skipped or b.skipped) and a.agrees and b.agrees:
        return b if a.skipped else a
    first, second = sorted((a, b), key=lambda each: (each.agrees, -each.max_rel))
    return SlopeComparison(
        first.x,
        first.agrees,
        first.directions + second.directions,
        first.rough + second.rough,
        max(first.max_abs, second.max_abs),
        max(first.max_rel, second.max_rel),
        first.index,
        first.actual,
        first.expected,
    )
