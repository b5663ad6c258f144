"""The ops: one class each, a file a family. Importing this package fills the registry."""

from cfgraph.ops import (
    array,
    control_flow,
    elements,
    functional,
    lowered,
    optional,
    resource_variables,
    stacks,
    tensor_array,
    tensor_array_legacy,
    tensor_array_ops,
    transfer,
    variables,
)

__all__ = [
    "array",
    "control_flow",
    "elements",
    "functional",
    "lowered",
    "optional",
    "resource_variables",
    "stacks",
    "tensor_array",
    "tensor_array_legacy",
    "tensor_array_ops",
    "transfer",
    "variables",
]
