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
from typing import Any, Final
from zlib import crc32

import numpy as np

from cfgraph.errors import UsageError

# steps and relative tolerances for what computes in 64 bits, and in 32; and the errors of rounding
DOUBLE_PRECISION: Final = (1e-5, 1e-5, 2e-16)
SINGLE_PRECISION: Final = (1e-2, 2e-2, 1e-7)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far to step, relative to values above 1, and how close is close enough.

    `unit` is the rounding error of the numbers: no slope is known better than that over the step.
    """

    step: float = DOUBLE_PRECISION[0]
    rtol: float = DOUBLE_PRECISION[1]
    unit: float = DOUBLE_PRECISION[2]


@dataclass(frozen=True, slots=True)
class SlopeComparison:
    """How a gradient compares with finite differences, along so many directions.

    `rough` of them cross a bend or a jump and were not compared. The worst one is that of element
    `index`, or without index the random one, with the slope that the gradient has along it and the
    one that differences give; `max_abs` and `max_rel` are the greatest gaps. `skipped` says why
    nothing was compared.
    """

    x: str
    agrees: bool = True
    directions: int = 0
    rough: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    index: tuple[int, ...] | None = None
    actual: float | None = None
    expected: float | None = None
    skipped: str = ""

    def to_json(self) -> dict[str, Any]:
        """The comparison as a member of a command's JSON document."""
        return {
            "x": self.x,
            "agrees": self.agrees,
            "directions": self.directions,
            "rough": self.rough,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "index": None if self.index is None else list(self.index),
            "gradient": self.actual,
            "differences": self.expected,
            "skipped": self.skipped or None,
        }


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
    """Compare a gradient with the slopes of a function of one array, see the module.

    At most so many elements are moved one by one, chosen by `seed` where there are more. Raises
    UsageError where the gradient has another shape than x, or x is not of floats.
    """
    x, gradient = np.asarray(x), np.asarray(gradient)
    if x.dtype.kind not in "fc":
        raise UsageError(f"{name} is {x.dtype}, which cannot be moved a little")
    if gradient.shape != x.shape:
        why = f"the gradient has the shape {list(gradient.shape)}, x {list(x.shape)}"
        return SlopeComparison(name, agrees=False, skipped=why)
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
    """Unit steps along elements, in order; then, if some are left out, a random direction."""
    size = x.size
    chosen = range(size) if size <= most else sorted(random.choice(size, most, replace=False))
    for place in chosen:
        index = tuple(int(i) for i in np.unravel_index(place, x.shape))
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
    """The two slopes along one direction, and how far apart they may be."""

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
    """Moves x along directions."""

    def __init__(self, function: Callable[[Any], float], x: Any, accuracy: Accuracy) -> None:
        self.function = function
        self.x = x
        self.accuracy = accuracy
        self.middle = function(x)

    def compare(self, gradient: Any, direction: Any) -> _SlopeGap:
        """The slope of the function along a direction, and that of the gradient."""
        moving = np.abs(self.x[direction != 0])
        step = self.accuracy.step * max(1.0, float(np.max(moving, initial=0)))
        at = [self.function(self.x + part * step * direction) for part in (-2, -1, 1, 2)]
        near, far = (at[2] - at[1]) / (2 * step), (at[3] - at[0]) / (4 * step)
        expected = (4 * near - far) / 3
        products = (np.conj(gradient) * direction).real
        actual = float(np.sum(products))
        scale = max(abs(expected), float(np.sum(np.abs(products))), 1e-3)
        noise = 16 * self.accuracy.unit * max(abs(self.middle), 1.0) / step
        allowed = self.accuracy.rtol * scale + noise
        return _SlopeGap(actual, expected, allowed, self._is_rough(at, step, allowed))

    def _is_rough(self, at: Sequence[float], step: float, allowed: float) -> bool:
        """True where the function bends or jumps: curvature over twice the width is not twice."""
        near = (at[2] - 2 * self.middle + at[1]) / step
        far = (at[3] - 2 * self.middle + at[0]) / (2 * step)
        size = max(abs(near), abs(far))
        return bool(size > allowed and abs(far - 2 * near) > size / 4)


@dataclass(slots=True)
class _SlopeTally:
    """Sums up what was found along the directions of one x."""

    name: str
    gaps: list[tuple[tuple[int, ...] | None, _SlopeGap]] = field(default_factory=list)
    rough: int = 0

    def count(self, index: tuple[int, ...] | None, gap: _SlopeGap) -> None:
        """Take in one direction."""
        if gap.rough and not gap.is_fine:
            self.rough += 1
        else:
            self.gaps.append((index, gap))

    def result(self) -> SlopeComparison:
        """The worst of it."""
        if not self.gaps:
            why = "not smooth here" if self.rough else "it has no elements"
            return SlopeComparison(self.name, rough=self.rough, skipped=why)
        index, worst = max(self.gaps, key=lambda item: item[1].size / item[1].allowed)
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
    """F of the module: the real part of the sum of conj(w) * y; a dead y counts nothing."""
    total = 0.0
    for weight, value in zip(weights, values, strict=True):
        if value is not None:
            total += float(np.real(np.sum(np.conj(weight) * np.asarray(value))))
    return total


def worst_comparisons(cases: Sequence[Mapping[str, SlopeComparison]]) -> dict[str, SlopeComparison]:
    """The worst comparison of each x among several cases, with the directions of all."""
    found: dict[str, SlopeComparison] = {}
    for case in cases:
        for x, now in case.items():
            found[x] = _worse_comparison(found[x], now) if x in found else now
    return found


def _worse_comparison(one: SlopeComparison, other: SlopeComparison) -> SlopeComparison:
    if (one.skipped or other.skipped) and one.agrees and other.agrees:
        return other if one.skipped else one
    first, second = sorted((one, other), key=lambda item: (item.agrees, -item.max_rel))
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
