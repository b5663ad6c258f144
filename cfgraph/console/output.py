"""Tables and lines on stdout or stderr: plain text for pipes, rich for terminals."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, Final, Protocol

from cfgraph.options import Color, use_color

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
class OutputTable:
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

    def without(self, places: Collection[int]) -> OutputTable:
        """The table without some columns."""
        kept = [place for place in range(len(self.columns)) if place not in places]
        rows: list[Sequence[Any]] = [[row[place] for place in kept] for row in self.rows]
        return OutputTable([self.columns[place] for place in kept], rows, self.headings)

    def compact(self) -> OutputTable:
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


def aligned(table: OutputTable, indent: str = "") -> Iterator[str]:
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


def natural_width(table: OutputTable) -> int:
    """The columns that a table takes if nothing is folded."""
    widths = _widths(list(table.texts()))
    return sum(widths) + 2 * max(0, len(widths) - 1)


def tab_separated(table: OutputTable) -> Iterator[str]:
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


_MIN_WIDTH: Final = 6
_SAMPLED_ROWS: Final = 200
_BREAK_COST: Final = 2
# a cell is folded behind one of these where it can be
_BREAK_POINTS: Final = re.compile(r"[^/ ,_]*[/ ,_]*")


def fitted_widths(table: OutputTable, room: int) -> list[int]:
    """A width for each column, in all no more than `room`: those that need the fewest lines.

    Columns of numbers keep their width. The rest begins narrow, and step by step the column gets
    more that saves most lines and broken words; only the first rows are looked at.
    """
    rows = list(islice(table.texts(), _SAMPLED_ROWS))
    columns = [Counter(map(_measured, texts)) for texts in zip(*rows, strict=True)]
    natural = [max(size for size, _ in column) for column in columns]
    for place, column in enumerate(table.columns):
        if column.right:  # a number is never folded
            natural[place] = max(width(texts[place]) for texts in table.texts())
    widths = [
        most if column.right else min(most, max(_MIN_WIDTH, width(column.heading)))
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
    return width(text), max(width(piece.rstrip()) for piece in _BREAK_POINTS.findall(text))


def _cost(cells: Mapping[tuple[int, int], int], columns: int) -> int:
    """The lines that cells take, and more for each that is broken within a word."""
    return sum(
        count * (-(-size // columns) + (_BREAK_COST if word > columns else 0))
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
    for piece in _BREAK_POINTS.findall(text):
        if line and width(line + piece.rstrip()) > columns:
            lines.append(line.rstrip())
            line = ""
        line += piece
        while width(line.rstrip()) > columns:
            lines.append(line[:columns])
            line = line[columns:]
    return "\n".join([*lines, line.rstrip()] if line.strip() or not lines else lines)


_UNBOUNDED = 100_000
_INDENT = 2
_GAP = 2


class Page(Protocol):
    """Where an answer is printed; texts are taken as they are, never as markup."""

    def heading(self, text: str, note: str = "") -> None:
        """A line above what follows, with a remark behind it."""

    def line(self, text: str = "", style: str = "") -> None:
        """One line."""

    def spans(self, pieces: Sequence[tuple[str, str]]) -> None:
        """Text in pieces, each with its style."""

    def table(self, table: OutputTable) -> None:
        """A table."""


class PlainPage:
    """Lines without colour; nothing is ever cut."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def heading(self, text: str, note: str = "") -> None:
        """A line of its own."""
        self.line(f"{text}  {note}" if note else text)

    def line(self, text: str = "", style: str = "") -> None:
        """One line; the style is for terminals."""
        print(clean_lines(text), file=self.stream)

    def spans(self, pieces: Sequence[tuple[str, str]]) -> None:
        """The pieces behind each other."""
        self.line("".join(text for text, _ in pieces))

    def table(self, table: OutputTable) -> None:
        """Columns under each other."""
        for line in aligned(table.compact(), "  "):
            print(line, file=self.stream)


class RichPage:
    """The same on a terminal: colours, and long cells folded rather than the line."""

    def __init__(self, stream: IO[str], color: bool = True) -> None:
        from rich.console import Console

        bound = None if stream.isatty() else _UNBOUNDED
        self.console = Console(
            file=stream,
            force_terminal=True,
            color_system="auto" if color else None,
            highlight=False,
            markup=False,
            width=bound,
        )

    def heading(self, text: str, note: str = "") -> None:
        """A bold line, its remark in grey."""
        from rich.text import Text

        self.console.print(Text.assemble((clean(text), "bold"), "  ", (clean(note), "dim")))

    def line(self, text: str = "", style: str = "") -> None:
        """One line, left to the terminal to wrap, so that it can be copied."""
        from rich.text import Text

        self.console.print(Text(clean_lines(text), style), soft_wrap=True)

    def spans(self, pieces: Sequence[tuple[str, str]]) -> None:
        """The pieces behind each other."""
        from rich.text import Text

        made = [(clean_lines(text), style) for text, style in pieces]
        self.console.print(Text.assemble(*made), soft_wrap=True)

    def table(self, table: OutputTable) -> None:
        """Columns under each other, long cells folded; a spare column may find no room."""
        from rich.padding import Padding

        table = table.compact()
        last = len(table.columns) - 1
        left_out = ""
        if natural_width(table) + _INDENT > self.console.width and table.columns[last].spare:
            left_out = table.columns[last].heading
            table = table.without([last])
        shown = rich_table(table, self.console.width - _INDENT)
        self.console.print(Padding(shown, (0, 0, 0, _INDENT), expand=False))
        if left_out:
            self.line(f"  no room for {left_out}; --format tsv shows them", "dim")


def rich_table(table: OutputTable, room: int) -> Any:
    """A table as rich draws it, its columns as wide as `room` lets them be."""
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(
        box=None,
        show_header=table.headings,
        header_style="dim",
        pad_edge=False,
        padding=(0, _GAP, 0, 0),
    )
    gaps = _GAP * (len(table.columns) - 1)
    crowded = natural_width(table) > room
    widths = fitted_widths(table, room - gaps) if crowded else [_UNBOUNDED] * len(table.columns)
    for column in table.columns:
        justify: Any = "right" if column.right else "left"
        made.add_column(
            column.heading,
            justify=justify,
            style=column.style,
            overflow="fold",
            no_wrap=column.right,
        )
    for row in table.rows:
        cells = zip(row, widths, strict=True)
        texts = ((cell, folded(cell_text(cell), columns)) for cell, columns in cells)
        made.add_row(*(Text(text, getattr(cell, "style", "")) for cell, text in texts))
    return made


def page(color: Color = Color.auto, stream: IO[str] | None = None) -> Page:
    """Where to print: fitted to a terminal's width, and in colour where that is wanted."""
    stream = sys.stdout if stream is None else stream
    colored = use_color(color, stream)
    if colored or (stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"):
        return RichPage(stream, colored)
    return PlainPage(stream)


def note(text: str, quiet: bool = False) -> None:
    """A remark on stderr."""
    if not quiet:
        print(clean_lines(text), file=sys.stderr)
