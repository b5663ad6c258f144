"""Observers of a run: the live trace on stderr, and the files written about the run."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.cli.json_output import Artifact, add_member
from cfgraph.cli.options import Color
from cfgraph.cli.output import (
    FoldedCell,
    NameCell,
    OutputTable,
    Page,
    RichPage,
    Styled,
    note,
    pad,
    page,
    width,
)
from cfgraph.cli.run_options import ClockOptions, ObserverOptions, PrintOptions
from cfgraph.console.graph_files import Source, artifact
from cfgraph.console.runs.prediction import RunWork
from cfgraph.console.runs.run_memory import print_memory
from cfgraph.console.runs.run_request import RunRequest, TraceFile
from cfgraph.console.runs.run_times import requested_times
from cfgraph.console.runs.timeline import Timeline
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.taps import NonfiniteTap, TapPrinter, complete_pattern
from cfgraph.console.values import summary_text
from cfgraph.errors import UsageError
from cfgraph.extensions import NODE_DATA, extension
from cfgraph.ir.devices import device_label
from cfgraph.ir.file_io import StagedFiles, write_atomically
from cfgraph.ir.graph import Graph
from cfgraph.ir.printable import clean
from cfgraph.ir.units import format_byte_size, format_duration
from cfgraph.reports import Column
from cfgraph.runtime.cost_model import Calibration
from cfgraph.runtime.feeds.case_files import write_array
from cfgraph.runtime.preparation.prepared_runs import RunResult
from cfgraph.runtime.preparation.taps import TappedTensor, Taps
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import ROOT_FRAME, Observer, Tee, TraceEvent
from cfgraph.runtime.trace.summary import Total, Totals

if TYPE_CHECKING:
    from cfgraph.console.picture.pages import RunPage


HEAD_EVENTS: Final = 100
TAIL_EVENTS: Final = 20
MAX_TOTALS: Final = 10
# loops at each end of a path that are printed
END_LOOPS: Final = 4
PATIENCE_NS: Final = 300_000_000
_STYLES: Final = ("dim", "dim", "cyan", "", "magenta", "green")
_COLUMNS: Final = ("ms", "device", "frame", "node", "op", "outputs")

# on a terminal, long names lose their outer scopes, so that most events are one line
_NAMES: Final = ("frame", "node")
# columns of a trace that is too wide: the first one shrinks to a width, then the next one
_SHRINKING: Final = (
    ("node", 40),
    ("outputs", 24),
    ("frame", 10),
    ("node", 24),
    ("op", 14),
    ("outputs", 16),
    ("node", 10),
)
_GAP: Final = 2

EventRow = tuple[str, str, str, str, str, str]


def event_row(event: TraceEvent, short: bool = False) -> EventRow:
    """Return the cells of an event; `short` drops TensorFlow's suffix of frame names."""
    frame = "" if event.frame == ROOT_FRAME else clean(_abbreviated_path(event.frame))
    if short:
        frame = frame.replace("/while_context[", "[").removeprefix("/")
    outputs = clean(_outputs_text(event))
    return (
        f"{event.start_ns / 1e6:.3f}",
        device_label(event.device, real=event.real),
        frame,
        clean(event.node),
        clean(event.op),
        outputs,
    )


def _abbreviated_path(path: str) -> str:
    """Return a path without the middle ones of many loops."""
    loops = path.split("]/")
    hidden = len(loops) - 2 * END_LOOPS
    if hidden <= 0:
        return path
    return "]/".join(
        [*loops[:END_LOOPS], f"… {hidden} loops …/{loops[-END_LOOPS]}", *loops[1 - END_LOOPS :]]
    )


def _outputs_text(event: TraceEvent) -> str:
    if event.kind == "copy":
        duration = format_duration(event.end_ns - event.start_ns)
        return f"{event.text} {format_byte_size(event.bytes)}, {duration}"
    if event.text:
        return event.text
    if event.is_send:
        return f"{'dead' if event.dead else f'{event.bytes} B'} to {event.peer}"
    if event.dead or (event.is_recv and event.outputs == (None,)):
        return "dead"
    texts = ["dead" if item is None else summary_text(item) for item in event.outputs]
    return ", ".join(texts) if set(texts) != {"dead"} else "-"


class PlainTrace:
    """Writes one line per event, for a file or a pipe; column widths come from the graph."""

    def __init__(self, stream: IO[str], graph: Graph) -> None:
        self.stream = stream
        nodes = max((len(node.name) for node in graph), default=4)
        ops = max((len(node.op) for node in graph), default=2)
        shown = (frame for frame in frames(graph).all if frame.depth <= 2 * END_LOOPS)
        paths = max(len(frame.path) + 3 * frame.depth for frame in shown)
        self.widths = [12, 6, max(5, paths), nodes, ops]
        self._write(_COLUMNS)

    def event(self, event: TraceEvent) -> None:
        """Write one line."""
        self._write(event_row(event))

    def _write(self, row: Iterable[str]) -> None:
        *cells, last = row
        for index, cell in enumerate(cells):
            self.widths[index] = max(self.widths[index], len(cell))
        padded = [
            pad(cell, width, right=index == 0)
            for index, (cell, width) in enumerate(zip(cells, self.widths, strict=True))
        ]
        print("  ".join([*padded, last]).rstrip(), file=self.stream)

    def close(self) -> None:
        """Do nothing, since each event was written when it happened."""


class TerminalTrace:
    """Shows the newest events of a long run, and prints the first and the last ones at its end."""

    def __init__(self, out: Any) -> None:
        self.console = out
        self.head: list[TraceEvent] = []
        self.tail: deque[TraceEvent] = deque(maxlen=TAIL_EVENTS)
        self.count = 0
        self._live: Any = None

    def event(self, event: TraceEvent) -> None:
        """Record one event."""
        self.count += 1
        events = self.head if len(self.head) < HEAD_EVENTS else self.tail
        events.append(event)
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
        room = max(4, min(TAIL_EVENTS, self.console.height - 4))
        return _terminal_table(newest[-room:], self.console.width, fold=False)

    def _table(self, events: Sequence[TraceEvent]) -> Any:
        return _terminal_table(events, self.console.width)

    def close(self) -> None:
        """Print the first and the last events."""
        if self._live is not None:
            self._live.stop()
        hidden = self.count - len(self.head) - len(self.tail)
        if not hidden:
            self.console.print(self._table([*self.head, *self.tail]))
            return
        self.console.print(self._table(self.head))
        self.console.print(f"… {hidden} more; --trace-out FILE.json saves all …", style="dim")
        self.console.print(self._table(self.tail))


def _terminal_table(events: Sequence[TraceEvent], columns: int, fold: bool = True) -> Any:
    """Return a table of events of that width, dead ones dim; outputs are folded or truncated."""
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=None, header_style="dim", pad_edge=False, padding=(0, _GAP, 0, 0))
    rows = [event_row(event, short=True) for event in events]
    for name, size in zip(_COLUMNS, _fitted_widths([_COLUMNS, *rows], columns), strict=True):
        right = name == _COLUMNS[0]
        table.add_column(
            name,
            width=size,
            justify="right" if right else "left",
            no_wrap=right or not fold,
            overflow="fold" if fold else "ellipsis",
        )
    for event, row in zip(events, rows, strict=True):
        styles = ["dim"] * len(row) if event.dead else _STYLES
        named = zip(_COLUMNS, row, styles, strict=True)
        table.add_row(
            *(
                NameCell(Styled(cell, style))
                if name in _NAMES
                else FoldedCell(Styled(cell, style))
                if fold
                else Text(cell, style)
                for name, cell, style in named
            )
        )
    return table


def _fitted_widths(rows: Sequence[Sequence[str]], columns: int) -> list[int]:
    """The widths of the columns of a trace, which shrink in turn until they fit."""
    widths = [max(map(width, cells)) for cells in zip(*rows, strict=True)]
    for name, least in _SHRINKING:
        excess = sum(widths) + _GAP * (len(widths) - 1) - columns
        index = _COLUMNS.index(name)
        widths[index] -= max(0, min(excess, widths[index] - least))
    return widths


class LiveTrace:
    """The output of `--trace` on stderr: events, then totals."""

    def __init__(self, graph: Graph, color: Color) -> None:
        out = page(color, sys.stderr)
        self.page: Page = out
        self.totals = Totals()
        self.lines: PlainTrace | TerminalTrace = (
            TerminalTrace(out.console)
            if isinstance(out, RichPage)
            else PlainTrace(sys.stderr, graph)
        )

    def event(self, event: TraceEvent) -> None:
        """Show one event."""
        self.totals.event(event)
        self.lines.event(event)

    def close(self) -> None:
        """Print the totals."""
        self.lines.close()
        out, totals = self.page, self.totals
        out.line()
        dead = f", {totals.dead} dead" if totals.dead else ""
        out.heading(f"{totals.count} tokens{dead}", f"in {format_duration(totals.end_ns)}")
        for key, title in (("op", "by op"), ("node", "by node"), ("frame", "by loop")):
            ranked = totals.by(key)
            if key == "frame" and len(ranked) < 2:
                continue
            more = f"the {MAX_TOTALS} longest of {len(ranked)}" if len(ranked) > MAX_TOTALS else ""
            out.line()
            out.heading(title, more)
            out.table(
                totals_table(key, ranked[:MAX_TOTALS], sum(total.total_ns for total in ranked))
            )


def totals_table(key: str, totals: Iterable[Total], whole_ns: int) -> OutputTable:
    """Return counts and times, longest first, with shares and cumulative shares."""
    columns = [
        Column(key, style="cyan", names=key != "op", scoped=key != "op"),
        *(
            Column(title, right=True)
            for title in ("count", "dead", "total", "mean", "max", "share", "cumulative")
        ),
    ]
    table, cumulative = OutputTable(columns), 0
    for total in totals:
        cumulative += total.total_ns
        table.rows.append(
            (
                total.name,
                total.count,
                total.dead or None,
                format_duration(total.total_ns),
                format_duration(total.mean_ns),
                format_duration(total.max_ns),
                _percent_text(total.total_ns, whole_ns),
                _percent_text(cumulative, whole_ns),
            )
        )
    return table


def _percent_text(share: int, whole: int) -> str:
    return f"{100 * share / whole:.1f} %" if whole else ""


def requested_taps(
    request: RunRequest,
    options: ObserverOptions,
    printing: PrintOptions,
    loop_states: Callable[[SignatureNames], list[dict[str, str]]] | None,
) -> TapPrinter | None:
    """The observer of `--tap` and `--tap-state`, if used; `loop_states` finds the variables.

    Raises UsageError for a pattern that matches no node, and for a name of no loop.
    """
    if not options.tap and loop_states is None:
        return None
    spec, stream, names = request.spec, printing.values_stream, request.names
    completed = [complete_pattern(pattern, names.nodes.in_run) for pattern in options.tap]
    states = loop_states(names) if loop_states else []
    patterns = [*completed, *(tensor for state in states for tensor in state)]
    fed = (*spec.feeds, *request.replaced)
    return TapPrinter(spec.graph, patterns, stream, printing.full, fed, states)


class TapFiles:
    """An observer that writes tapped tensors to files: `paths` by tensors, or by patterns of one.

    Raises UsageError for a pattern that matches no node.
    """

    def __init__(self, graph: Graph, paths: Mapping[str, str]) -> None:
        self.paths, self.written = paths, list[str]()
        self._taps = {pattern: Taps(pattern) for pattern in paths}
        for taps in self._taps.values():
            taps.start(graph)

    def event(self, event: TraceEvent) -> None:
        """Collect the outputs of a tapped node."""
        for taps in self._taps.values():
            taps.event(event)

    def write(self) -> None:
        """Write all files. Raises UsageError for a tensor without values, and for several."""
        with StagedFiles() as files:
            for pattern, path in self.paths.items():
                tensors = [*self._taps[pattern].values()]
                if len(tensors) != 1:
                    message = f"--out {pattern} matches {len(tensors)} tensors that ran"
                    raise UsageError(message, hint="name one tensor per file")
                self._write(files, path, tensors[0])

    def _write(self, files: StagedFiles, path: str, tensor: TappedTensor) -> None:
        write_array(files.open(path), tensor.name, tensor.stacked())
        self.written.append(path)
        if not tensor.live.all():
            mask = f"{path.removesuffix('.npy')}.mask.npy"
            write_array(files.open(mask), tensor.name, ~tensor.live)
            self.written.append(mask)


class Observers:
    """All observers of a run. Raises UsageError if a file cannot be written."""

    def __init__(
        self,
        source: Source,
        request: RunRequest,
        taps: TapPrinter | None,
        options: ObserverOptions,
        clock: ClockOptions,
        printing: PrintOptions,
        page_type: type[RunPage] | None,
    ) -> None:
        graph, color = source.graph, printing.color
        tapped = request.tap_files
        self.tap_files = TapFiles(request.spec.graph, tapped) if tapped else None
        html, saved = options.html, options.trace_out
        self.times = requested_times(options, clock.virtual)
        self.fetches = request.spec.fetches
        self.error_page = None if printing.is_json else page(color, sys.stderr)
        self.taps = taps
        self.nonfinite = NonfiniteTap(printing.values_stream) if options.tap_nonfinite else None
        self.calibrated = clock.calibrate
        self.calibration = Calibration() if clock.calibrate else None
        self.live_trace = LiveTrace(graph, color) if options.trace else None
        self.timeline = Timeline(color) if options.timeline else None
        self.work = RunWork() if clock.virtual else None
        self.node_data = None
        if options.node_data:
            self.node_data = extension(NODE_DATA, "run")(graph, options.node_data)
        other_files = [*request.output_files.values(), *([html] if html else [])]
        # from here on, an error must not leave the temporary file of the trace behind
        self.trace_file = TraceFile(saved, other_files) if saved else None
        try:
            self.html_page = (
                page_type(html, source.path, taps.texts if taps else (), clock.virtual)
                if page_type and html
                else None
            )
        except BaseException:
            if self.trace_file:
                self.trace_file.discard()
            raise

    @property
    def observer(self) -> Observer | None:
        """A single observer that combines all observers, or None if there are none."""
        all_of = (
            self.taps,
            self.tap_files,
            self.nonfinite,
            self.trace_file,
            self.live_trace,
            self.timeline,
            self.html_page,
            self.calibration,
            self.node_data,
            self.work,
        )
        observers: list[Observer] = [item for item in all_of if item]
        return Tee(observers) if observers else None

    def flush_partial(self, session: Session, error: BaseException) -> None:
        """Write the partial trace, page, and memory report of a failed run."""
        saved, html_page = self.trace_file, self.html_page
        if saved and saved.flush_partial():
            add_member("artifacts", artifact("trace", saved.path))
            note(f"wrote the partial trace to {saved.path}")
        if html_page and html_page.flush_partial(session.ran, error):
            add_member("artifacts", artifact("html", html_page.path))
            note(f"wrote the page of the partial run to {html_page.path}")
        if self.nonfinite:
            note(self.nonfinite.summary())
        if session.memory and self.error_page:
            print_memory(self.error_page, session.memory)

    def close_views(self) -> None:
        """Finish the views on the terminal."""
        for view in (self.taps, self.live_trace, self.timeline):
            if view:
                view.close()

    def write(self, result: RunResult) -> None:
        """Write the files about a finished run."""
        if self.trace_file:
            self.trace_file.close()
        if self.tap_files:
            self.tap_files.write()
        if self.calibration and self.calibrated:
            write_atomically(self.calibrated, self.calibration.text().encode())
        if self.html_page:
            fetched = dict(zip(self.fetches, result.values, strict=True))
            self.html_page.write(result.graph, fetched)
        if self.node_data:
            self.node_data.write()

    def artifacts(self) -> list[Artifact]:
        """The written files, for a JSON document."""
        paths = {
            "trace": self.trace_file and self.trace_file.path,
            "html": self.html_page and self.html_page.path,
            "node_data": self.node_data and self.node_data.file.path,
            "costs": self.calibrated,
        }
        arrays = self.tap_files.written if self.tap_files else ()
        written = [artifact(kind, path) for kind, path in paths.items() if path]
        return [*written, *(artifact("array", path) for path in arrays)]

    def notes(self, result: RunResult) -> Iterator[str]:
        """The summary of values with NaN or Inf, and the taps that matched nothing."""
        if self.nonfinite:
            yield self.nonfinite.summary()
        if self.tap_files:
            yield f"wrote {', '.join(self.tap_files.written)}"
        for pattern, reason in self.taps.silent().items() if self.taps else ():
            inside = ", or it is inside a cluster, where taps do not reach"
            why = f"{reason}{inside if result.clusters.clusters else ''}"
            yield f"--tap {pattern} matched no executed node: {why}"
