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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

from cfgraph.analysis.check import check
from cfgraph.analysis.deadness.deadness import LivenessCondition
from cfgraph.analysis.feeds_and_fetches import format_type
from cfgraph.analysis.findings import catalog
from cfgraph.analysis.verify.function_rules import functions_in_attrs
from cfgraph.console.json_output import json_value
from cfgraph.console.picture.boxes import PictureBox, group_into_boxes, split_into_chunks
from cfgraph.console.selection import GraphView, NodeSelection
from cfgraph.console.show_tables import output_types
from cfgraph.console.values import value_text
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.devices import device_label
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.text.printer import AttrPrinter
from cfgraph.ir.traversal import is_partitioned, sends_by_recv
from cfgraph.ops.families.functional import FunctionalOp
from cfgraph.ops.opdef.op import is_cluster_call, lookup

_MAX_ATTR_LENGTH: Final = 240
# larger tensors are described by their type, and not decoded
_MAX_ATTR_ELEMENTS: Final = 64


class AttributeFormatter:
    """Formats attributes, each distinct one once."""

    def __init__(self) -> None:
        self._printer = AttrPrinter()

    def text(self, value: Any) -> str:
        """Format a value; long texts are truncated."""
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
) -> dict[str, Any]:
    """Describe some nodes of a graph, and the bodies of its functions.

    `only` is the device of all nodes, whatever they request.
    """
    builder = _PictureBuilder(graph.view.graph, only)
    builder.add(graph)
    for body in functions:
        builder.add(body)
    builder.assign_boxes(graph, functions)
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


def _op_info(name: str, graph: Graph) -> dict[str, Any]:
    """Describe an op."""
    op = lookup(name)
    if op is None:
        calls = name in graph.functions
        about = "a call of a function" if calls else "unknown op"
        return {"about": about, "role": "call" if calls else ""}
    about = (op.__doc__ or "").partition("\n")[0]
    role = op.role.value if op.role else ""
    if issubclass(op, FunctionalOp):
        role = "cluster" if is_cluster_call(op) else "call"
    return {"about": about, "role": role}


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
        }
        return {name: value for name, value in fields.items() if value not in ("", None, [], {})}

    def _device(self, node: Node) -> str:
        device = self.only or node.device
        return device_label(device) if device else ""

    def _source(self, item: Output) -> list[int] | str:
        """Return node index and port, or the tensor's name if the node is not in the picture."""
        number = self.numbers.get(item.node)
        return item.name if number is None else [number, item.port]

    def assign_boxes(self, graph: NodeSelection, functions: Sequence[NodeSelection]) -> None:
        """Put all nodes into boxes; bodies of functions with one caller in its box."""
        devices = {node.device for node in graph.nodes}
        several = len(devices) > 1 or is_partitioned(self.graph)
        top = _BoxBuilder(graph, functions, self._device if several and not self.only else None).top
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

    def links(self, selection: NodeSelection) -> list[list[int]]:
        """Return the pairs of Send and Recv with equal keys."""
        pairs = sends_by_recv(selection.nodes).items()
        return [[self.numbers[send], self.numbers[recv]] for recv, send in pairs]

    def findings(self) -> list[dict[str, Any]]:
        """Return the findings of `check`, each with the title of its code."""
        codes = catalog()
        findings = []
        for finding in check(self.graph).findings:
            title = codes[finding.code].title if finding.code in codes else ""
            findings.append({**finding.to_json(), "title": title})
        return findings


class _BoxBuilder:
    """Boxes of a graph, including function bodies."""

    def __init__(
        self,
        graph: NodeSelection,
        functions: Sequence[NodeSelection],
        device_of: Callable[[Node], str] | None,
    ) -> None:
        self.graph = graph
        self.bodies = {body.view.name: body for body in functions}
        self.calls: Counter[str] = Counter()
        self.called: dict[Node, list[str]] = {}
        for selection in (graph, *functions):
            for node in selection.nodes:
                names = self._called(node)
                self.calls.update(names)
                if names:
                    self.called[node] = names
        self.drawn: set[str] = set()
        self.top = group_into_boxes(
            PictureBox("graph", ""), graph.nodes, graph.view.frames, device_of
        )
        self.waiting = [self.top]
        self._open_calls()
        library = PictureBox("library", "functions")
        for name in self.bodies:
            if name not in self.drawn:
                library.members.append(self._body(name))
                self._open_calls()
        if library.members:
            split_into_chunks(library)
            self.top.members.append(library)

    def _called(self, node: Node) -> list[str]:
        """Return the functions in the picture that a node calls."""
        names = [node.op] if node.op in self.bodies else []
        names += [
            func.name for _, func in functions_in_attrs(node.attrs) if func.name in self.bodies
        ]
        return list(dict.fromkeys(names))

    def _body(self, name: str) -> PictureBox:
        """Create the box of a function body; its own calls are opened later."""
        self.drawn.add(name)
        body = self.bodies[name]
        box = group_into_boxes(
            PictureBox("function", name, f"{name}/"), body.nodes, body.view.frames, None
        )
        self.waiting.append(box)
        return box

    def _open_calls(self) -> None:
        """Put each only caller of a function into a box with the body."""
        while self.waiting:
            for box in list(self.waiting.pop().walk()):
                for index, member in enumerate(box.members):
                    if isinstance(member, PictureBox) or member not in self.called:
                        continue
                    own = [name for name in self.called[member] if self._is_only_here(name)]
                    if own:
                        box.members[index] = self._call(box, member, own)

    def _is_only_here(self, name: str) -> bool:
        return self.calls[name] == 1 and name not in self.drawn

    def _call(self, box: PictureBox, node: Node, names: list[str]) -> PictureBox:
        """Return a box of a node and the bodies that it calls; for a cluster, the body's box."""
        bodies = [self._body(name) for name in names]
        label = node.name.removeprefix(box.prefix)
        if _op_info(node.op, self.graph.view.graph)["role"] == "cluster" and len(bodies) == 1:
            cluster = bodies[0]
            cluster.kind, cluster.label = "cluster", label
            del self.called[node]
            cluster.members.insert(0, node)
            return cluster
        return PictureBox("call", label, box.prefix, [node, *bodies])


SCRIPTS: Final = (
    "model",
    "dot",
    "view",
    "colour",
    "details",
    "search",
    "legend",
    "run",
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
