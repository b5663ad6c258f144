"""Data of a run per node: time, live executions, or device."""

from __future__ import annotations

from typing import Final

from cfgraph.integrations.model_explorer.identifiers import graph_members
from cfgraph.integrations.model_explorer.node_data import NodeDataFile, Values
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.summary import Totals

_TITLES: Final = {"time": "time (ms)", "iterations": "iterations", "device": "device"}
_NS_PER_MS: Final = 1e6


class RunNodeData:
    """Observer that adds up the events of each node, and writes one kind of totals.

    Raises UsageError for an unknown kind.
    """

    def __init__(self, graph: Graph, text: str) -> None:
        self.file = NodeDataFile(text, _TITLES)
        self._graph = graph
        self._totals = Totals()
        self._devices: dict[str, str] = {}

    def event(self, event: TraceEvent) -> None:
        """Count an event."""
        self._totals.event(event)
        if event.is_token:
            self._devices[event.node] = event.device

    def write(self) -> None:
        """Write the file."""
        kind = self.file.kind
        self.file.write(graph_members(self._graph), self._values(kind), _TITLES[kind])

    def _values(self, kind: str) -> Values:
        if kind == "device":
            return {node: short_device_name(name) or "any" for node, name in self._devices.items()}
        totals = self._totals.by("node")
        if kind == "iterations":
            return {total.name: total.count - total.dead for total in totals}
        return {total.name: total.total_ns / _NS_PER_MS for total in totals}
