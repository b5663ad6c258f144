"""Output as HTML: what a command prints, for the output of a cell of a notebook.

Styles are inline, because notebooks remove style sheets, and fit light and dark themes.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from io import StringIO
from typing import Final

from cfgraph.cli.output import OutputTable, Page, cell_text
from cfgraph.ir.printable import clean_lines

_STYLES: Final = {
    "bold": "font-weight:600",
    "cyan": "color:#3b8ec2",
    "dim": "opacity:.65",
    "green": "color:#3a9d52",
    "red": "color:#e0504a",
    "yellow": "color:#b8860b",
}
# a cell of a notebook is no place for more
_MAX_ROWS: Final = 100
_MAX_LINES: Final = 400
_MAX_CELL: Final = 300


class HtmlPage(Page):
    """Output to HTML; everything that is printed is escaped."""

    def __init__(self) -> None:
        super().__init__(StringIO())
        self._pieces: list[str] = []
        self._omitted = 0

    def heading(self, text: str, remark: str = "") -> None:
        """Add a bold line with a dim remark."""
        self.spans([(text, "bold"), (f"  {remark}" if remark else "", "dim")])

    def line(self, text: str = "", style: str = "") -> None:
        """Add one line."""
        self.spans([(text, style)])

    def items(self, items: Sequence[str], style: str = "") -> None:
        """Add items, separated by commas, which the notebook folds."""
        self.line(f"  {', '.join(items)}", style)

    def command(self, text: str, style: str = "") -> None:
        """Add a command to copy."""
        self._add(f"<pre style='margin:0 0 0 1em'>{escaped(text)}</pre>")

    def spans(self, pieces: Sequence[tuple[str, str]]) -> None:
        """Add one line of pieces, each a text and its style."""
        inner = "".join(_span(text, style) for text, style in pieces if text)
        self._add(f"<div style='white-space:pre-wrap;overflow-wrap:anywhere'>{inner or ' '}</div>")

    def table(self, table: OutputTable) -> None:
        """Add the first rows of a table, without its empty columns."""
        table = table.compact()
        rows = [_row(table, row, "td") for row in table.rows[:_MAX_ROWS]]
        if table.headings:
            rows.insert(0, _row(table, [column.heading for column in table.columns], "th"))
        self._add(
            f"<table style='border-collapse:collapse;margin:0 0 0 1em'>{''.join(rows)}</table>"
        )
        if len(table.rows) > _MAX_ROWS:
            self.line(f"  and {len(table.rows) - _MAX_ROWS} more", "dim")

    def _add(self, piece: str) -> None:
        if len(self._pieces) < _MAX_LINES:
            self._pieces.append(piece)
        else:
            self._omitted += 1

    def text(self) -> str:
        """The HTML of all that was added."""
        more = f"<div>and {self._omitted} more lines</div>" if self._omitted else ""
        return f"<div style='line-height:1.4'>{''.join(self._pieces)}{more}</div>"


def escaped(text: str) -> str:
    """Text for HTML, between tags or in an attribute."""
    return html.escape(clean_lines(text))


def _span(text: str, style: str) -> str:
    css = ";".join(_STYLES[word] for word in style.split() if word in _STYLES)
    return f"<span style='{css}'>{escaped(text)}</span>" if css else escaped(text)


def _row(table: OutputTable, row: Sequence[object], tag: str) -> str:
    cells = []
    for column, cell in zip(table.columns, row, strict=True):
        text = cell_text(cell)
        shown = text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}…"
        style = "" if tag == "th" else column.style
        align = "right" if column.right else "left"
        css = f"text-align:{align};padding:1px 12px 1px 0;vertical-align:top;white-space:pre-wrap"
        cells.append(f"<{tag} style='{css}'>{_span(shown, style)}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"
