"""What a shape function may ask; `shape_inference` asks them for a whole graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cfgraph.ir import registry
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape

if TYPE_CHECKING:
    from cfgraph.ir.graph import Node


# the dimensions that a tensor may have
LARGEST_RANK: Final = 254


class InferenceContext:
    """One node as its shape function sees it.

    `inputs[i]` is the static shape of input i; `value(i)` its value as an array where it is known
    before the run (a Const, or computed from constants), else None.
    """

    __slots__ = ("_values", "inputs", "node", "output_count")

    def __init__(
        self, node: Node, inputs: tuple[Shape, ...], values: Callable[[int], Any | None]
    ) -> None:
        self.node = node
        self.inputs = inputs
        self._values = values
        count = registry.output_count(node)
        self.output_count = 0 if count is None else count

    def attr(self, key: str) -> Any:
        """An attribute's value or default."""
        return self.node.attr(key)

    def value(self, slot: int) -> Any | None:
        """The constant value of an input, or None."""
        return self._values(slot)

    def shape_value(self, slot: int) -> Shape:
        """The shape that a shape-valued input says: -1 is an unknown size, UNKNOWN not constant."""
        value = self.value(slot)
        if value is None:
            of = self.inputs[slot]
            count = of.dims[0] if of.dims is not None and len(of.dims) == 1 else None
            known = count is not None and count <= LARGEST_RANK
            return Shape([None] * (count or 0)) if known else UNKNOWN_SHAPE
        if value.ndim != 1:
            return UNKNOWN_SHAPE
        return Shape(None if size < 0 else int(size) for size in value)
