"""Facts about one node that `show`, `explain`, pages, Model Explorer, and notebooks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from cfgraph.console.views.selection import GraphView
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import first_names
from cfgraph.ops.opdef.op import lookup

_MAX_READERS: Final = 8
# a file may claim any number of outputs
_MAX_OUTPUTS: Final = 1 << 16

FactRow = tuple[str, str, str]


def op_description(op: str, unknown: str = "unknown op") -> str:
    """The first line of the documentation of an op."""
    definition = lookup(op)
    return unknown if definition is None else (definition.__doc__ or "").partition("\n")[0]


def output_types(view: GraphView, node: Node) -> list[str]:
    """Return type and shape of each output of a node."""
    return [view.type_text(item) for item in _outputs(node)]


def _outputs(node: Node) -> list[Output]:
    """Return the outputs to show: those of the op, or those that are read."""
    return [node.output(port) for port in range(min(node.assumed_output_count, _MAX_OUTPUTS))]


def output_readers(node: Node) -> dict[Output, list[str]]:
    """Return the names of the nodes that read each output of a node."""
    return {
        item: list(dict.fromkeys(use.node.name for use in node.readers(item.port)))
        for item in _outputs(node)
    }


def edge_rows(
    node: Node, type_text: Callable[[Output], str], full: bool = False
) -> Iterator[FactRow]:
    """Yield a row per edge; `full` names all readers."""
    for slot, item in enumerate(node.inputs):
        yield f"input {slot}", item.name, type_text(item)
    for source in node.controls:
        yield "after", f"^{source.name}", ""
    for item, readers in output_readers(node).items():
        read = f"  read by {first_names(readers, None if full else _MAX_READERS)}"
        yield f"output {item.port}", item.name, f"{type_text(item)}{read if readers else ''}"
    for reader in node.control_readers:
        yield "before", f"^{reader.name}", ""
