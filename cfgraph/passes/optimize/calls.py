"""Calls of one function in place of a functional node that decides which function runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Node
from cfgraph.ir.library import calls_of
from cfgraph.ops.families.resource_variables import VarHandleOp
from cfgraph.ops.opdef.op import lookup, may_write

# a functional node that is marked with it omits effects that no control output requires
LOWERED_ATTR: Final = "_lower_using_switch_merge"
_SHARED_NAME: Final = "shared_name"


def call_op(function: Function, replaced: str) -> str:
    """The op that calls a function in place of a functional op."""
    op = lookup(replaced)
    stateful = is_stateful(function) or op is None or op.effects.stateful
    return "StatefulPartitionedCall" if stateful else "PartitionedCall"


def is_stateful(function: Function) -> bool:
    """True for a function that is declared as stateful, and for one with effects."""
    return function.definition.stateful or has_effects(function)


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


def named_state(nodes: Iterable[Node | BodyNode], library: Mapping[str, Function]) -> str | None:
    """The reason why copies of nodes, and of what they call, would not behave like one node.

    Resources without a shared name have the name of their node.
    """
    todo: list[Node | BodyNode] = [*nodes]
    seen: set[str] = set()
    for node in todo:
        if _is_named_by_node(node):
            return f"{node.name} ({node.op}) makes a resource without a shared_name"
        for name, _ in calls_of(node):
            if name in library and name not in seen:
                seen.add(name)
                todo += library[name].definition.nodes
    return None


def _is_named_by_node(node: Node | BodyNode) -> bool:
    """True for a node with a resource of its own name; handles of variables have the empty name."""
    op = lookup(node.op)
    if op is None or _SHARED_NAME not in op.parsed().attrs or issubclass(op, VarHandleOp):
        return False
    return not node.attrs.get(_SHARED_NAME)
