"""Show a run as it happens: a line an event on stderr, and totals at the end."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import IO, Any, Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.console.page import Page, PlainPage, page
from cfgraph.console.tables import Column, Table, clean, pad
from cfgraph.console.values import summary_text
from cfgraph.ir.graph import Graph
from cfgraph.ir.units import format_byte_size, format_duration
from cfgraph.options import Color
from cfgraph.runtime.devices.simulated import device_text
from cfgraph.runtime.trace import ROOT_FRAME, TraceEvent
from cfgraph.runtime.trace_summary import Total, Totals

HEAD: Final = 100
TAIL: Final = 20
TOP: Final = 10
PATIENCE_NS: Final = 300_000_000
_STYLES: Final = ("dim", "dim", "cyan", "", "magenta", "green")
_COLUMNS: Final = ("ms", "device", "frame", "node", "op", "outputs")

Row = tuple[str, str, str, str, str, str]


def row_of(event: TraceEvent, short: bool = False) -> Row:
    """An event as the cells of a line; `short` leaves out what TensorFlow adds to loops' names."""
    frame = "" if event.frame == ROOT_FRAME else clean(event.frame)
    if short:
        frame = frame.replace("/while_context[", "[").removeprefix("/")
    told = clean(_outputs(event))
    return (
        f"{event.start_ns / 1e6:.3f}",
        device_text(event.device, real=event.real),
        frame,
        clean(event.node),
        clean(event.op),
        told,
    )


def _outputs(event: TraceEvent) -> str:
    if event.kind == "copy":
        duration = format_duration(event.end_ns - event.start_ns)
        return f"{event.text} {format_byte_size(event.bytes)}, {duration}"
    if event.text:
        return event.text
    if event.kind == "send":
        return f"{'dead' if event.dead else f'{event.bytes} B'} to {event.peer}"
    if event.dead or (event.kind == "recv" and event.outputs == (None,)):
        return "dead"
    texts = ["dead" if item is None else summary_text(item) for item in event.outputs]
    return ", ".join(texts) if set(texts) != {"dead"} else "-"


class PlainTrace:
    """Writes every event as a line, for a file or a pipe; the widths are those of the graph."""

    def __init__(self, stream: IO[str], graph: Graph) -> None:
        self.stream = stream
        nodes = max((len(node.name) for node in graph), default=4)
        ops = max((len(node.op) for node in graph), default=2)
        paths = max(len(frame.path) + 3 * frame.depth for frame in frames(graph).all)
        self.widths = [12, 6, max(5, paths), nodes, ops]
        self._write(_COLUMNS)

    def event(self, event: TraceEvent) -> None:
        """Write one line."""
        self._write(row_of(event))

    def _write(self, row: Iterable[str]) -> None:
        *cells, last = row
        for place, cell in enumerate(cells):
            self.widths[place] = max(self.widths[place], len(cell))
        padded = [
            pad(cell, width, right=place == 0)
            for place, (cell, width) in enumerate(zip(cells, self.widths, strict=True))
        ]
        print("  ".join([*padded, last]).rstrip(), file=self.stream)

    def close(self) -> None:
        """Nothing is left to write."""


class TerminalTrace:
    """Shows the newest events of a long run, and keeps the first and the last ones to print."""

    def __init__(self, out: Any) -> None:
        self.console = out
        self.head: list[TraceEvent] = []
        self.tail: deque[TraceEvent] = deque(maxlen=TAIL)
        self.count = 0
        self._live: Any = None

    def event(self, event: TraceEvent) -> None:
        """Keep one event."""
        self.count += 1
        kept = self.head if len(self.head) < HEAD else self.tail
        kept.append(event)
        if self._live is None and event.end_ns > PATIENCE_NS:
            self._show_newest()

    def _show_newest(self) -> None:
        from rich.live import Live

        self._live = Live(
            console=self.console, refresh_per_second=8, transient=True, get_renderable=self._newest
        )
        self._live.start()

    def _newest(self) -> Any:
        newest = list(self.tail) or self.head
        room = max(4, min(TAIL, self.console.height - 4))
        return _terminal_table(newest[-room:], fold=False)

    def close(self) -> None:
        """Print the first and the last events."""
        if self._live is not None:
            self._live.stop()
        hidden = self.count - len(self.head) - len(self.tail)
        if not hidden:
            self.console.print(_terminal_table([*self.head, *self.tail]))
            return
        self.console.print(_terminal_table(self.head))
        self.console.print(f"… {hidden} more; --trace-out FILE.json keeps them all …", style="dim")
        self.console.print(_terminal_table(self.tail))


def _terminal_table(events: Iterable[TraceEvent], fold: bool = True) -> Any:
    """Events in colour, dead ones in grey; what is too wide is folded, or else cut."""
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in _COLUMNS:
        right = name == _COLUMNS[0]
        made.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=right or not fold,
            overflow="fold" if fold else "ellipsis",
        )
    for event in events:
        row, styles = row_of(event, short=True), ["dim"] * 6 if event.dead else _STYLES
        made.add_row(*(Text(cell, style) for cell, style in zip(row, styles, strict=True)))
    return made


class ShownTrace:
    """What `--trace` shows on stderr: the events, then the totals."""

    def __init__(self, graph: Graph, color: Color) -> None:
        out = page(color, sys.stderr)
        self.page: Page = out
        self.totals = Totals()
        self.lines: PlainTrace | TerminalTrace = (
            PlainTrace(sys.stderr, graph)
            if isinstance(out, PlainPage)
            else TerminalTrace(getattr(out, "console", None))
        )

    def event(self, event: TraceEvent) -> None:
        """Show one event."""
        self.totals.event(event)
        self.lines.event(event)

    def close(self) -> None:
        """Show the totals."""
        self.lines.close()
        out, totals = self.page, self.totals
        out.line()
        dead = f", {totals.dead} dead" if totals.dead else ""
        out.heading(f"{totals.count} tokens{dead}", f"in {format_duration(totals.end_ns)}")
        for key, title in (("op", "by op"), ("node", "by node"), ("frame", "by loop")):
            found = totals.by(key)
            if key == "frame" and len(found) < 2:
                continue
            more = f"the {TOP} longest of {len(found)}" if len(found) > TOP else ""
            out.line()
            out.heading(title, more)
            out.table(totals_table(key, found[:TOP], sum(total.total_ns for total in found)))


def totals_table(key: str, found: Iterable[Total], whole_ns: int) -> Table:
    """Counts and times, the longest first, with each one's share and the shares up to it."""
    columns = [
        Column(key, style="cyan"),
        *(
            Column(title, right=True)
            for title in ("count", "dead", "total", "mean", "max", "share", "up to here")
        ),
    ]
    table, sofar = Table(columns), 0
    for total in found:
        sofar += total.total_ns
        table.rows.append(
            (
                total.name,
                total.count,
                total.dead or None,
                format_duration(total.total_ns),
                format_duration(total.mean_ns),
                format_duration(total.max_ns),
                _share(total.total_ns, whole_ns),
                _share(sofar, whole_ns),
            )
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""
