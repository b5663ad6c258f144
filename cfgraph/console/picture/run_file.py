"""The page that `run` writes: the graph as it ran, and what happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cfgraph.analysis.transfers import is_partitioned
from cfgraph.console.picture.html import page_bytes
from cfgraph.console.picture.model import picture
from cfgraph.console.picture.record import RunRecorder, value_told
from cfgraph.console.view import Chosen, View, bodies
from cfgraph.errors import CfgraphError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph, Output


class RunPage:
    """A page on its way: listens to a run of a graph, and is written when that is over or failed.

    Raises UsageError where the file cannot be written.
    """

    def __init__(self, path: str, graph: str, taps: Iterable[str], virtual: bool) -> None:
        self.path = path
        self._title = title_of(graph)
        self._virtual = virtual
        self._recorder = RunRecorder(taps)
        self.event = self._recorder.event
        self._files = StagedFiles()
        self._file = self._files.open(path)

    def keep_what_there_is(self, graph: Graph | None, error: BaseException) -> bool:
        """Write it in the midst of a run; False, and no file, if nothing has happened yet."""
        if graph is None or not self._recorder.totals.count:
            self._files.discard()
            return False
        self.write(graph, {}, error)
        return True

    def write(
        self, graph: Graph, values: Mapping[Output, Any], error: BaseException | None = None
    ) -> None:
        """Write the page about the graph that ran and the values that it gave, or its failure."""
        with self._files:
            self._file.write(page_bytes(self._model(graph, values, error)))

    def _model(
        self, graph: Graph, values: Mapping[Output, Any], error: BaseException | None
    ) -> dict[str, Any]:
        whole = View(graph)
        devices = self._recorder.devices
        only = None if is_partitioned(graph) or not devices else devices[0]
        drawn = picture(self._title, Chosen(whole, list(graph)), bodies(whole), only)
        results = [
            {"tensor": item.name, **({"dead": True} if value is None else value_told(value))}
            for item, value in values.items()
        ]
        told = {
            **self._recorder.model(),
            "clock": "virtual" if self._virtual else "real",
            "results": results,
        }
        if error is not None:
            told["error"] = error.message if isinstance(error, CfgraphError) else repr(error)
        return {**drawn, "run": told}


def title_of(path: str) -> str:
    """What a page about the graph of a path is called."""
    return "graph" if path == "-" else Path(path).name or path
