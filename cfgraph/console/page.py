"""Print tables and lines: plain text to a file or a pipe, with rich to a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO, Any, Protocol

from cfgraph.console.fold import fitted_widths, folded
from cfgraph.console.tables import Table, aligned, cell_text, clean, clean_lines, natural_width
from cfgraph.options import Color, use_color

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

    def table(self, table: Table) -> None:
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

    def table(self, table: Table) -> None:
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

    def table(self, table: Table) -> None:
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


def rich_table(table: Table, room: int) -> Any:
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
