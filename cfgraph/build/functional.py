"""What conditionals, loops and calls have in common: bodies that become functions of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cfgraph.build.body import Body
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output


def share_captures(outer: Body, bodies: Sequence[Body]) -> list[Output]:
    """Give each body an argument for what any of them captured; the tensors that were captured."""
    captured = list(dict.fromkeys(item for body in bodies for item in body.captures))
    for body in bodies:
        for item in captured:
            body.capture(item, outer)
    return captured


def add_functional(
    outer: Body,
    bodies: Sequence[Body],
    op: str,
    inputs: Sequence[Output],
    name: str,
    attrs: Mapping[str, Any],
) -> Node:
    """Add the node that runs the bodies; it waits for what nodes inside were told to wait for."""
    node = outer.add(op, inputs, outer.name_for(name), attrs)
    for body in bodies:
        for operation in body.outer_controls.values():
            if operation.body is outer:
                outer.graph.add_control(node, operation.node)
            else:
                outer.outer_controls[operation.node] = operation
    return node


# TensorFlow lowers conditionals and loops that say so, and runs the others without cutting them up
LOWERED: Final = {"_lower_using_switch_merge": True}


def base_dtype(output: Output) -> DType:
    """The type of a tensor as a function takes it."""
    dtype = output.dtype
    assert dtype is not None
    return dtype.base
