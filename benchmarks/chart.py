"""A small line chart as SVG: doubling values on the x axis, a linear y axis from zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 48, 56
_COLORS: Final = ("#c2410c", "#1d4ed8", "#15803d")
_STEPS: Final = (1, 2, 2.5, 5, 10)
_MOST_TICKS: Final = 7
_STYLE: Final = "text{font:13px sans-serif;fill:#1f2937}.title{font-size:15px;font-weight:bold}"


class Series(NamedTuple):
    """One line of the chart: its name, and a value for each x."""

    name: str
    values: Sequence[float]


def chart(title: str, axes: tuple[str, str], xs: Sequence[int], lines: Sequence[Series]) -> str:
    """The SVG of lines over `xs`, which are evenly spaced; the same bytes for the same numbers."""
    step = _step(max(max(line.values) for line in lines))
    top = step * (int(max(max(line.values) for line in lines) / step) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 26, title, "title"),
        *_grid(xs, axes, step, top),
    ]
    for place, line in enumerate(lines):
        color = _COLORS[place % len(_COLORS)]
        parts += _line(line, color, top)
        parts += _key(line.name, color, place) if len(lines) > 1 else []
    return "\n".join([*parts, "</svg>"]) + "\n"


def _grid(xs: Sequence[int], axes: tuple[str, str], step: float, top: float) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for number in range(round(top / step) + 1):
        y = _y(number * step, top)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#e5e7eb"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{number * step:g}", anchor="end"))
    for place, x in enumerate(xs):
        parts.append(_text(_x(place, len(xs)), bottom + 20, str(x), anchor="middle"))
    parts.append(f'<path d="M{_LEFT} {bottom}H{right}" stroke="#6b7280"/>')
    middle = (_LEFT + right) / 2
    parts.append(_text(middle, _HEIGHT - 12, axes[0], anchor="middle"))
    y = (_TOP + bottom) / 2
    turned = f'<g transform="rotate(-90 20 {y:.1f})">{_text(20, y, axes[1], anchor="middle")}</g>'
    return [*parts, turned]


def _line(line: Series, color: str, top: float) -> list[str]:
    count = len(line.values)
    points = [(_x(i, count), _y(value, top)) for i, value in enumerate(line.values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [
        f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in points),
    ]


def _key(name: str, color: str, place: int) -> list[str]:
    y = _TOP + 16 + 20 * place
    return [
        f'<path d="M{_LEFT + 12} {y}h24" stroke="{color}" stroke-width="2"/>',
        _text(_LEFT + 44, y + 4, name),
    ]


def _x(place: int, count: int) -> float:
    """The position of a value; lines stay clear of both edges."""
    return _LEFT + 24 + place * (_WIDTH - _LEFT - _RIGHT - 48) / max(1, count - 1)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _step(highest: float) -> float:
    """A round distance of ticks, so that there are a few of them."""
    size = 1.0
    while size * _MOST_TICKS * 10 <= highest:
        size *= 10
    return next(size * step for step in _STEPS if size * step * _MOST_TICKS > highest)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(text)}</text>'
