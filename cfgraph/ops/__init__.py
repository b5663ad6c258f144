"""The ops: one class each, a file a family. Importing this package fills the registry."""

from cfgraph.ops import (
    array,
    control_flow,
    functional,
    lowered,
    optional,
    resource_variables,
    stacks,
    transfer,
    variables,
)

__all__ = [
    "array",
    "control_flow",
    "functional",
    "lowered",
    "optional",
    "resource_variables",
    "stacks",
    "transfer",
    "variables",
]
