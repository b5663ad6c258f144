"""All facts about one node, as `show --node` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

from cfgraph.cli.output import Page
from cfgraph.console.documents import ValueReport
from cfgraph.console.values import type_text as value_type
from cfgraph.console.values import value_report, value_text
from cfgraph.console.views.node_facts import (
    FactRow,
    edge_rows,
    op_description,
    output_readers,
)
from cfgraph.console.views.selection import GraphView
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Node
from cfgraph.ir.text.printer import AttrPrinter
from cfgraph.reports import OPTIONAL, Maybe, Record

# elements of a tensor with one value, of which --full prints no more
_MAX_SPLAT: Final = 1 << 20


def print_node(page: Page, view: GraphView, node: Node, full: bool, deadness: bool) -> None:
    """Print all facts about one node."""
    page.heading(f"{view.title(node)}  {node.op}", op_description(node.op))
    page.facts(_node_rows(view, node, full, deadness))
    for name, value in sorted(node.attrs.items()):
        if isinstance(value, TensorValue):
            page.line(f"  {name} = {_tensor_text(value, full)}")


def _node_rows(view: GraphView, node: Node, full: bool, deadness: bool) -> Iterator[FactRow]:
    yield "device", node.device or "(any)", ""
    frame = view.frames.of[node]
    yield "frame", frame.path, "" if frame is view.frames.root else "inside a loop"
    if deadness:
        yield "live", view.liveness[node].text, ""
    yield from edge_rows(node, view.type_text, full)
    printer = AttrPrinter()
    for name, value in sorted(node.attrs.items()):
        if not isinstance(value, TensorValue):
            yield "attr", name, printer.value_text(value)


def _tensor_text(tensor: TensorValue, full: bool) -> str:
    text = value_text(tensor.array, full and not _is_large_splat(tensor))
    return f"{value_type(tensor.array)} {text}" if "\n" not in text else f"\n{text}"


def _is_large_splat(tensor: TensorValue) -> bool:
    """True for a tensor that repeats one element so often that no file has all of them."""
    return tensor.array.size > _MAX_SPLAT and not any(tensor.array.strides)


class InputReport(Record):
    """A tensor that a node reads."""

    tensor: str
    type: str


class OutputReport(Record):
    """A tensor of a node."""

    tensor: str
    type: str
    readers: Sequence[str]


class ShownNode(Record):
    """All facts about a node."""

    name: str
    op: str
    device: str
    frame: str | None
    live: Maybe[str]
    inputs: Annotated[Sequence[InputReport], OPTIONAL]
    controls: Annotated[Sequence[str], OPTIONAL]
    outputs: Annotated[Sequence[OutputReport], OPTIONAL]
    control_readers: Annotated[Sequence[str], OPTIONAL]
    attrs: Annotated[Mapping[str, str | ValueReport], OPTIONAL]


def node_report(view: GraphView, node: Node, full: bool, deadness: bool) -> ShownNode:
    """Return all facts about a node; `full` has all elements of its tensors."""
    printer = AttrPrinter()
    return ShownNode(
        view.title(node),
        node.op,
        node.device,
        view.frames.of[node].path,
        view.liveness[node].text if deadness else None,
        [InputReport(item.name, view.type_text(item)) for item in node.inputs],
        [item.name for item in node.controls],
        [
            OutputReport(item.name, view.type_text(item), readers)
            for item, readers in output_readers(node).items()
        ],
        [reader.name for reader in node.control_readers],
        {
            name: value_report(value.array, full and not _is_large_splat(value))
            if isinstance(value, TensorValue)
            else printer.value_text(value)
            for name, value in sorted(node.attrs.items())
        },
    )
