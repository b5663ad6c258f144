"""Calls of one function in place of a functional node that decides which function runs."""

from __future__ import annotations

from typing import Final

from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ops.opdef.op import lookup, may_write

# a functional node that is marked with it omits effects that no control output requires
LOWERED_ATTR: Final = "_lower_using_switch_merge"


def call_op(function: Function) -> str:
    """The op that calls a function."""
    return "StatefulPartitionedCall" if function.definition.stateful else "PartitionedCall"


def has_effects(function: Function | None, *, optional: bool = False) -> bool:
    """True for a function with effects, or with `optional` ones that no control output requires."""
    if function is None:
        return True
    definition = function.definition
    required = {*definition.control_returns.values()} if optional else set[str]()
    return any(_changes_state(node) for node in definition.nodes if node.name not in required)


def _changes_state(node: BodyNode) -> bool:
    op = lookup(node.op)
    return may_write(node) and not (op is not None and op.effects.random)
