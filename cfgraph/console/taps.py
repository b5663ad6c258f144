"""Print the values inside loops as they come: `--tap`."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, TextIO

from cfgraph.console.tables import clean, clean_lines
from cfgraph.console.values import type_text, value_json, value_text
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import split_tensor_name
from cfgraph.runtime.fetches import matching_nodes
from cfgraph.runtime.trace import TraceEvent


class Taps:
    """An observer that prints, or collects, what the tapped nodes return.

    Raises UsageError for a pattern that no node matches, unless functions may bring such a node.
    """

    def __init__(
        self, graph: Graph, patterns: Iterable[str], stream: TextIO | None, full: bool
    ) -> None:
        self.unseen = dict.fromkeys(patterns)
        if not graph.functions:
            for pattern in self.unseen:
                matching_nodes(graph, pattern)
        self.patterns = tuple(split_tensor_name(pattern)[0] for pattern in self.unseen)
        self.stream = stream
        self.full = full
        self.values: list[dict[str, Any]] = []
        self._known: dict[str, bool] = {}

    def event(self, event: TraceEvent) -> None:
        """Print the outputs of a tapped node."""
        wanted = self._known.get(event.node)
        if wanted is None:
            wanted = self._known[event.node] = self._is_tapped(event.node)
        if not wanted:
            return
        for port, value in enumerate(event.outputs):
            if self.stream is None:
                self._collect(event, port, value)
            else:
                self._print(event, port, value)

    def _is_tapped(self, name: str) -> bool:
        found = [text for text in self.unseen if fnmatchcase(name, split_tensor_name(text)[0])]
        for text in found:
            del self.unseen[text]
        return bool(found) or any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def _collect(self, event: TraceEvent, port: int, value: Any) -> None:
        where = {
            "tensor": f"{event.node}:{port}",
            "frame": event.frame,
            "iteration": event.iteration,
        }
        told = {"dead": True} if value is None else value_json(value, self.full)
        self.values.append({**where, **told})

    def _print(self, event: TraceEvent, port: int, value: Any) -> None:
        name = clean(f"{event.node}:{port} {event.frame}")
        if value is None:
            print(f"{name}  dead", file=self.stream)
            return
        text = value_text(value, self.full)
        gap = "\n" if "\n" in text else " "
        print(clean_lines(f"{name}  {type_text(value)} ={gap}{text}"), file=self.stream)

    def silent(self) -> list[str]:
        """The patterns of which no node ran."""
        return list(self.unseen)
