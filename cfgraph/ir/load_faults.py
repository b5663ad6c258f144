"""Faults of a file whose nodes and edges form no graph, which are reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.names import did_you_mean

if TYPE_CHECKING:
    from cfgraph.ir.node import Node

# faults that are listed; the others are counted
_MAX_FAULTS: Final = 10_000


def name_taken_error(name: str) -> InvalidInput:
    """The error for two nodes of one name."""
    return InvalidInput(f"two nodes have the name {name!r}", node=name, code="CFG104")


def unknown_input_error(node: Node, text: str, base: str, nodes: Iterable[str]) -> InvalidInput:
    """The error for an input that names no node; `nodes` may have a similar name."""
    message = f"input {text!r} does not exist in the graph"
    hint = did_you_mean(base, nodes)
    return InvalidInput(message, node=node, hint=hint, code="CFG105")


class LoadFaults:
    """Faults of a file: the first ones, and the number of all."""

    def __init__(self) -> None:
        self.first: list[InvalidInput] = []
        self.count = 0

    def add(self, make: Callable[..., InvalidInput], *args: Any, **keywords: Any) -> None:
        """Record the fault that `make` makes from the arguments, if it is one of the first."""
        if self.count < _MAX_FAULTS:
            self.first.append(make(*args, **keywords))
        self.count += 1

    def error(self) -> InvalidInput:
        """The first fault as an error, with the listed faults as findings."""
        return InvalidInput.of_faults(self.first, self.count)
