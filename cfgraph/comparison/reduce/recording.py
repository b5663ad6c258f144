"""Values of all tensors in one run, for the constants that replace removed nodes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import numpy as np

from cfgraph.comparison.sample_point import EvaluationPoint
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.runtime.engine.token_trace import message_bytes
from cfgraph.runtime.trace.events import TraceEvent

MAX_BYTES: Final = 1 << 28


class ValueRecorder:
    """An observer that stores values by tensor name, up to a total size.

    In a loop these are the values of the frame `path` (`/while[3]`), elsewhere the first ones.
    """

    def __init__(self, graph: Graph, path: str = "/", max_bytes: int = MAX_BYTES) -> None:
        self.graph = graph
        self.paths = _enclosing_paths(path)
        self.free_bytes = max_bytes
        self.values: dict[str, Any] = {}
        self.iterations = 0

    def event(self, event: TraceEvent) -> None:
        """Store the outputs of a node."""
        self.iterations = max(self.iterations, event.iteration + 1)
        if event.kind == "note" or event.dead or event.node not in self.graph.nodes:
            return
        is_wanted = event.frame in self.paths
        for port, value in enumerate(event.outputs):
            name = f"{event.node}:{port}"
            if not isinstance(value, np.ndarray | np.generic | bool | int | float | bytes):
                continue
            if name in self.values and not is_wanted:
                continue
            self.free_bytes -= message_bytes(value)
            if self.free_bytes >= 0:
                self.values[name] = value


def _enclosing_paths(path: str) -> set[str]:
    """Return a path of frames with iterations, and its prefixes."""
    names = path.strip("/").split("]/")
    paths, current = set[str](), ""
    for name in names:
        current += f"/{name if name.endswith(']') or not name else name + ']'}"
        paths.add(current)
    return paths


def record(point: EvaluationPoint, fetches: Any, targets: Any, path: str = "/") -> ValueRecorder:
    """Run a point and return its values; those before a failure if it fails."""
    recorder = ValueRecorder(point.graph, path)
    with suppress(CfgraphError):
        point.run(fetches, targets=targets, trace=recorder)
    for name, value in point.feeds.items():
        recorder.values.setdefault(name, value)
    return recorder
