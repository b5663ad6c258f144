"""JSON model of a picture, and the self-contained HTML page that shows it.

The model has nodes, boxes, edges, functions, and findings. Nodes and boxes are referred to by their
index in a list. Members that most nodes lack are omitted. The assets of the page next to this
module are a template, a style sheet, scripts, and Viz.js (see `VIZ.md`); it needs no network.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import Any, Final

import numpy as np

from cfgraph.analysis.check import check
from cfgraph.analysis.deadness.deadness import LivenessCondition
from cfgraph.analysis.feeds_and_fetches import format_type
from cfgraph.analysis.findings import Finding, catalog
from cfgraph.console.picture.bodies import (
    WHOLE_GRAPH,
    BodyBoxes,
    RestOfGraph,
    folded_operands,
    with_call_shapes,
)
from cfgraph.console.picture.boxes import PictureBox
from cfgraph.console.values import value_text
from cfgraph.console.views.modules import copied_selection, is_module, module_selections
from cfgraph.console.views.node_facts import op_description, output_types
from cfgraph.console.views.selection import GraphView, NodeSelection
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.devices import device_label
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.text.printer import AttrPrinter
from cfgraph.ir.traversal import is_partitioned, sends_by_recv
from cfgraph.ops.families.functional import FunctionalOp
from cfgraph.ops.opdef.op import is_cluster_call, lookup
from cfgraph.reports import json_value

_MAX_ATTR_LENGTH: Final = 240
# larger tensors are described by their type, and not decoded
_MAX_ATTR_ELEMENTS: Final = 64
# smaller constants are shown whole, and of larger ones a part is counted
_MIN_SUMMARIZED: Final = 9
_MAX_COUNTED: Final = 1 << 18
_BINS: Final = 24
_FIRST_ELEMENTS: Final = 8
_MAX_ELEMENT_LENGTH: Final = 40


class AttributeFormatter:
    """Formats attributes, each distinct one once."""

    def __init__(self) -> None:
        self._printer = AttrPrinter()

    def text(self, value: Any) -> str:
        """Format a value; long texts are truncated."""
        if isinstance(value, bytes):  # a module may have 100 MiB; a character, 4 bytes
            value = value[: 5 * _MAX_ATTR_LENGTH]
        text = (
            _tensor_text(value)
            if isinstance(value, TensorValue)
            else self._printer.value_text(value)
        )
        return text if len(text) <= _MAX_ATTR_LENGTH else f"{text[:_MAX_ATTR_LENGTH]}…"


def _tensor_text(tensor: TensorValue) -> str:
    kind = format_type(tensor.dtype, tensor.shape)
    size = 1
    for dim in tensor.shape.dims or ():
        size *= dim or 0
    if size > _MAX_ATTR_ELEMENTS:
        return kind
    try:
        return f"{kind} {value_text(tensor.array)}"
    except CfgraphError:
        return kind


SCHEMA: Final = "cfgraph.picture/1"


def picture_model(
    title: str,
    graph: NodeSelection,
    functions: Sequence[NodeSelection] = (),
    only: str | None = None,
    rest: RestOfGraph = WHOLE_GRAPH,
) -> dict[str, Any]:
    """Describe some nodes of a graph, and the bodies of its functions.

    `only` is the device of all nodes, whatever they request; `rest` are nodes in a closed box.
    """
    graph, functions = with_call_shapes(graph, functions)
    whole = graph.view.graph
    graph, functions, rest, notes = with_module_bodies(graph, functions, rest)
    builder = _PictureBuilder(whole, only, notes=notes)
    builder.add(graph)
    for body in functions:
        builder.add(body)
    builder.assign_boxes(graph, functions, rest)
    return {
        "schema": SCHEMA,
        "title": title,
        "notes": builder.notes,
        "ops": {
            op: _op_info(op, builder.graph)
            for op in sorted({node.get("op", "") for node in builder.nodes})
        },
        "whens": [list(when) for when in builder.whens],
        "groups": builder.groups,
        "nodes": builder.nodes,
        "links": builder.links(graph),
        "findings": builder.findings(),
    }


def with_module_bodies(
    graph: NodeSelection, functions: Sequence[NodeSelection], rest: RestOfGraph
) -> tuple[NodeSelection, list[NodeSelection], RestOfGraph, list[str]]:
    """The selections with those of the bodies of StableHLO modules; nodes that call one are copies.

    Returns notes on modules that cannot be read.
    """
    if any(map(is_module, graph.nodes)):
        graph = copied_selection(graph)
        nodes = graph.view.graph.nodes
        rest = rest._replace(nodes=frozenset(nodes[node.name] for node in rest.nodes))
    selections = [graph, *functions]
    bodies, notes = module_selections(selections)
    return graph, [*functions, *bodies], rest, notes


def _tensor_summary(tensor: Any) -> dict[str, Any] | None:
    """Describe the elements of a constant; None for a small or a damaged one, and for no tensor."""
    if not isinstance(tensor, TensorValue):
        return None
    count = tensor.shape.elements or 0
    if count < _MIN_SUMMARIZED:
        return None
    try:
        # a decoded array is not kept: all constants together may exceed the memory
        array = tensor.source.array() if tensor.source else tensor.array
        flat = array.reshape(-1)
    except (CfgraphError, TypeError):
        return None
    summary: dict[str, Any] = {"elements": count, "first": _first_text(flat)}
    if flat.dtype == object:
        return summary
    step = -(-count // _MAX_COUNTED)
    if step > 1:
        summary["counted"] = f"each {step}th element"
    return {**summary, **_statistics(flat[::step])}


def _first_text(flat: Any) -> str:
    shown = [value_text(item) for item in flat[:_FIRST_ELEMENTS]]
    shown = [
        text if len(text) <= _MAX_ELEMENT_LENGTH else f"{text[:_MAX_ELEMENT_LENGTH]}…"
        for text in shown
    ]
    return ", ".join(shown) + (", …" if len(flat) > _FIRST_ELEMENTS else "")


def _statistics(elements: Any) -> dict[str, Any]:
    """Return statistics of numbers, and how many of them are in each part of their range."""
    if elements.dtype.kind == "c":
        elements = np.abs(elements)
    numbers = elements.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    statistics: dict[str, Any] = {"zeros": int((numbers == 0).sum())}
    if len(finite) < len(numbers):
        statistics["not finite"] = len(numbers) - len(finite)
    if not len(finite):
        return statistics
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(over="ignore", invalid="ignore"):
        values = {"mean": float(finite.mean()), "deviation": float(finite.std())}
    statistics |= {name: value for name, value in values.items() if np.isfinite(value)}
    statistics |= {"least": low, "greatest": high}
    if low < high and np.isfinite(high - low):
        statistics["counts"] = np.histogram(finite, _BINS)[0].tolist()
    return statistics


def _op_info(name: str, graph: Graph) -> dict[str, Any]:
    """Describe an op."""
    op, calls = lookup(name), name in graph.functions
    about = op_description(name, "a call of a function" if calls else "unknown op")
    if op is None:
        return {"about": about, "role": "call" if calls else ""}
    role = op.role.value if op.role else ""
    if issubclass(op, FunctionalOp):
        role = "cluster" if is_cluster_call(op) else "call"
    return {"about": about, "role": role, "inputs": op.parsed().single_inputs()}


@dataclass
class _PictureBuilder:
    """A picture under construction: nodes first, boxes once all nodes are added."""

    graph: Graph
    only: str | None = None
    nodes: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    whens: dict[LivenessCondition, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    numbers: dict[Node, int] = field(default_factory=dict)
    texts: AttributeFormatter = field(default_factory=AttributeFormatter)

    def add(self, selection: NodeSelection) -> None:
        """Add the nodes of the graph or of a function body."""
        start = len(self.nodes)
        self.numbers.update({node: start + index for index, node in enumerate(selection.nodes)})
        when = self._when(selection.view)
        for node in selection.nodes:
            self.nodes.append(self._node(selection.view, node, when.get(node)))

    def _when(self, view: GraphView) -> Mapping[Node, LivenessCondition]:
        try:
            return view.liveness
        except CfgraphError as error:
            where = f" of {view.name}" if view.name else ""
            self.notes.append(f"liveness of the nodes{where} is unknown: {error.message}")
            return {}

    def _node(self, view: GraphView, node: Node, when: LivenessCondition | None) -> dict[str, Any]:
        frame = view.frames.of[node]
        fields: dict[str, Any] = {
            "name": view.title(node),
            "op": node.op,
            "device": self._device(node),
            "frame": "" if frame is view.frames.root else frame.path,
            "when": None if when is None else self.whens.setdefault(when, len(self.whens)),
            "in": [self._source(item) for item in node.inputs],
            "after": [self.numbers.get(source, source.name) for source in node.controls],
            "out": output_types(view, node),
            "attrs": {name: self.texts.text(value) for name, value in sorted(node.attrs.items())},
            "value": _tensor_summary(node.attrs.get("value")),
        }
        return {name: value for name, value in fields.items() if value not in ("", None, [], {})}

    def _device(self, node: Node) -> str:
        device = self.only or node.device
        return device_label(device) if device else ""

    def _source(self, item: Output) -> list[int] | str:
        """Return node index and port, or the tensor's name if the node is not in the picture."""
        number = self.numbers.get(item.node)
        return item.name if number is None else [number, item.port]

    def assign_boxes(
        self, graph: NodeSelection, functions: Sequence[NodeSelection], rest: RestOfGraph
    ) -> None:
        """Put all nodes into boxes; the body of a function with one caller goes into its box."""
        devices = {node.device for node in graph.nodes}
        several = len(devices) > 1 or is_partitioned(self.graph)
        exposed = {
            name for finding in self.checked for name in (finding.node, *finding.related) if name
        }
        folded: dict[Node, Node] = {}
        for selection in (graph, *functions):
            folded |= folded_operands(selection, exposed, rest.nodes)
        device_of = self._device if several and not self.only else None
        boxes = BodyBoxes(graph, functions, device_of, folded, rest)
        top = boxes.top
        numbers: dict[PictureBox, int] = {}
        for box in top.walk():
            numbers[box] = len(self.groups)
            fields = {"kind": box.kind, "label": box.label, "prefix": box.prefix}
            self.groups.append({name: value for name, value in fields.items() if value})
        for box, number in numbers.items():
            for member in box.members:
                if isinstance(member, PictureBox):
                    self.groups[numbers[member]]["parent"] = number
                else:
                    self.nodes[self.numbers[member]]["group"] = number
        for node, reader in folded.items():
            group = self.nodes[self.numbers[reader]]["group"]
            self.nodes[self.numbers[node]] |= {"group": group, "folded": True}
        for node, callee in boxes.inlined.items():
            self._describe_call(node, callee)

    def _describe_call(self, node: Node, callee: GraphView) -> None:
        """Describe a call that the body may replace: its arguments and results."""
        number = self.numbers[node]
        arguments = [self.numbers[argument] for argument in callee.arguments]
        if any(item is None for item in callee.results):
            return
        results = [self._source(item) for item in callee.results if item is not None]
        self.nodes[number]["body"] = {"arguments": arguments, "results": results}
        for slot, argument in enumerate(arguments):
            self.nodes[argument]["argument"] = [number, slot]

    def links(self, selection: NodeSelection) -> list[list[int]]:
        """Return the pairs of Send and Recv with equal keys."""
        pairs = sends_by_recv(selection.nodes).items()
        return [[self.numbers[send], self.numbers[recv]] for recv, send in pairs]

    @cached_property
    def checked(self) -> list[Finding]:
        """The findings of `check`."""
        return list(check(self.graph).findings)

    def findings(self) -> list[dict[str, Any]]:
        """Return the findings of `check`, each with the title of its code."""
        codes = catalog()
        findings = []
        for finding in self.checked:
            title = codes[finding.code].title if finding.code in codes else ""
            findings.append({**finding.to_json(), "title": title})
        return findings


SCRIPTS: Final = (
    "model",
    "names",
    "dot",
    "view",
    "save",
    "paths",
    "colour",
    "details",
    "search",
    "legend",
    "run",
    "selection",
    "timeline",
    "main",
)
VIZ: Final = "viz-global.js"


def page_bytes(model: Mapping[str, Any]) -> bytes:
    """Render a model of `cfgraph.console.picture.model` as a page."""
    parts = {
        "title": html.escape(str(model["title"])),
        "style": _asset("page.css"),
        "scripts": "\n".join(_asset(f"{name}.js") for name in SCRIPTS),
        "viz": _viz_base64(),
        "model": script_json(model),
    }
    pieces = []
    for piece in _asset("page.html").split("{{"):
        name, end, rest = piece.partition("}}")
        pieces.append(parts[name] + rest if end else piece)
    return "".join(pieces).encode(errors="replace")


def script_json(value: Any) -> str:
    """Return JSON that cannot end its script element: strict, and ASCII whatever the names are."""
    text = json.dumps(json_value(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _asset(name: str) -> str:
    return _asset_bytes(name).decode()


@cache
def _asset_bytes(name: str) -> bytes:
    return resources.files("cfgraph.console.picture").joinpath("assets", name).read_bytes()


@cache
def _viz_base64() -> str:
    return base64.b64encode(gzip.compress(_asset_bytes(VIZ), 9, mtime=0)).decode()
