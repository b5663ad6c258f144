"""Interface of batching rules to the graph that they extend.

A rule is `batching(g, node)`. It adds nodes that compute what `node` does for many rows at once:
some inputs have a first axis more, one element per row, and so has every output that it returns.

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        return g.copy(node, g.value(0), g.shared(1))

An op without a rule runs once per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cfgraph.ir.graph import Node, Output


class NotBatchable(Exception):
    """A node has no rule, or not for these inputs."""


class BatchBuilder(Protocol):
    """Builder of nodes that compute several rows. `g.Mul(x, y)` adds one, and returns its output 0.

    Inputs of the node are named by their slots; all numbers are of axes without that of the rows.
    """

    rows: int

    def __getattr__(self, op: str) -> Any: ...

    def copy(self, node: Node, *inputs: Output, **attrs: Any) -> Output:
        """Add a node with the attributes of another, of which some are changed."""

    def const(self, value: Any, like: Output | None = None) -> Output:
        """Add a constant of the type of a tensor, by default int32."""

    def rank(self, x: Output) -> int:
        """The static rank of an input or output of the node. Raises NotBatchable without one."""

    def sizes(self, x: Output) -> Sequence[int | None]:
        """The static sizes of an input or output of the node. Raises NotBatchable without rank."""

    def has_rows(self, slot: int) -> bool:
        """True for an input with an axis of rows."""

    def value(self, slot: int) -> Output:
        """An input, with an axis of rows or without."""

    def shared(self, slot: int) -> Output:
        """An input that is the same in all rows. Raises NotBatchable for others."""

    def aligned(self, slot: int, rank: int) -> Output:
        """An input that broadcasts to a rank: with axes of size 1 after that of its rows."""

    def repeated(self, slot: int) -> Output:
        """An input with an axis of rows, which one that all rows share is repeated along."""

    def prefixed(self, slot: int, *first: int) -> Output:
        """A vector that all rows share after some numbers, by default the number of rows."""

    def next_axes(self, slot: int) -> Output:
        """Axes that all rows share, as axes of a tensor with rows."""


def broadcasting(g: BatchBuilder, node: Node) -> Output:
    """Rule of an op whose inputs broadcast."""
    rank = max(map(g.rank, node.inputs))
    return g.copy(node, *(g.aligned(slot, rank) for slot in range(len(node.inputs))))


def elementwise(g: BatchBuilder, node: Node) -> Output:
    """Rule of an op whose inputs have one shape, or that changes each element."""
    return g.copy(node, *map(g.repeated, range(len(node.inputs))))


def reshaping(g: BatchBuilder, node: Node) -> Output:
    """Rule of an op whose input 1 is the shape of the output, in the order of the elements."""
    return g.copy(node, g.value(0), g.prefixed(1))


def along_axes(g: BatchBuilder, node: Node) -> Output:
    """Rule of an op whose input 1 has axes of the input, negative ones from the end."""
    return g.copy(node, g.value(0), g.next_axes(1))


def next_axis(axis: int) -> int:
    """An axis as that of a tensor with rows; a negative one counts from the end."""
    return axis + 1 if axis >= 0 else axis
