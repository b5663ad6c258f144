"""What `show --node` says of a node: where it runs, what it reads, who reads it, its attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cfgraph.console.page import Page
from cfgraph.console.show_tables import output_types
from cfgraph.console.tables import Column, Table
from cfgraph.console.values import type_text as value_type
from cfgraph.console.values import value_json, value_text
from cfgraph.console.view import View
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Node
from cfgraph.ir.names import first_names
from cfgraph.ir.text.printer import AttrPrinter
from cfgraph.ops.op import lookup

MAX_READERS: Final = 8

Row = tuple[str, str, str]


def print_node(page: Page, view: View, node: Node, full: bool, deadness: bool) -> None:
    """Print all that is known of one node."""
    op = lookup(node.op)
    about = (op.__doc__ or "").splitlines()[0] if op else "an op that cfgraph does not know"
    page.heading(f"{view.title(node)}  {node.op}", about)
    columns = [Column("what", style="dim"), Column("which", style="cyan"), Column("more")]
    rows: list[Any] = list(_rows(view, node, full, deadness))
    page.table(Table(columns, rows, headings=False))
    for name, value in sorted(node.attrs.items()):
        if isinstance(value, TensorValue):
            page.line(f"  {name} = {_tensor_text(value, full)}")


def _rows(view: View, node: Node, full: bool, deadness: bool) -> Iterator[Row]:
    yield "device", node.device or "(any)", ""
    frame = view.found.of[node]
    yield "frame", frame.path, "" if frame is view.found.root else "inside a loop"
    if deadness:
        yield "live", view.when[node].text, ""
    for slot, item in enumerate(node.inputs):
        yield f"input {slot}", item.name, view.type_text(item)
    for source in node.controls:
        yield "after", f"^{source.name}", ""
    for port, text in enumerate(output_types(view, node)):
        yield f"output {port}", f"{node.name}:{port}", _read_by(text, _readers(node, port), full)
    for reader in node.control_readers:
        yield "before", f"^{reader.name}", ""
    printer = AttrPrinter()
    for name, value in sorted(node.attrs.items()):
        if not isinstance(value, TensorValue):
            yield "attr", name, printer.value_text(value)


def _readers(node: Node, port: int) -> list[str]:
    return list(dict.fromkeys(use.node.name for use in node.readers(port)))


def _read_by(text: str, readers: list[str], full: bool) -> str:
    if not readers:
        return text
    return f"{text}  read by {first_names(readers, None if full else MAX_READERS)}"


def _tensor_text(tensor: TensorValue, full: bool) -> str:
    text = value_text(tensor.array, full)
    return f"{value_type(tensor.array)} {text}" if "\n" not in text else f"\n{text}"


def node_json(view: View, node: Node, full: bool, deadness: bool) -> dict[str, Any]:
    """A node as a member of a JSON document."""
    printer = AttrPrinter()
    live = {"live": view.when[node].text} if deadness else {}
    return {
        "name": view.title(node),
        "op": node.op,
        "device": node.device,
        "frame": view.found.of[node].path,
        **live,
        "inputs": [{"tensor": item.name, "type": view.type_text(item)} for item in node.inputs],
        "controls": [item.name for item in node.controls],
        "outputs": [
            {"tensor": f"{node.name}:{port}", "type": text, "readers": _readers(node, port)}
            for port, text in enumerate(output_types(view, node))
        ],
        "control_readers": [reader.name for reader in node.control_readers],
        "attrs": {
            name: value_json(value.array, full)
            if isinstance(value, TensorValue)
            else printer.value_text(value)
            for name, value in sorted(node.attrs.items())
        },
    }
