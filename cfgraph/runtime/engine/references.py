"""Variables that are read through references.

A reference is the memory of the variable itself until a kernel computes with it. Identity and the
control-flow primitives forward the reference, and its reader gets the value at that time: an
invariant of a loop that assigns to the variable changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from cfgraph.errors import CfgraphError, ExecutionError, UsageError
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ops.families.constants import Identity
from cfgraph.ops.families.stacks import Stack
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.ops.opdef.resources import Resource


class References:
    """References of a run, including outputs that forward one under the type of a value."""

    def __init__(self, nodes: Iterable[Node], fed: Collection[Output]) -> None:
        self.fed = fed
        self.forwarded: set[Output] = set()
        worklist = [node for node in nodes if self.forwarded_slots(node)]
        while worklist:
            node = worklist.pop()
            for port in range(_forwarded_outputs(node)):
                output = node.output(port)
                if output in fed or output in self.forwarded:
                    continue
                self.forwarded.add(output)
                worklist.extend(
                    use.node for use in node.readers(port) if self.forwarded_slots(use.node)
                )

    def forwarded_slots(self, node: Node) -> tuple[int, ...]:
        """The slots whose references a node forwards, without the predicate of a Switch."""
        if not _forwards_references(node):
            return ()
        return tuple(
            slot for slot in self.deref_slots(node) if slot == 0 or role_of(node) is not Role.SWITCH
        )

    def deref_slots(self, node: Node) -> tuple[int, ...]:
        """The slots that may hold a reference where the op expects its value.

        Raises UsageError for a value that is fed where the op expects the reference.
        """
        return tuple(slot for slot in range(len(node.inputs)) if self._is_dereferenced(node, slot))

    def _is_dereferenced(self, node: Node, slot: int) -> bool:
        output = node.inputs[slot]
        if output in self.forwarded:
            return True
        is_fed = output in self.fed
        if not is_fed and not _is_reference(output):
            return False
        expected = node.input_types or []
        if expected[slot].is_ref and is_fed:
            message = (
                f"{output.name} is fed a value, but {node.name!r} ({node.op}) expects the variable"
            )
            raise UsageError(
                message, node=node, hint=f"feed a consumer of {output.node.name!r} instead"
            )
        return not expected[slot].is_ref and not is_fed


def dereference(output: Any) -> Any:
    """The value of a reference: a variable's value, or the names of a legacy stack.

    Other values are returned unchanged. Raises OpError if the variable has no value.
    """
    if type(output) is Variable:
        return output if output.resource else output.read()
    return output.names if type(output) is Stack and output.names is not None else output


def fetched_value(tensor: Output, variable: Resource) -> Any:
    """The value of a variable that is fetched by reference, after the run.

    Raises ExecutionError if the variable has no value.
    """
    try:
        return dereference(variable)
    except CfgraphError as error:
        message, hint = error.message, error.hint
        raise ExecutionError(message, node=tensor.node, hint=hint, code="CFG705") from None


def _forwards_references(node: Node) -> bool:
    op = lookup(node.op)
    return op is Identity or (op is not None and op.role in FORWARDING_ROLES)


def _forwarded_outputs(node: Node) -> int:
    """The number of leading outputs that forward a reference; the index of a Merge does not."""
    return node.output_count or 0 if role_of(node) is Role.SWITCH else 1


def _is_reference(output: Output) -> bool:
    definition = registry.lookup(output.node.op)
    if definition is None or not definition.parsed().has_references:
        return False
    dtype = output.dtype
    return dtype is not None and dtype.is_ref
