"""A function's body in which groups of elementwise nodes are one call each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.ir.function_graph import FunctionGraph
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.evaluate import Bind, Call, Join
from cfgraph.ops.op import lookup
from cfgraph.runtime.fused.group import Group
from cfgraph.runtime.fused.groups import groups_of, is_elementwise
from cfgraph.runtime.fused.ready import Machine

# a group of fewer nodes gains nothing
_LEAST: Final = 2


def joined(machine: Machine, belongs: Callable[[Node], bool] = lambda node: True) -> Join:
    """What makes the calls of a line for a machine: groups where there are, else node by node.

    Only nodes that `belongs` says are the machine's join a group.
    """

    def join(function: FunctionGraph, order: Sequence[Node], bind: Bind) -> list[Call]:
        members = {node for node in order if belongs(node) and is_elementwise(node)}
        units = groups_of(order, members)
        read = _read_outside(function, units)
        return [
            Call.of(nodes[0], bind) if len(nodes) < _LEAST else _call(nodes, read, bind, machine)
            for nodes in units
        ]

    return join


def _read_outside(function: FunctionGraph, units: Sequence[Sequence[Node]]) -> set[Output]:
    """The outputs that are returned, or read by another call than the one that makes them."""
    unit_of = {node: place for place, nodes in enumerate(units) for node in nodes}
    read = set(function.returns)
    for node, place in unit_of.items():
        read.update(item for item in node.inputs if unit_of.get(item.node) != place)
    return read


def _call(nodes: Sequence[Node], read: Collection[Output], bind: Bind, machine: Machine) -> Call:
    own = set(nodes)
    reads = dict.fromkeys(item for node in nodes for item in node.inputs if item.node not in own)
    known = {item: value for item in reads if (value := _number(item)) is not None}
    inputs = tuple(item for item in reads if item not in known)
    outputs = tuple(node.output() for node in nodes if node.output() in read)
    plain = [call.kernel for call in (Call.of(node, bind) for node in nodes)]
    return Call(tuple(nodes), inputs, outputs, Group(nodes, inputs, outputs, plain, machine, known))


def _number(item: Output) -> Any:
    """The number that a constant is, None for what is none: it stands in the source itself."""
    op = lookup(item.node.op)
    if op is None or op.stateful or op.role or op.is_input or item.node.inputs:
        return None
    value = op.bind(item.node, np)()
    return value if isinstance(value, np.generic) else None
