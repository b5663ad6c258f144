"""`--timeline`: draw one lane per device over time, with messages between lanes."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, Page, pad, page, width
from cfgraph.ir.devices import device_label
from cfgraph.ir.units import format_duration
from cfgraph.reports import Column
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.summary import DEAD, OUTSIDE, TraceLane, TraceLanes

_PLAIN_COLUMNS: Final = 100
_MIN_COLUMNS: Final = 20
_IDLE: Final = " "
_SEVERAL: Final = "*"
_APART: Final = 3  # distinct iterations that one column can show
_STYLES: Final = {DEAD: "dim", OUTSIDE: "green", _IDLE: "", _SEVERAL: "blue"}
_BY_PARITY: Final = ("cyan", "magenta")
_ARROW: Final = "yellow"
_LEGEND: Final = (
    f"{OUTSIDE} outside loops; 0-9 last digit of the iteration, {_SEVERAL} several iterations; "
    f"{DEAD} dead; ↓ ↑ ↕ messages"
)


class Timeline:
    """Observes a run, and draws its timeline on stderr at the end."""

    deferred = True

    def __init__(self, color: Color) -> None:
        self.lanes = TraceLanes()
        self.page: Page = page(color, sys.stderr)

    def event(self, event: TraceEvent) -> None:
        """Record one event."""
        self.lanes.event(event)

    def close(self) -> None:
        """Draw the timeline."""
        if self.lanes.lanes:
            draw_lanes(self.page, self.lanes, _columns())


def draw_lanes(out: Page, lanes: TraceLanes, columns: int) -> None:
    """Draw lanes of a given width, and a table of each device's activity."""
    chosen = sorted(lanes.lanes.values(), key=lambda lane: _sort_key(lane.device))
    labels = [device_label(lane.device, real=lane.real) for lane in chosen]
    label = max(map(width, labels)) + 2
    room = max(_MIN_COLUMNS, columns - label - 1)
    picture = _LaneDrawing(lanes, chosen, room)
    out.line()
    out.heading("timeline")
    for index, (lane, text) in enumerate(zip(chosen, labels, strict=True)):
        out.spans([(pad(text, label), "bold"), *picture.lane(lane)])
        if index < len(chosen) - 1:
            out.spans([(" " * label, ""), *picture.gap(index)])
    out.spans([(" " * label, ""), (_axis(room, lanes.end_ns), "dim")])
    out.paragraph(_LEGEND, "dim")
    out.line()
    out.table(_table(chosen, labels))


class _LaneDrawing:
    """Characters of the lanes and of the gaps between them."""

    def __init__(self, lanes: TraceLanes, chosen: Sequence[TraceLane], room: int) -> None:
        self.lanes = lanes
        self.room = room
        self.bins = lanes.end_ns // lanes.step_ns + 1
        indices = {lane.device: bin for bin, lane in enumerate(chosen)}
        self.gaps: list[dict[int, set[str]]] = [{} for _ in chosen[1:]]
        for bin, source, target in lanes.arrivals:
            self._arrow(self.column(bin), indices[source], indices[target])

    def column(self, bin: int) -> int:
        """Return the column of a time bin."""
        return min(bin * self.room // self.bins, self.room - 1)

    def _arrow(self, column: int, source: int, target: int) -> None:
        down = target > source
        crossed = range(source, target) if down else range(target, source)
        head = (target - 1) if down else target
        for gap in crossed:
            kind = ("↓" if down else "↑") if gap == head else "│"
            self.gaps[gap].setdefault(column, set()).add(kind)

    def lane(self, lane: TraceLane) -> list[tuple[str, str]]:
        """Return the marks of a device: per column the one with the most time."""
        spent: dict[int, Counter[str]] = {}
        for (bin, mark), took in lane.marks.items():
            spent.setdefault(self.column(bin), Counter())[mark] += took
        marks = [_busiest_mark(spent.get(column)) for column in range(self.room)]
        return [("".join(same), _mark_style(mark)) for mark, same in groupby(marks)]

    def gap(self, index: int) -> list[tuple[str, str]]:
        """Return the messages between a lane and the next."""
        crossing = self.gaps[index]
        text = "".join(_message_mark(crossing.get(column)) for column in range(self.room))
        return [(text.rstrip(), _ARROW)]


def _busiest_mark(spent: Counter[str] | None) -> str:
    if not spent:
        return _IDLE
    live = sorted(mark for mark in spent if mark != DEAD)
    if len([mark for mark in live if mark != OUTSIDE]) > _APART:
        return _SEVERAL
    return max(live or spent, key=spent.__getitem__)


def _message_mark(kinds: set[str] | None) -> str:
    if not kinds:
        return " "
    heads = kinds - {"│"}
    if len(heads) > 1:
        return "↕"
    return heads.pop() if heads else "│"


def _mark_style(mark: str) -> str:
    return _STYLES[mark] if mark in _STYLES else _BY_PARITY[int(mark) % 2]


def _axis(room: int, end_ns: int) -> str:
    """Return the scale below the lanes: times at both ends and in the middle."""
    middle, end = format_duration(end_ns / 2), format_duration(end_ns)
    line = pad("|0", room // 2) + f"|{middle}"
    return pad(line, max(room - len(end) - 1, len(line))) + f"{end}|"


def _table(lanes: Sequence[TraceLane], labels: Sequence[str]) -> OutputTable:
    columns = [
        Column("device", style="cyan"),
        *(Column(name, right=True) for name in ("tokens", "dead", "busy", "sent")),
        *(Column(name, right=True) for name in ("received", "bytes sent")),
    ]
    rows: list[Any] = [
        (
            text,
            lane.tokens,
            lane.dead or None,
            format_duration(lane.busy_ns),
            lane.sent,
            lane.received,
            lane.bytes,
        )
        for lane, text in zip(lanes, labels, strict=True)
    ]
    return OutputTable(columns, rows)


def _sort_key(device: str) -> tuple[str, int]:
    head, _, number = device.rpartition(":")
    return head, int(number) if number.isdigit() else 0


def _columns() -> int:
    """Return the width of the terminal on stderr, or a fixed one."""
    if not sys.stderr.isatty():
        return _PLAIN_COLUMNS
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return shutil.get_terminal_size((_PLAIN_COLUMNS, 24)).columns
