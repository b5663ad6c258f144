"""Tables: one description, printed as aligned text, as tab-separated lines or as JSON."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


class Styled(str):
    """A text of a cell with a style of its own."""

    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        """The text and its style."""
        made = super().__new__(cls, text)
        made.style = style
        return made


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in JSON and its title, which is the key unless it says otherwise.

    An `optional` one is left out of text where it is empty, a `spare` one at the end of a table
    where a terminal has no room for it.
    """

    key: str
    title: str | None = None
    right: bool = False
    style: str = ""
    optional: bool = False
    spare: bool = False

    @property
    def heading(self) -> str:
        """What stands above the column."""
        return self.key if self.title is None else self.title


@dataclass(slots=True)
class Table:
    """Columns and rows; a cell is printed as text, None as nothing."""

    columns: Sequence[Column]
    rows: list[Sequence[Any]] = field(default_factory=list)
    headings: bool = True

    def texts(self) -> Iterator[tuple[str, ...]]:
        """The rows as they are printed, the headings first."""
        if self.headings:
            yield tuple(column.heading for column in self.columns)
        for row in self.rows:
            yield tuple(cell_text(cell) for cell in row)

    def without(self, places: Collection[int]) -> Table:
        """The table without some columns."""
        kept = [place for place in range(len(self.columns)) if place not in places]
        rows: list[Sequence[Any]] = [[row[place] for place in kept] for row in self.rows]
        return Table([self.columns[place] for place in kept], rows, self.headings)

    def compact(self) -> Table:
        """The table without optional columns that are empty."""
        empty = [
            place
            for place, column in enumerate(self.columns)
            if column.optional and not any(cell_text(row[place]) for row in self.rows)
        ]
        return self.without(empty) if empty else self

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as objects."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]


def cell_text(cell: Any) -> str:
    """How a cell is printed."""
    if cell is None:
        return ""
    if isinstance(cell, list | tuple):
        return ", ".join(cell_text(item) for item in cell)
    return clean(str(cell))


def clean(text: str) -> str:
    """A text from a file without the control characters that a terminal would obey."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def clean_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(clean, text.split("\n")))


def width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, columns: int, right: bool = False) -> str:
    """A text filled up with blanks."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


_FILLED: Final = 120


def aligned(table: Table, indent: str = "") -> Iterator[str]:
    """The lines of a table as plain text; nothing is ever cut.

    Cells wider than most lines push what is behind them, and do not fill up all other rows.
    """
    rows = list(table.texts())
    widths = [min(columns, _FILLED) for columns in _widths(rows)]
    for row in rows:
        cells = [
            pad(cell, columns, column.right)
            for cell, columns, column in zip(row, widths, table.columns, strict=True)
        ]
        yield (indent + "  ".join(cells)).rstrip()


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width, cells)) for cells in zip(*rows, strict=True)]


def natural_width(table: Table) -> int:
    """The columns that a table takes if nothing is folded."""
    widths = _widths(list(table.texts()))
    return sum(widths) + 2 * max(0, len(widths) - 1)


def tab_separated(table: Table) -> Iterator[str]:
    """The lines of a table with tabs between the cells; no cell holds one."""
    for row in table.texts():
        yield "\t".join(row)


def flowed(items: Sequence[str], columns: int = 78, indent: str = "  ") -> Iterator[str]:
    """Items with commas between them, in lines of about that width; no item is broken."""
    line = indent
    for place, item in enumerate(items):
        text = item + ("," if place < len(items) - 1 else "")
        if line != indent and width(line) + width(text) > columns:
            yield line.rstrip()
            line = indent
        line += text + " "
    if line.strip():
        yield line.rstrip()
