"""Dimension numbers of XLA, messages in attributes of its operations."""

from __future__ import annotations

from typing import Any, Final, Literal

from cfgraph.ir.serde.wire import parse_message
from cfgraph.proto import xla_dimensions_pb2

Operation = Literal["dot", "convolution", "gather", "scatter"]
_MESSAGES: Final[dict[Operation, Any]] = {
    "dot": xla_dimensions_pb2.DotDimensionNumbers,
    "convolution": xla_dimensions_pb2.ConvolutionDimensionNumbers,
    "gather": xla_dimensions_pb2.GatherDimensionNumbers,
    "scatter": xla_dimensions_pb2.ScatterDimensionNumbers,
}


def dimension_numbers(operation: Operation, data: bytes) -> dict[str, Any]:
    """The fields of the message of an operation, lists as tuples.

    Raises InvalidInput if the data is no such message.
    """
    message = parse_message(_MESSAGES[operation](), data, f"message of {operation} dimensions")
    values = {name: getattr(message, name) for name in message.DESCRIPTOR.fields_by_name}
    return {name: x if isinstance(x, int) else tuple(x) for name, x in values.items()}
