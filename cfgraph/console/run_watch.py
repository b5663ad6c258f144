"""What watches a run: a trace and a timeline on the terminal, files that tell of it afterwards."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cfgraph.console.answer import remember
from cfgraph.console.graphs import Source, artifact
from cfgraph.console.live_trace import ShownTrace
from cfgraph.console.page import note, page
from cfgraph.console.run_files import TraceFile
from cfgraph.console.run_job import Job
from cfgraph.console.run_memory import print_memory
from cfgraph.console.run_options import RunOptions
from cfgraph.console.taps import Taps
from cfgraph.console.timeline import Timeline
from cfgraph.ir.file_io import write_atomically
from cfgraph.ir.graph import Output
from cfgraph.runtime.calibrate import Calibration
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace import Observer, Tee

if TYPE_CHECKING:
    from cfgraph.console.picture.run_file import RunPage


class Watching:
    """All that is asked for to watch a run. Raises UsageError where a file cannot be written."""

    def __init__(self, source: Source, job: Job, options: RunOptions, taps: Taps | None) -> None:
        watched, style = options.watched, options.style
        self.source, self.options, self.taps = source, options, taps
        self.measured = Calibration() if options.timing.calibrate else None
        self.shown = ShownTrace(source.graph, style.color) if watched.trace else None
        self.drawn = Timeline(style.color) if watched.timeline else None
        taken = [*job.places.values(), *([watched.html] if watched.html else [])]
        self.saved = TraceFile(watched.trace_out, taken) if watched.trace_out else None
        self.told = _page(source, options)

    @property
    def observer(self) -> Observer | None:
        """All of them as one; None if nobody watches."""
        all_of = (self.taps, self.saved, self.shown, self.drawn, self.told, self.measured)
        observers: list[Observer] = [item for item in all_of if item]
        return Tee(observers) if observers else None

    def keep_what_there_is(self, session: Session, error: BaseException) -> None:
        """Write, in the midst of a run that failed, what was seen up to there."""
        saved, told, style = self.saved, self.told, self.options.style
        if saved and saved.keep_what_there_is():
            remember("artifacts", artifact("trace", saved.path))
            note(f"the trace up to there is in {saved.path}", style.quiet)
        if told and told.keep_what_there_is(session.ran, error):
            remember("artifacts", artifact("html", told.path))
            note(f"the page about the run up to there is {told.path}", style.quiet)
        if session.memory and not style.json:
            print_memory(page(style.color, sys.stderr), session.memory)

    def close_views(self) -> None:
        """End what is shown on the terminal."""
        for view in (self.shown, self.drawn):
            if view:
                view.close()

    def write(self, session: Session, fetched: Mapping[Output, Any]) -> None:
        """Write the files about a run that is over."""
        calibrate = self.options.timing.calibrate
        if self.saved:
            self.saved.close()
        if self.measured and calibrate:
            write_atomically(calibrate, self.measured.text().encode())
        if self.told:
            self.told.write(session.ran or self.source.graph, fetched)


def _page(source: Source, options: RunOptions) -> RunPage | None:
    watched = options.watched
    if watched.html is None or watched.page is None:
        return None
    return watched.page(watched.html, source.path, watched.taps, options.timing.virtual)
