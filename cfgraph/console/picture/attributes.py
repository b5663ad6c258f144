"""Attributes as a page tells them: short, as a page holds those of every node."""

from __future__ import annotations

from typing import Any, Final

from cfgraph.analysis.feeds_and_fetches import format_type
from cfgraph.console.values import value_text
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.text.printer import AttrPrinter

_LONGEST: Final = 240
# a tensor of more elements is told by its type alone, and not decoded
_MAX_ELEMENTS: Final = 64


class AttributeTexts:
    """Tells attributes, each different one once."""

    def __init__(self) -> None:
        self._printer = AttrPrinter()

    def text(self, value: Any) -> str:
        """The text of a value, cut where it is long."""
        text = _tensor(value) if isinstance(value, TensorValue) else self._printer.value_text(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _tensor(tensor: TensorValue) -> str:
    kind = format_type(tensor.dtype, tensor.shape)
    size = 1
    for dim in tensor.shape.dims or ():
        size *= dim or 0
    if size > _MAX_ELEMENTS:
        return kind
    try:
        return f"{kind} {value_text(tensor.array)}"
    except CfgraphError:
        return kind
