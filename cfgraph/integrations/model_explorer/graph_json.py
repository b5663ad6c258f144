"""A graph as JSON of Model Explorer: its nodes, loops and function bodies as subgraphs, overlays.

The module `identifiers` names graphs and nodes, so that data per node fit this view and Model
Explorer's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.verify.function_rules import functions_in_attrs
from cfgraph.cli.json_output import Artifact
from cfgraph.console.graph_files import artifact
from cfgraph.console.values import value_text
from cfgraph.console.views.node_facts import output_types
from cfgraph.console.views.selection import GraphView, function_bodies
from cfgraph.integrations.model_explorer.identifiers import ARGUMENTS, MAIN, loop_nodes, node_ids
from cfgraph.integrations.model_explorer.overlays import edge_overlays
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.file_io import write_atomically
from cfgraph.ir.graph import Node
from cfgraph.ir.printable import clean_lines
from cfgraph.ir.text.printer import AttrPrinter

_ARGUMENTS_LABEL: Final = "GraphInputs"
_RESULTS_LABEL: Final = "GraphOutputs"
_MAX_TEXT: Final = 400
# elements of a tensor whose first ones are shown; of a larger one, the type alone
_MAX_DECODED: Final = 1 << 20
_CONTROL: Final = "control"


@dataclass(frozen=True, slots=True)
class ModelExplorerFile:
    """The file of a graph to write."""

    path: str

    def write(self, whole: GraphView, source: str) -> None:
        """Write a graph that was read from `source`."""
        write_atomically(self.path, graph_bytes(whole, source))

    def artifacts(self) -> list[Artifact]:
        """The entry of the file in a JSON document."""
        return [artifact("model_explorer", self.path)]


def graph_bytes(whole: GraphView, path: str) -> bytes:
    """The file of a graph: a collection of graphs."""
    return json.dumps(graph_collection(whole, path), indent=1).encode() + b"\n"


def graph_collection(whole: GraphView, path: str) -> dict[str, Any]:
    """The collection of a file: the graph, its loops, and its functions."""
    views = [whole, *(selection.view for selection in function_bodies(whole))]
    names = {view.name for view in views}
    graphs = [graph for view in views for graph in _ViewWriter(view, names).graphs()]
    return {"label": PurePath(path).name, "graphs": graphs}


class _ViewWriter:
    """Writer of the graphs of one view: its own, and one per loop."""

    def __init__(self, view: GraphView, functions: Iterable[str]) -> None:
        self.view = view
        self.functions = functions
        self.ids = node_ids(view.graph, view.arguments, is_function=bool(view.name))
        self.printer = AttrPrinter()
        self.loops: dict[Node, list[str]] = {}
        for frame in view.frames.all[1:]:
            for node in frame.enters:
                self.loops.setdefault(node, []).append(self._loop_id(frame))

    def _loop_id(self, frame: Frame) -> str:
        return f"{self.view.name}{frame.path}"

    def graphs(self) -> Iterator[dict[str, Any]]:
        """The graph of the view, then those of its loops."""
        view = self.view
        inner = [node for node in view.graph if node not in view.arguments]
        nodes = [*self._arguments(), *(self._node(node, self.ids) for node in inner)]
        graph: dict[str, Any] = {
            "id": view.name or MAIN,
            "nodes": [*nodes, *self._results(len(inner) + 1)],
        }
        if overlays := edge_overlays(view, self.ids):
            graph["tasksData"] = {"edgeOverlaysDataListLeftPane": overlays}
        yield graph
        for frame in view.frames.all[1:]:
            members = {node: self.ids[node] for node in loop_nodes(frame)}
            yield {
                "id": self._loop_id(frame),
                "nodes": [self._node(node, members, self._loop_id(frame)) for node in members],
            }

    def _node(self, node: Node, ids: Mapping[Node, str], graph: str = "") -> dict[str, Any]:
        """One node, with the edges from other nodes of the same graph."""
        scope, _, label = clean_lines(node.name).rpartition("/")
        loops = [name for name in self.loops.get(node, ()) if name != graph]
        return {
            "id": self.ids[node],
            "label": label if node.op == label else f"{label} ({node.op})",
            "namespace": scope,
            "subgraphIds": [*loops, *self._called(node)],
            "attrs": [*self._attrs(node)],
            "incomingEdges": [*self._edges(node, ids)],
            "outputsMetadata": [
                _metadata(port, f"{node.name}:{port}", text)
                for port, text in enumerate(output_types(self.view, node))
            ],
        }

    def _called(self, node: Node) -> list[str]:
        names = [node.op, *(item.name for _, item in functions_in_attrs(node.attrs))]
        return [name for name in dict.fromkeys(names) if name in self.functions]

    def _attrs(self, node: Node) -> Iterator[dict[str, str]]:
        view = self.view
        yield _attr("name", view.title(node))
        yield _attr("op", node.op)
        if node.device:
            yield _attr("device", node.device)
        if (frame := view.frames.of[node]) is not view.frames.root:
            yield _attr("frame", frame.path)
        if view.is_analyzable and not view.name:
            yield _attr("live", view.liveness[node].text)
        for name, value in sorted(node.attrs.items()):
            if not isinstance(value, TensorValue):
                text = self.printer.value_text(value)
            elif (value.shape.elements or 0) > _MAX_DECODED:
                text = f"{value.dtype}{value.shape}"
            else:
                text = value_text(value.array)
            yield _attr(name, text)

    def _edges(self, node: Node, ids: Mapping[Node, str]) -> Iterator[dict[str, str]]:
        for slot, item in enumerate(node.inputs):
            if item.node in ids:
                yield self._edge(item.node, item.port, str(slot))
        for source in node.controls:
            if source in ids:
                yield {
                    "sourceNodeId": self.ids[source],
                    "sourceNodeOutputId": _CONTROL,
                    "targetNodeInputId": _CONTROL,
                }

    def _edge(self, source: Node, port: int, slot: str) -> dict[str, str]:
        arguments = [*self.view.arguments]
        port = arguments.index(source) if source in self.view.arguments else port
        return {
            "sourceNodeId": self.ids[source],
            "sourceNodeOutputId": str(port),
            "targetNodeInputId": slot,
        }

    def _arguments(self) -> Iterator[dict[str, Any]]:
        """The node that stands for the arguments of a function."""
        view = self.view
        if view.name:
            metadata = [
                _metadata(port, node.name, view.type_text(node.output()))
                for port, node in enumerate(view.arguments)
            ]
            label = _ARGUMENTS_LABEL
            yield {"id": ARGUMENTS, "label": label, "namespace": "", "outputsMetadata": metadata}

    def _results(self, index: int) -> Iterator[dict[str, Any]]:
        """The node that stands for the results of a function."""
        if self.view.name:
            edges = [
                self._edge(item.node, item.port, str(slot))
                for slot, item in enumerate(self.view.results)
                if item is not None
            ]
            label = _RESULTS_LABEL
            yield {"id": str(index), "label": label, "namespace": "", "incomingEdges": edges}


def _metadata(port: int, name: str, text: str) -> dict[str, Any]:
    return {"id": str(port), "attrs": [_attr("tensor_name", name), _attr("tensor_shape", text)]}


def _attr(key: str, value: str) -> dict[str, str]:
    text = clean_lines(value)
    return {"key": key, "value": text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"}
