"""A small line chart as SVG: an x axis of doubling values, a y axis from zero or of decades.

Lines that coincide stay visible: each later one is dashed differently, with smaller points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log2, log10
from typing import Final, NamedTuple, Protocol
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 48, 56
_BAND_COLOR: Final = "#fde68a"
_STEPS: Final = (1, 2, 2.5, 5, 10)
_MOST_TICKS: Final = 7
_STYLE: Final = "text{font:13px sans-serif;fill:#1f2937}.title{font-size:15px;font-weight:bold}"


class Stroke(NamedTuple):
    """The look of a line: its color, the lengths of dashes and gaps, and the size of its points."""

    color: str
    dashes: str
    radius: float


_STROKES: Final = (
    Stroke("#c2410c", "none", 5),
    Stroke("#1d4ed8", "9 4", 4),
    Stroke("#15803d", "4 4", 3),
    Stroke("#7e22ce", "2 3", 2.5),
)


class Series(NamedTuple):
    """One line of the chart: its name, and a value for each x; None where there is none."""

    name: str
    values: Sequence[float | None]


class Band(NamedTuple):
    """A range of y values that others report."""

    name: str
    low: float
    high: float


class Scale(Protocol):
    """Positions of values: a fraction of the height, and the values of the grid lines."""

    def fraction(self, value: float) -> float:
        """0 at the bottom, 1 at the top."""

    def ticks(self) -> Iterator[float]:
        """Values with a grid line."""


class LinearScale:
    """From zero, or below the lowest value if it is negative, to above the highest."""

    def __init__(self, lowest: float, highest: float) -> None:
        self.step = _step(highest - min(lowest, 0.0))
        self.low, self.high = floor(min(lowest, 0.0) / self.step), int(highest / self.step) + 1

    def fraction(self, value: float) -> float:
        """0 at the bottom, 1 at the top."""
        return (value / self.step - self.low) / (self.high - self.low)

    def ticks(self) -> Iterator[float]:
        """Values with a grid line."""
        return (number * self.step for number in range(self.low, self.high + 1))


class DecadeScale:
    """Powers of ten, each as high as the next."""

    def __init__(self, lowest: float, highest: float) -> None:
        self.low, self.high = floor(log10(lowest)), ceil(log10(highest))

    def fraction(self, value: float) -> float:
        """0 at the bottom, 1 at the top."""
        return (log10(value) - self.low) / (self.high - self.low)

    def ticks(self) -> Iterator[float]:
        """Values with a grid line."""
        return (10.0**power for power in range(self.low, self.high + 1))


def chart(
    title: str,
    axes: tuple[str, str],
    xs: Sequence[int],
    lines: Sequence[Series],
    *,
    decades: bool = False,
    band: Band | None = None,
    legend_below: bool = False,
) -> str:
    """The SVG of lines over `xs`; the same bytes for the same numbers.

    The x axis is logarithmic, or linear if the first x is zero.
    The legend is in the upper left corner, or below the axis where lines would cross it.
    """
    shown = [value for line in lines for value in line.values if value is not None]
    highest = max([*shown, band.high] if band else shown)
    scale: Scale = (DecadeScale if decades else LinearScale)(min(shown), highest)
    named = [line.name for line in lines] if len(lines) > 1 or band else []
    keys = [*named, *([band.name] if band else [])]
    height = _HEIGHT + (20 * len(keys) + 4 if legend_below and keys else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_LEFT, 26, title, "title"),
    ]
    if band:
        parts.append(_band(band, scale))
    assert len(lines) <= len(_STROKES)
    parts += _grid(xs, axes, scale)
    for line, stroke in zip(lines, _STROKES, strict=False):
        parts += _line(line, xs, stroke, scale)
    start = _HEIGHT + 6 if legend_below else _TOP + 16
    for row, name in enumerate(named):
        parts += _key(name, start + 20 * row, _STROKES[row])
    if band:
        parts += _band_key(band, start + 20 * len(named))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _band(band: Band, scale: Scale) -> str:
    top, bottom = _y(band.high, scale), _y(band.low, scale)
    size = f'width="{_WIDTH - _LEFT - _RIGHT}" height="{bottom - top:.1f}"'
    return f'<rect x="{_LEFT}" y="{top:.1f}" {size} fill="{_BAND_COLOR}"/>'


def _grid(xs: Sequence[int], axes: tuple[str, str], scale: Scale) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for tick in scale.ticks():
        y = _y(tick, scale)
        color = "#9ca3af" if tick == 0 else "#e5e7eb"
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="{color}"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{tick:g}", anchor="end"))
    for x in xs:
        parts.append(_text(_x(x, xs), bottom + 20, str(x), anchor="middle"))
    parts.append(f'<path d="M{_LEFT} {bottom}H{right}" stroke="#6b7280"/>')
    middle = (_LEFT + right) / 2
    parts.append(_text(middle, _HEIGHT - 12, axes[0], anchor="middle"))
    y = (_TOP + bottom) / 2
    turned = f'<g transform="rotate(-90 20 {y:.1f})">{_text(20, y, axes[1], anchor="middle")}</g>'
    return [*parts, turned]


def _line(line: Series, xs: Sequence[int], stroke: Stroke, scale: Scale) -> list[str]:
    points = [
        (_x(x, xs), _y(value, scale))
        for x, value in zip(xs, line.values, strict=True)
        if value is not None
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [
        f'<polyline points="{path}" fill="none" {_drawn(stroke)}/>',
        *(_point(x, y, stroke) for x, y in points),
    ]


def _key(name: str, y: int, stroke: Stroke) -> list[str]:
    return [
        f'<path d="M{_LEFT + 4} {y}h32" {_drawn(stroke)}/>',
        _point(_LEFT + 20, y, stroke),
        _text(_LEFT + 44, y + 4, name),
    ]


def _band_key(band: Band, y: int) -> list[str]:
    path = f'<path d="M{_LEFT + 4} {y}h32" stroke="{_BAND_COLOR}" stroke-width="8"/>'
    return [path, _text(_LEFT + 44, y + 4, band.name)]


def _drawn(stroke: Stroke) -> str:
    return f'stroke="{stroke.color}" stroke-width="2" stroke-dasharray="{stroke.dashes}"'


def _point(x: float, y: float, stroke: Stroke) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{stroke.radius:g}" fill="{stroke.color}"/>'


def _x(x: int, xs: Sequence[int]) -> float:
    """The position of a value; lines stay clear of both edges."""
    first, value, last = (k if xs[0] == 0 else log2(k) for k in (xs[0], x, xs[-1]))
    width = _WIDTH - _LEFT - _RIGHT - 48
    return _LEFT + 24 + (width * (value - first) / (last - first) if last > first else 0.0)


def _y(value: float, scale: Scale) -> float:
    return _HEIGHT - _BOTTOM - scale.fraction(value) * (_HEIGHT - _TOP - _BOTTOM)


def _step(highest: float) -> float:
    """A round distance of ticks, so that there are a few of them."""
    size = 10.0 ** floor(log10(highest / _MOST_TICKS)) if highest < _MOST_TICKS else 1.0
    while size * _MOST_TICKS * 10 <= highest:
        size *= 10
    return next(size * step for step in _STEPS if size * step * _MOST_TICKS > highest)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(text)}</text>'
