"""Fit a table into a width: which column gives way, and where long cells are folded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Final

from cfgraph.console.tables import Table, width

_LEAST: Final = 6
_LOOKED_AT: Final = 200
_BROKEN: Final = 2
# a cell is folded behind one of these where it can be
_ENDS: Final = re.compile(r"[^/ ,_]*[/ ,_]*")


def fitted_widths(table: Table, room: int) -> list[int]:
    """A width for each column, in all no more than `room`: those that need the fewest lines.

    Columns of numbers keep their width. The rest begins narrow, and step by step the column gets
    more that saves most lines and broken words; only the first rows are looked at.
    """
    rows = list(islice(table.texts(), _LOOKED_AT))
    columns = [Counter(map(_measured, texts)) for texts in zip(*rows, strict=True)]
    natural = [max(size for size, _ in column) for column in columns]
    for place, column in enumerate(table.columns):
        if column.right:  # a number is never folded
            natural[place] = max(width(texts[place]) for texts in table.texts())
    widths = [
        most if column.right else min(most, max(_LEAST, width(column.heading)))
        for column, most in zip(table.columns, natural, strict=True)
    ]
    left = room - sum(widths)
    while left > 0:
        growing = [place for place, most in enumerate(natural) if widths[place] < most]
        if not growing:
            break
        gains = {place: _gain(columns[place], widths[place], left) for place in growing}
        best = max(gains, key=lambda place: gains[place][0])
        widths[best] += gains[best][1]
        left -= gains[best][1]
    return widths


def _measured(text: str) -> tuple[int, int]:
    """The width of a cell, and that of its longest part that cannot be broken."""
    return width(text), max(width(piece.rstrip()) for piece in _ENDS.findall(text))


def _cost(cells: Mapping[tuple[int, int], int], columns: int) -> int:
    """The lines that cells take, and more for each that is broken within a word."""
    return sum(
        count * (-(-size // columns) + (_BROKEN if word > columns else 0))
        for (size, word), count in cells.items()
    )


def _gain(cells: Mapping[tuple[int, int], int], columns: int, left: int) -> tuple[float, int]:
    """The most that a column saves for each character that it gets, and how many it takes."""
    before = _cost(cells, columns)
    ends = {min(size - columns, left) for pair in cells for size in pair}
    ends |= {min(-(-size // 2) - columns, left) for size, _ in cells}
    found = [
        ((before - _cost(cells, columns + more)) / more, more) for more in sorted(ends) if more > 0
    ]
    return max(found, default=(0.0, 1), key=lambda item: item[0])


def folded(text: str, columns: int) -> str:
    """A text in lines of so many columns, broken behind a slash, a blank or the like."""
    lines, line, columns = list[str](), "", max(1, columns)
    for piece in _ENDS.findall(text):
        if line and width(line + piece.rstrip()) > columns:
            lines.append(line.rstrip())
            line = ""
        line += piece
        while width(line.rstrip()) > columns:
            lines.append(line[:columns])
            line = line[columns:]
    return "\n".join([*lines, line.rstrip()] if line.strip() or not lines else lines)
