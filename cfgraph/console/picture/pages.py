"""Pages and pictures that commands write: by `run --html` and `show --html`, or as SVG by Graphviz.

The page of a run has the graph that ran, its events, totals, and tapped values.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.cli.json_output import Artifact
from cfgraph.console.graph_files import Source, artifact, saved_model_contents
from cfgraph.console.picture.bodies import WHOLE_GRAPH, RestOfGraph
from cfgraph.console.picture.model import page_bytes, picture_model
from cfgraph.console.values import type_text, value_text
from cfgraph.console.views.dot import graph_dot
from cfgraph.console.views.selection import GraphView, NodeSelection, function_bodies
from cfgraph.errors import CfgraphError, ExecutionError, Unsupported, UsageError
from cfgraph.ir.devices import device_label
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.node import node_name
from cfgraph.ir.traversal import ancestors, dependents, is_partitioned
from cfgraph.ops.families.checkpoints import RestoreV2, SaveV2
from cfgraph.ops.opdef.op import is_a
from cfgraph.runtime.preparation.taps import TapPattern
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.summary import KEYS, Totals

# longer runs show only their first events, and the first values of each tensor
MAX_EVENTS: Final = 20_000
MAX_VALUES: Final = 2_000
# larger tensors are plotted by minimum, mean, and maximum
_MAX_PLOTTED: Final = 6
_MAX_VALUE_LENGTH: Final = 200


class RunRecorder:
    """An observer with bounded memory, except for names."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.totals = Totals()
        self._patterns = [TapPattern(text) for text in dict.fromkeys(patterns)]
        self._devices: dict[str, int] = {}
        self._real: set[str] = set()
        self._nodes: dict[str, int] = {}
        self._frames: dict[str, int] = {}
        self._slices: list[tuple[int, int, int, int, int, int]] = []
        self._sent: dict[str, tuple[int, int, int]] = {}
        self._messages: list[tuple[int, ...]] = []
        self._known: dict[str, set[int | None]] = {}
        self._taps: dict[str, list[dict[str, Any]]] = {}
        self._seen: dict[str, int] = {}

    @property
    def devices(self) -> list[str]:
        """The devices that were active, as the trace names them."""
        return list(self._devices)

    def event(self, event: TraceEvent) -> None:
        """Record one event."""
        self.totals.event(event)
        if not event.is_token:
            return
        self._tap(event)
        device = self._devices.setdefault(event.device, len(self._devices))
        if event.real:
            self._real.add(event.device)
        if len(self._slices) >= MAX_EVENTS:
            return
        node = self._nodes.setdefault(event.node, len(self._nodes))
        frame = self._frames.setdefault(event.frame, len(self._frames))
        took = event.end_ns - event.start_ns
        self._slices.append((device, node, event.start_ns, took, frame, int(event.dead)))
        if event.flow is not None:
            self._message(event, len(self._slices) - 1)

    def _message(self, event: TraceEvent, index: int) -> None:
        """Record a message by the indices of its two slices, once both are known."""
        assert event.flow is not None
        end = (index, event.bytes, int(event.is_send))
        first_end = self._sent.pop(event.flow, None)
        if first_end is None:
            self._sent[event.flow] = end
            return
        send, recv = (end, first_end) if end[2] else (first_end, end)
        self._messages.append((send[0], recv[0], max(send[1], recv[1])))

    def _tap(self, event: TraceEvent) -> None:
        wanted = self._known.get(event.node)
        if wanted is None:
            patterns = [
                pattern for pattern in self._patterns if pattern.matches(event.node, event.op)
            ]
            wanted = self._known[event.node] = {pattern.port for pattern in patterns}
        if not wanted:
            return
        for port, value in enumerate(event.outputs):
            if port in wanted or None in wanted:
                self._keep(f"{event.node}:{port}", event, value)

    def _keep(self, tensor: str, event: TraceEvent, value: Any) -> None:
        rows = self._taps.setdefault(tensor, [])
        self._seen[tensor] = self._seen.get(tensor, 0) + 1
        if len(rows) < MAX_VALUES:
            where = {"frame": event.frame, "iteration": event.iteration}
            rows.append({**where, **(value_model(value) if value is not None else {"dead": True})})

    def model(self) -> dict[str, Any]:
        """Return the recorded run for a page; slices are columns, names are indices into lists."""
        names = ("device", "node", "start", "took", "frame", "dead")
        columns = zip(*self._slices, strict=True) if self._slices else ((),) * len(names)
        return {
            "devices": [
                device_label(device, real=device in self._real) for device in self._devices
            ],
            "names": list(self._nodes),
            "frames": list(self._frames),
            "slices": {name: list(column) for name, column in zip(names, columns, strict=True)},
            "messages": self._messages,
            "events": self.totals.count,
            "end": self.totals.end_ns,
            "totals": {key: self._totals(key) for key in KEYS},
            "taps": [
                {"tensor": tensor, "rows": rows, "seen": self._seen[tensor]}
                for tensor, rows in self._taps.items()
            ],
        }

    def _totals(self, key: str) -> list[list[Any]]:
        return [
            [total.name, total.count, total.dead, total.total_ns, total.max_ns]
            for total in self.totals.by(key)
        ]


def value_model(value: Any) -> dict[str, Any]:
    """Describe a value for a page: type, text, and the numbers to plot."""
    text = value_text(value)
    text = text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"
    return {"type": type_text(value), "text": text, "numbers": _plotted_numbers(value)}


def _plotted_numbers(value: Any) -> list[float]:
    if not isinstance(value, np.ndarray | np.generic | bool | int | float):
        return []
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.size == 0:
        return []
    flat = array.reshape(-1).astype(np.float64)
    if flat.size <= _MAX_PLOTTED:
        return [float(item) for item in flat]
    return [float(flat.min()), float(flat.mean()), float(flat.max())]


class RunPage:
    """A page under construction: observes a run, and is written after it ends or fails.

    Raises UsageError if the file cannot be written.
    """

    def __init__(self, path: str, graph: str, taps: Iterable[str], virtual: bool) -> None:
        self.path = path
        self._title = page_title(graph)
        self._virtual = virtual
        self._recorder = RunRecorder(taps)
        self.event = self._recorder.event
        self._files = StagedFiles()
        self._file = self._files.open(path)

    def flush_partial(self, graph: Graph | None, error: BaseException) -> bool:
        """Write the page of a failed run; returns False, and writes nothing, without events."""
        if graph is None or not self._recorder.totals.count:
            self._files.discard()
            return False
        self.write(graph, {}, error)
        return True

    def write(
        self, graph: Graph, values: Mapping[Output, Any], error: BaseException | None = None
    ) -> None:
        """Write the page with the graph, the fetched values, and the error of a failed run."""
        with self._files:
            model = run_model(
                self._title, self._recorder, graph, values, error=error, is_virtual=self._virtual
            )
            self._file.write(page_bytes(model))


def run_model(
    title: str,
    recorder: RunRecorder,
    graph: Graph,
    values: Mapping[Output, Any],
    *,
    error: BaseException | None,
    is_virtual: bool,
) -> dict[str, Any]:
    """Describe a run for a page: the graph that ran, its events, values, and error."""
    whole = GraphView(graph)
    devices = recorder.devices
    only = None if is_partitioned(graph) or not devices else devices[0]
    picture = picture_model(title, NodeSelection(whole, list(graph)), function_bodies(whole), only)
    results = [
        {"tensor": item.name, **({"dead": True} if value is None else value_model(value))}
        for item, value in values.items()
    ]
    run = {
        **recorder.model(),
        "clock": "virtual" if is_virtual else "real",
        "results": results,
    }
    if error is not None:
        run["error"] = error.message if isinstance(error, CfgraphError) else repr(error)
    return {**picture, "run": run}


def page_title(path: str) -> str:
    """Return the title of a page for a path."""
    return "graph" if path == "-" else Path(path).name or path


GRAPHVIZ_PROGRAM: Final = "dot"
_MAX_SECONDS: Final = 60


def svg_bytes(lines: Iterable[str]) -> bytes:
    """Draw a digraph as SVG.

    Raises Unsupported if Graphviz is not installed, ExecutionError if it fails.
    """
    program = shutil.which(GRAPHVIZ_PROGRAM)
    if program is None:
        message = f"Graphviz is not installed: program {GRAPHVIZ_PROGRAM!r} not found"
        raise Unsupported(message, hint="install graphviz, or use --html, which does not need it")
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    try:
        done = subprocess.run(
            [program, "-Tsvg"], input=text, capture_output=True, check=False, timeout=_MAX_SECONDS
        )
    except subprocess.TimeoutExpired:
        message = f"Graphviz did not finish within {_MAX_SECONDS} s"
        hint = "select fewer nodes with --filter; or use --html, which folds"
        raise ExecutionError(message, hint=hint) from None
    if done.returncode:
        detail = done.stderr.decode("utf-8", "replace").strip() or f"code {done.returncode}"
        raise ExecutionError(
            f"Graphviz failed: {detail}", hint="use --html, which does not need Graphviz"
        )
    return done.stdout


# Graphviz takes minutes for more nodes, and its drawings cannot be read
_MANY_NODES: Final = 500


@dataclass(frozen=True, slots=True)
class PictureFiles:
    """Picture files to write; with `deadness` the SVG is colored by liveness."""

    html: str | None = None
    svg: str | None = None
    deadness: bool = False

    def write(
        self, source: Source, whole: GraphView, chosen: Sequence[NodeSelection], start: str | None
    ) -> None:
        """Write all files or none; `start` is the node that an HTML page opens with."""
        with StagedFiles() as files:
            opened = [(files.open(path), path) for path in self.paths]
            for file, path in opened:
                if path == self.svg:
                    file.write(svg_bytes(self._drawing(chosen)))
                else:
                    file.write(page_bytes(page_model(source, whole, chosen, start)))

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return [path for path in (self.svg, self.html) if path]

    def _drawing(self, chosen: Sequence[NodeSelection]) -> list[str]:
        count = sum(len(selection.nodes) for selection in chosen)
        if count > _MANY_NODES:
            message = f"{count} nodes are too many for --svg, which draws at most {_MANY_NODES}"
            raise UsageError(message, hint="select fewer with --filter; or use --html, which folds")
        return list(graph_dot(chosen, self.deadness))

    def artifacts(self) -> list[Artifact]:
        """Return the entries of the files in a JSON document."""
        files = (("svg", self.svg), ("html", self.html))
        return [artifact(kind, path) for kind, path in files if path]


def page_model(
    source: Source, whole: GraphView, chosen: Sequence[NodeSelection], start: str | None = None
) -> dict[str, Any]:
    """Describe a graph for a page: the selected nodes, or all with a start node."""
    title = page_title(source.path)
    everything = NodeSelection(whole, list(whole.graph))
    functions = function_bodies(whole)
    if start is not None:
        (selected,) = chosen
        return {
            **picture_model(title, everything, functions, rest=_rest_of_graph(source)),
            "start": selected.view.title(selected.nodes[0]),
        }
    if [selection.view for selection in chosen] != [whole]:
        raise UsageError(
            "an HTML page cannot select single functions", hint="remove --filter function:"
        )
    selection = chosen[0]
    if len(selection.nodes) < len(everything.nodes):
        return picture_model(title, selection)
    return picture_model(title, selection, functions, rest=_rest_of_graph(source))


def _rest_of_graph(source: Source) -> RestOfGraph:
    """Return the nodes that the default signature of a SavedModel does not need.

    A graph that is derived from a SavedModel, as by `lower`, has no signatures any more.
    """
    contents, graph = saved_model_contents(source), source.graph
    if contents is None:
        return _rest_of_derived_graph(graph)
    signature = contents.default_signature
    if signature is None:
        return WHOLE_GRAPH
    names = [node_name(item.tensor) for item in (*signature.inputs, *signature.outputs)]
    needed = ancestors(graph, [graph[name] for name in names if name in graph])
    return _rest_without(graph, needed, signature.name)


# an input of a signature is named after it
_DEFAULT_INPUT: Final = "serving_default_"


def _rest_of_derived_graph(graph: Graph) -> RestOfGraph:
    """Return the nodes without part in a result of the inputs, if the graph can save variables."""
    saver = [node for node in graph if is_a(node, SaveV2, RestoreV2)]
    if not saver:
        return WHOLE_GRAPH
    saved = set(dependents(graph, saver))
    inputs = [node for node in graph if is_input(node)]
    default = [node for node in inputs if node.name.startswith(_DEFAULT_INPUT)]
    computed = [node for node in dependents(graph, default or inputs) if node not in saved]
    needed = ancestors(graph, [node for node in computed if not is_input(node)])
    return _rest_without(graph, needed, "serving_default" if default else "the outputs")


def _rest_without(graph: Graph, needed: Collection[Node], consumer: str) -> RestOfGraph:
    rest = frozenset(node for node in graph if node not in needed)
    return RestOfGraph(f"not needed by {consumer}", rest) if needed else WHOLE_GRAPH
