"""`--tap`: print the outputs of chosen nodes as a run computes them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, TextIO

from cfgraph.console.values import type_text, value_json, value_text
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.printable import clean, clean_lines
from cfgraph.runtime.fetches import is_glob, matching_nodes
from cfgraph.runtime.trace.events import TraceEvent


class TapPattern:
    """A pattern of nodes to tap: `GLOB`, `GLOB:PORT` for one output, or `op:GLOB`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.by_op = text.startswith("op:")
        base, port = split_tensor_name(text)
        self.glob = text.removeprefix("op:") if self.by_op else base
        self.port = None if self.by_op or base == text else port

    def matches(self, name: str, op: str) -> bool:
        """True for a node to tap."""
        return fnmatchcase(op if self.by_op else name, self.glob)

    def check(self, graph: Graph) -> None:
        """Raise UsageError for a pattern that matches nothing in this graph."""
        if not self.by_op:
            if self.port is not None and not is_glob(self.glob):
                graph.tensor(self.text)
            matching_nodes(graph, self.glob)
        elif not any(fnmatchcase(node.op, self.glob) for node in graph):
            hint = did_you_mean(self.text, {f"op:{node.op}" for node in graph})
            raise UsageError(f"no node matches {self.text!r}", hint=hint)


class Taps:
    """An observer that prints or collects the outputs of tapped nodes.

    Raises UsageError for a pattern that matches no node, unless functions may contain one.
    """

    def __init__(
        self, graph: Graph, patterns: Iterable[str], stream: TextIO | None, full: bool
    ) -> None:
        self.patterns = tuple(map(TapPattern, dict.fromkeys(patterns)))
        if not graph.functions:
            for pattern in self.patterns:
                pattern.check(graph)
        self.unseen = dict.fromkeys(pattern.text for pattern in self.patterns)
        self.stream = stream
        self.full = full
        self.values: list[dict[str, Any]] = []
        self._known: dict[str, set[int | None]] = {}

    def event(self, event: TraceEvent) -> None:
        """Print or collect the outputs of a tapped node."""
        wanted = self._known.get(event.node)
        if wanted is None:
            wanted = self._known[event.node] = self._ports(event)
        if not wanted:
            return
        for port, value in enumerate(event.outputs):
            if port not in wanted and None not in wanted:
                continue
            if self.stream is None:
                self._collect(event, port, value)
            else:
                self._print(event, port, value)

    def _ports(self, event: TraceEvent) -> set[int | None]:
        """Return the tapped output ports of a node, with None for all of them."""
        matching = [pattern for pattern in self.patterns if pattern.matches(event.node, event.op)]
        for pattern in matching:
            self.unseen.pop(pattern.text, None)
        return {pattern.port for pattern in matching}

    def _collect(self, event: TraceEvent, port: int, value: Any) -> None:
        where = {
            "tensor": f"{event.node}:{port}",
            "frame": event.frame,
            "iteration": event.iteration,
        }
        result = {"dead": True} if value is None else value_json(value, self.full)
        self.values.append({**where, **result})

    def _print(self, event: TraceEvent, port: int, value: Any) -> None:
        name = clean(f"{event.node}:{port} {event.frame}")
        if value is None:
            print(f"{name}  dead", file=self.stream)
            return
        text = value_text(value, self.full)
        gap = "\n" if "\n" in text else " "
        print(clean_lines(f"{name}  {type_text(value)} ={gap}{text}"), file=self.stream)

    def silent(self) -> list[str]:
        """Return the patterns that matched no executed node."""
        return list(self.unseen)
