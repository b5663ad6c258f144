"""Resource handles: the variable that a handle refers to, and the pushes and pops of each stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node, Output, Use
from cfgraph.ir.names import decode_key
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.functional import FunctionalOp
from cfgraph.ops.families.resource_variables import (
    AssignUpdateVariableOp,
    AssignVariableOp,
    VarHandleOp,
    VariableRead,
    declared_shape,
)
from cfgraph.ops.families.stacks import StackCloseV2, StackHandle, StackPopV2, StackPushV2
from cfgraph.ops.families.variables import VariableV2
from cfgraph.ops.opdef.op import is_a, is_identity, lookup, role_of

# TensorFlow's attribute of a node that outputs a handle: the types of the tensors behind it
HANDLE_TYPES: Final = "_handle_dtypes"
_VARIABLE_ACCESSES: Final = (VariableRead, AssignVariableOp, AssignUpdateVariableOp)


def variable_of_handle(graph: Graph, handle: Output) -> tuple[DType | None, Shape]:
    """The type and shape of the variable behind a handle.

    They are the declared ones; for a handle that is fed, such as a captured one, the type comes
    from its accesses, including those in functions.
    """
    op = lookup(handle.node.op)
    if op is not None and not op.effects.is_input:
        declared = handle.node.attrs.get("dtype")
        if isinstance(declared, DType):
            return declared, declared_shape(handle)
    match handle.node.attrs.get(HANDLE_TYPES):
        case (DType() as dtype,) if handle.port == 0:
            return dtype, declared_shape(handle)
    return _VariableTypes(graph).of_handle(handle), declared_shape(handle)


def is_variable(node: Node | BodyNode) -> bool:
    """True for a node that outputs a variable: a reference or a handle."""
    return is_a(node, VariableV2, VarHandleOp)


def is_same_variable(a: Node, b: Node) -> bool:
    """True for two nodes that output the same variable."""
    if not (is_variable(a) and is_variable(b)):
        return False
    return variable_key(a) == variable_key(b)


def variable_key(node: Node | BodyNode) -> tuple[str, str]:
    """The container and the name of the variable that a node outputs."""
    shared = _resource_name(node, "shared_name")
    if is_a(node, VariableV2):
        shared = shared or node.name
    return _resource_name(node, "container"), shared


def _resource_name(node: Node | BodyNode, key: str) -> str:
    """The text of an attribute; empty for one that the caller of a function sets."""
    value = node.attrs.get(key)
    return decode_key(value) if isinstance(value, bytes) else ""


class _VariableTypes:
    """Search for the type that a variable is read, assigned, or updated as."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.seen = set[Output | tuple[str, int]]()

    def of_handle(self, handle: Output) -> DType | None:
        """The type that the readers of a handle expect, or None."""
        self.seen.add(handle)
        for use in handle.node.uses:
            node = use.node
            if use.slot < 0 or node.inputs[use.slot] != handle:
                continue
            dtype = self.of_use(node, use.slot)
            for output in forwarded_outputs(node, use.slot):
                if dtype is None and output not in self.seen:
                    dtype = self.of_handle(output)
            if dtype is not None:
                return dtype
        return None

    def of_use(self, node: Node | BodyNode, slot: int) -> DType | None:
        """The type that a node expects of the variable at an input, or None."""
        op = lookup(node.op)
        if slot == 0 and op is not None and issubclass(op, _VARIABLE_ACCESSES):
            dtype = node.attrs.get("dtype")
            return dtype if isinstance(dtype, DType) else None
        if op is None or not issubclass(op, FunctionalOp):
            return None
        names = [func.name for func in op.calls.named_in(node.attrs)]
        found = (self.type_in_function(name, slot - op.calls.first_argument) for name in names)
        return next((dtype for dtype in found if dtype is not None), None)

    def type_in_function(self, name: str, position: int) -> DType | None:
        """The type that a function expects of the variable at an argument, or None."""
        function = self.graph.functions.get(name)
        if function is None or (name, position) in self.seen:
            return None
        self.seen.add((name, position))
        arguments = function.definition.inputs
        argument = arguments[position].name if 0 <= position < len(arguments) else None
        for node in function.definition.nodes:
            for slot, text in enumerate(node.inputs):
                dtype = self.of_use(node, slot) if text == argument else None
                if dtype is not None:
                    return dtype
        return None


def forwarded_outputs(node: Node, slot: int) -> list[Output]:
    """The outputs that may be an input of a node, unchanged."""
    role = role_of(node)
    if role in FORWARDING_ROLES and (slot == 0 or role is Role.MERGE):
        count = node.output_count or 0
        return [node.output(port) for port in range(count if role is Role.SWITCH else 1)]
    return [node.output(slot)] if is_identity(node) else []


def handle_uses(
    handle: Output, forwarded: Callable[[Node, int], list[Output]] = forwarded_outputs
) -> tuple[list[Use], list[Output]]:
    """The uses of a handle that do not forward it, and all outputs that are the handle."""
    uses: list[Use] = []
    handles = {handle: None}
    for tensor in (todo := [handle]):
        for use in tensor.node.readers(tensor.port):
            outputs = forwarded(use.node, use.slot)
            if not outputs:
                uses.append(use)
            new = [output for output in outputs if output not in handles]
            handles.update(dict.fromkeys(new))
            todo += new
    return uses, list(handles)


@dataclass(slots=True, eq=False)
class StackAccesses:
    """A stack: the node that creates it, its pushes and pops, and other readers of its handle."""

    handle: Node
    pushes: list[Node] = field(default_factory=list)
    pops: list[Node] = field(default_factory=list)
    others: list[Node] = field(default_factory=list)


def stacks(graph: Graph) -> dict[Node, StackAccesses]:
    """The stack of every push and pop, found by following the handles."""
    accesses: dict[Node, StackAccesses] = {}
    for node in graph:
        if not is_a(node, StackHandle):
            continue
        stack = StackAccesses(node)
        uses, _ = handle_uses(node.output())
        for reader, slot in uses:
            is_push = slot == 0 and is_a(reader, StackPushV2)
            if is_push or is_a(reader, StackPopV2):
                (stack.pushes if is_push else stack.pops).append(reader)
                accesses[reader] = stack
            else:
                stack.others.append(reader)
    return accesses


def popped_values(graph: Graph) -> dict[Node, Output]:
    """The input of the only push that can precede a pop, for each pop with such a push.

    A handle that a node other than a push, a pop, or a close reads may be pushed to elsewhere.
    """
    return {
        pop: stack.pushes[0].inputs[1]
        for pop, stack in stacks(graph).items()
        if is_a(pop, StackPopV2)
        and len(stack.pushes) == 1
        and all(is_a(reader, StackCloseV2) for reader in stack.others)
    }
