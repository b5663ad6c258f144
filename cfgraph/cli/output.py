"""Tables and lines on stdout or stderr: plain text for pipes, rich for terminals."""

from __future__ import annotations

import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from shutil import get_terminal_size
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any, Final

from cfgraph.cli.options import VERBOSITY, Color, Verbosity, use_color
from cfgraph.ir.printable import clean, clean_lines
from cfgraph.reports import Column, columns

# late imports: a help page has no table

if TYPE_CHECKING:
    from cfgraph.cli.name_scopes import CommonScope

_GAP: Final = 2
_INDENT: Final = 2
# plain columns are padded up to this width; wider cells push the rest of their row
_MAX_PADDED: Final = 120
_UNBOUNDED: Final = 100_000
# width of flowed items, and the smallest piece of a word that is broken
_READABLE: Final = 78
_MIN_PIECE: Final = 8
# columns that a folded cell needs, to stay readable
_MIN_FOLDED: Final = 6
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_HIDES_NOTES: Final[ContextVar[bool]] = ContextVar("hides_notes", default=False)
_BREAKABLE: Final = re.compile(r"[^/ ,_]*[/ ,_]*")
_INNER_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Styled(str):
    """Text of a cell with its own style."""

    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        """Create a text with a style."""
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


@dataclass(slots=True)
class OutputTable:
    """Columns and rows; a cell is printed as text, None as an empty cell."""

    columns: Sequence[Column]
    rows: list[Sequence[Any]] = field(default_factory=list)
    headings: bool = True

    def texts(self) -> Iterator[tuple[str, ...]]:
        """Yield the printed rows, headings first."""
        if self.headings:
            yield tuple(column.heading for column in self.columns)
        for row in self.rows:
            yield tuple(cell_text(cell) for cell in row)

    def without(self, indices: Collection[int]) -> OutputTable:
        """Return the table without some columns."""
        rest = [index for index in range(len(self.columns)) if index not in indices]
        rows: list[Sequence[Any]] = [[row[index] for index in rest] for row in self.rows]
        return OutputTable([self.columns[index] for index in rest], rows, self.headings)

    def compact(self) -> OutputTable:
        """Return the table without empty optional columns."""
        empty = [
            index
            for index, column in enumerate(self.columns)
            if column.optional and not any(cell_text(row[index]) for row in self.rows)
        ]
        return self.without(empty) if empty else self

    def below_scope(self) -> tuple[str, OutputTable]:
        """Return the scope that names of scoped columns have in common, and the table below it."""
        scoped = [index for index, column in enumerate(self.columns) if column.scoped]
        if not scoped:
            return "", self
        from cfgraph.cli.name_scopes import common_scope

        common = common_scope(cell_text(row[index]) for row in self.rows for index in scoped)
        if not common.shown:
            return "", self
        rows = [
            [_shown(cell, common) if index in scoped else cell for index, cell in enumerate(row)]
            for row in self.rows
        ]
        return common.scope, OutputTable(self.columns, [*rows], self.headings)


def _shown(cell: Any, common: CommonScope) -> Any:
    text = common.text(cell_text(cell))
    return Styled(text, cell.style) if isinstance(cell, Styled) else text


def report_table(
    kind: type, reports: Iterable[Any], *names: str, headings: bool = True
) -> OutputTable:
    """Return a row per report; columns are fields and properties, as in `reason.kind`."""
    shown = columns(kind, names)
    paths = [name.split(".") for name in names]
    rows = [[*map(partial(_cell, report), shown, paths)] for report in reports]
    return OutputTable(shown, [*rows], headings)


def _cell(report: Any, column: Column, path: Sequence[str]) -> Any:
    value = report
    for name in path:
        value = None if value is None else getattr(value, name)
    return value if value is None or column.cell is None else column.cell(value)


def cell_text(cell: Any) -> str:
    """Return the printed text of a cell."""
    if cell is None:
        return ""
    if isinstance(cell, list | tuple):
        return ", ".join(cell_text(item) for item in cell)
    return clean(str(cell))


def width(text: str) -> int:
    """Return the number of terminal columns that a text occupies."""
    if text.isascii():
        return len(text)
    # most characters of a text with an ellipsis are ASCII, which need no look-up
    return len(text) + sum(_char_width(char) - 1 for char in _NOT_ASCII.findall(text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, columns: int, right: bool | None = False) -> str:
    """Pad a text with blanks to a width."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def plain_lines(table: OutputTable, indent: str = "") -> Iterator[str]:
    """Yield the aligned lines of a table; nothing is truncated."""
    rows = list(table.texts())
    widths = [min(columns, _MAX_PADDED) for columns in _column_widths(rows)]
    for row in rows:
        cells = [
            pad(cell, columns, column.right)
            for cell, columns, column in zip(row, widths, table.columns, strict=True)
        ]
        yield (indent + (" " * _GAP).join(cells)).rstrip()


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width, cells)) for cells in zip(*rows, strict=True)]


def _least_width(table: OutputTable) -> int:
    """Return the width that a table needs if its texts are folded, which numbers never are."""
    widths = _column_widths(list(table.texts()))
    columns = zip(table.columns, widths, strict=True)
    least = (size if column.right else min(size, _MIN_FOLDED) for column, size in columns)
    return _INDENT + sum(least) + _GAP * (len(widths) - 1)


def tab_separated(table: OutputTable) -> Iterator[str]:
    """Yield the lines of a table with tabs between cells; no cell contains a tab."""
    for row in table.texts():
        yield "\t".join(row)


def flowed(items: Sequence[str], columns: int = _READABLE, indent: str = "  ") -> Iterator[str]:
    """Yield comma-separated items in lines of about that width; no item is broken."""
    line = indent
    for index, item in enumerate(items):
        text = item + ("," if index < len(items) - 1 else "")
        if line != indent and width(line) + width(text) > columns:
            yield line.rstrip()
            line = indent
        line += text + " "
    if line.strip():
        yield line.rstrip()


def command_lines(command: str, columns: int) -> Iterator[str]:
    """Yield the lines of a shell command, which backslashes continue, of at most that width."""
    words = [shlex.quote(word) for word in shlex.split(command)]
    line, indent = " ", "  "
    for index, word in enumerate(words):
        # room for the backslash; an option and its value stay in one line
        pair = word if index + 1 == len(words) or word[:1] != "-" else f"{word} {words[index + 1]}"
        if line.strip() and width(line) + width(pair) + 3 > columns:
            yield f"{line} \\"
            line = indent * 2 + word
        else:
            line += " " + word
        if width(line) + 2 > columns:
            *pieces, line = _broken_word(line, shlex.split(word)[0] if word else "", columns)
            yield from pieces
    yield line


def _broken_word(line: str, word: str, columns: int) -> Iterator[str]:
    """Yield lines for a line whose last word is too long; the shell joins the pieces."""
    head = line[: len(line) - len(shlex.quote(word))]
    while True:
        room = max(columns - width(head) - 2, _MIN_PIECE)
        end = len(word)
        while end > _MIN_PIECE and width(shlex.quote(word[:end])) > room:
            end -= 1
        if end == len(word):
            yield head + shlex.quote(word)
            return
        yield f"{head}{shlex.quote(word[:end])}\\"
        head, word = "", word[end:]


def folded(text: str, columns: int) -> str:
    """Break a text into lines of a width: after a slash, a blank or the like where possible.

    A longer name breaks before a capital.
    """
    lines, line, columns = list[str](), "", max(columns, 1)
    for piece in _BREAKABLE.findall(text):
        if line and width(line + piece.rstrip()) > columns:
            lines.append(line.rstrip())
            line = ""
        line += piece
        while width(line.rstrip()) > columns:
            words = (word.start() for word in _INNER_WORD.finditer(line, 1, columns + 1))
            end = max(words, default=columns)
            lines.append(line[:end])
            line = line[end:]
    return "\n".join([*lines, line.rstrip()] if line.strip() or not lines else lines)


def shortened_name(name: str, columns: int) -> str:
    """The end of a name that fits a width: without its outer scopes where possible."""
    if width(name) <= columns:
        return name
    rest = name
    while "/" in rest and width(rest) + 2 > columns:
        rest = rest.partition("/")[2]
    while rest and width(rest) + 2 > columns:
        rest = rest[1:]
    return f"…{'/' if name.endswith(f'/{rest}') else ''}{rest}"


def _slice_of(
    pieces: Iterable[tuple[str, str]], start: int, length: int
) -> Iterator[tuple[str, str]]:
    """The pieces of a line, each a text and its style, between two positions in its text."""
    for text, style in pieces:
        yield text[max(start, 0) : max(start + length, 0)], style
        start -= len(text)


class FoldedCell:
    """A cell for rich that is folded at slashes, so that names of nodes stay readable."""

    def __init__(self, cell: Any) -> None:
        self.text = cell_text(cell)
        self.style = getattr(cell, "style", "")

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        yield Text(folded(self.text, max(1, options.max_width)), self.style)

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        from rich.measure import Measurement

        columns = width(self.text)
        return Measurement(min(columns, 1), columns)


class NameCell(FoldedCell):
    """A cell for rich that shows the end of a name that is too long, in one line."""

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        yield Text(shortened_name(self.text, max(1, options.max_width)), self.style)


class Page:
    """Plain output to a stream: no color, no truncation, and no markup in texts."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def heading(self, text: str, remark: str = "") -> None:
        """Print a line above what follows, with a remark after it."""
        self.line(f"{text}  {remark}" if remark else text)

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line of text, with its control characters escaped."""
        print(clean_lines(text), file=self.stream)

    def items(self, items: Sequence[str], style: str = "") -> None:
        """Print items, separated by commas, in lines of a readable width."""
        for line in flowed(items):
            self.line(line, style)

    def paragraph(self, text: str, style: str = "") -> None:
        """Print a sentence, folded to a terminal."""
        self.line(text, style)

    def wrapped(self, text: str) -> str:
        """A line for this page, in several lines on a terminal; no path or word is broken."""
        return text

    def command(self, text: str, style: str = "") -> None:
        """Print a command to copy."""
        self.line(f"  {text}", style)

    def spans(self, pieces: Sequence[tuple[str, str]]) -> None:
        """Print one line of pieces, each a text and its style."""
        self.line("".join(text for text, _ in pieces))

    def folded_spans(self, pieces: Sequence[tuple[str, str]], indent: int) -> None:
        """Print pieces, folded to a terminal with an indent from the second line on."""
        self.spans(pieces)

    def table(self, table: OutputTable) -> None:
        """Print a table as indented lines, without its empty columns."""
        scope, table = table.compact().below_scope()
        if scope:
            self.line(f"{' ' * _INDENT}below {scope}:", "dim")
        self.rows(table)

    def rows(self, table: OutputTable) -> None:
        """Print the lines of a table."""
        for line in plain_lines(table, " " * _INDENT):
            print(line, file=self.stream)

    def facts(self, rows: Iterable[Sequence[Any]]) -> None:
        """Print rows of a kind of fact, a name, and a remark."""
        which, more = Column("which", style="cyan", scoped=True), Column("more", scoped=True)
        columns = [Column("what", style="dim"), which, more]
        self.table(OutputTable(columns, [*rows], headings=False))


class RichPage(Page):
    """Output to a terminal: colors, and long cells folded to its width."""

    def __init__(self, stream: IO[str], color: bool = True) -> None:
        from rich.console import Console

        super().__init__(stream)
        self.console = Console(
            file=stream,
            force_terminal=True,
            color_system="auto" if color else None,
            highlight=False,
            markup=False,
            width=None if stream.isatty() else _UNBOUNDED,
        )

    def heading(self, text: str, remark: str = "") -> None:
        """Print a bold line with a dim remark, which has lines of its own if they are too long."""
        title, remark = clean(text), clean(remark)
        if width(title) + _GAP + width(remark) <= self.console.width:
            gap = " " * _GAP if remark else ""
            self.spans([(title, "bold"), (gap, ""), (remark, "dim")])
            return
        self.line(title, "bold")
        for line in _lines_of_words(f"{' ' * _INDENT}{remark}", self.console.width):
            self.line(line, "dim")

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line, wrapped by the terminal itself, so that it can be copied."""
        self.spans([(text, style)])

    def items(self, items: Sequence[str], style: str = "") -> None:
        """Print items, separated by commas, folded to the terminal."""
        columns = min(self.console.width, _READABLE)
        for line in flowed(items, columns):
            self.line(folded(line, self.console.width), style)

    def paragraph(self, text: str, style: str = "") -> None:
        """Print a sentence, folded to the terminal."""
        indent = " " * (len(text) - len(text.lstrip(" ")))
        for line in folded(text.lstrip(" "), self.console.width - len(indent)).split("\n"):
            self.line(indent + line, style)

    def wrapped(self, text: str) -> str:
        """A line for this page, in several lines on a terminal; no path or word is broken."""
        return "\n".join(_lines_of_words(text, self.console.width))

    def command(self, text: str, style: str = "") -> None:
        """Print a command to copy; a long one continues in further lines."""
        for line in command_lines(text, self.console.width):
            self.line(line, style)

    def spans(self, pieces: Sequence[tuple[str, str]]) -> None:
        """Print one line of pieces, each a text and its style."""
        from rich.text import Text

        styled = [(clean_lines(text), style) for text, style in pieces]
        self.console.print(Text.assemble(*styled), soft_wrap=True)

    def folded_spans(self, pieces: Sequence[tuple[str, str]], indent: int) -> None:
        """Print pieces, folded to the terminal with an indent from the second line on."""
        text = "".join(text for text, _ in pieces)
        columns = self.console.width
        if "\n" in text or width(text) <= columns:
            self.spans(pieces)
            return
        end = 0
        for line in folded(text, columns - indent).split("\n"):
            start = text.index(line, end)
            self.spans([(" " * indent if end else "", ""), *_slice_of(pieces, start, len(line))])
            end = start + len(line)

    def rows(self, table: OutputTable) -> None:
        """Print a table, unfolded if its numbers leave no room for the rest.

        A spare column is omitted if the terminal is too narrow for it.
        """
        from rich.padding import Padding

        last = len(table.columns) - 1
        widths = _column_widths(list(table.texts()))
        omitted = ""
        if sum(widths) + _GAP * last + _INDENT > self.console.width and table.columns[last].spare:
            omitted = table.columns[last].heading
            table = table.without([last])
        if _least_width(table) > self.console.width:
            super().rows(table)
            return
        self.console.print(Padding(rich_table(table), (0, 0, 0, _INDENT), expand=False))
        if omitted:
            self.line(f"  no room for {omitted}; a wider terminal shows them", "dim")


def rich_table(table: OutputTable) -> Any:
    """Return a table for rich, which folds long cells; numbers are never folded."""
    from rich.table import Table

    styled = Table(
        box=None,
        show_header=table.headings,
        header_style="dim",
        pad_edge=False,
        padding=(0, _GAP, 0, 0),
    )
    for column in table.columns:
        styled.add_column(
            column.heading,
            justify="right" if column.right else "left",
            style=column.style,
            overflow="fold",
            no_wrap=bool(column.right),
        )
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        styled.add_row(
            *((NameCell if column.names else FoldedCell)(cell) for column, cell in cells)
        )
    return styled


def page(color: Color = Color.auto, stream: IO[str] | None = None) -> Page:
    """Return a page for a stream: fitted to a terminal, colored where that is requested."""
    stream = sys.stdout if stream is None else stream
    colored = use_color(color, stream)
    if colored or (stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"):
        return RichPage(stream, colored)
    return Page(stream)


def note(text: str, quiet: bool = False) -> None:
    """Print a message on stderr, wrapped between words on a terminal."""
    if not quiet and not is_quiet():
        message(text)


def is_quiet() -> bool:
    """True for a command with `--quiet`, and where notes are hidden."""
    return _HIDES_NOTES.get() or VERBOSITY.get() is Verbosity.quiet


@contextmanager
def hidden_notes(hidden: bool = True) -> Iterator[None]:
    """Print no notes meanwhile, as with `--quiet`; details of `--verbose` are printed."""
    token = _HIDES_NOTES.set(hidden or _HIDES_NOTES.get())
    try:
        yield
    finally:
        _HIDES_NOTES.reset(token)


def detail(text: str) -> None:
    """Print a message on stderr with `--verbose`."""
    if VERBOSITY.get() is Verbosity.verbose:
        message(text)


def warn(text: str) -> None:
    """Print a warning on stderr, also with `--quiet`."""
    message(f"warning: {text}")


def message(text: str) -> None:
    """Print a message on stderr, also with `--quiet`."""
    for line in clean_lines(text).split("\n"):
        print("\n".join(_wrapped(line)), file=sys.stderr)


def _wrapped(line: str) -> list[str]:
    """The lines of a message; no path or command is broken."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return _lines_of_words(line, get_terminal_size().columns) if is_terminal else [line]


def _lines_of_words(line: str, columns: int) -> list[str]:
    indent = "" if line.startswith(" ") else "  "
    return wrap(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [line]


def wrapped_error(text: str) -> str:
    """The text of an error for stderr: its message wrapped on a terminal, what follows to copy."""
    message, newline, rest = text.partition("\n")
    return "\n".join(_wrapped(message)) + newline + rest
