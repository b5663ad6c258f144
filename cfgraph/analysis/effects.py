"""Effects: the resources (variables, stacks, queues, tables) that each node reads and writes.

TensorArrays are excluded: their flow tensors order the accesses to each array, and accesses that
the flow does not order touch different elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ir.signature import ArgDef
from cfgraph.ops.opdef.op import Op, lookup

_FLOW: Final = "flow_in"


class ResourceAccess(NamedTuple):
    """An access of a node to a resource, which `name` names.

    `origin` is the node that makes a new resource each time it runs, such as a stack.
    """

    node: Node
    resource: Hashable
    name: str
    writes: bool
    origin: Node | None = None


class EffectAnalysis:
    """The resource accesses of nodes; caches the origin of each handle.

    With `launches`, the call of a cluster counts as a write to each resource that it takes.
    """

    def __init__(self, *, launches: bool = False) -> None:
        self._origins: dict[Output, Output] = {}
        self._facts = _HandleUseByOp(launches)

    def accesses(self, nodes: Iterable[Node]) -> Iterator[ResourceAccess]:
        """The accesses of nodes through their own inputs, and of launches if they count."""
        for node in nodes:
            facts = self._facts[node.op]
            if facts is None:
                continue
            op = facts.op
            for slot, is_handle in _resource_inputs(facts, node):
                if op.effects.stateful or not is_handle:
                    origin = self.origin(node.inputs[slot])
                    writes = is_handle and not op.effects.reads_only
                    maker = origin.node if _makes_new_resource(origin.node) else None
                    key = _resource_key(origin)
                    yield ResourceAccess(node, key, origin.node.name, writes, maker)

    def origin(self, handle: Output) -> Output:
        """The output that a handle originates from, or the Merge of several handles."""
        trail: dict[Output, None] = {}
        current = handle
        while current not in self._origins:
            trail[current] = None
            before = _forwarded_handle(current)
            if before is None or before in trail:  # a handle may be its own input
                self._origins[current] = current
                break
            current = before
        origin = self._origins[current]
        self._origins.update(dict.fromkeys(trail, origin))
        return origin


class _HandleUse(NamedTuple):
    op: type[Op]
    takes_handles: bool


class _HandleUseByOp(dict[str, _HandleUse | None]):
    """Handle use by op name, with None for primitives, calls, and ops with a flow input."""

    def __init__(self, launches: bool) -> None:
        super().__init__()
        self.included_calls = ("", "launch") if launches else ("",)

    def __missing__(self, name: str) -> _HandleUse | None:
        op = lookup(name)
        facts = None
        if not (op is None or op.role or op.calls.kind not in self.included_calls or has_flow(op)):
            facts = _HandleUse(op, any(map(_is_handle, op.parsed().inputs)))
        self[name] = facts
        return facts


def has_flow(op: type[Op]) -> bool:
    """True for an access to a TensorArray that its flow orders."""
    return any(arg.name == _FLOW for arg in op.parsed().inputs)


def _is_handle(arg: ArgDef) -> bool:
    return arg.is_ref or (arg.dtype is not None and arg.dtype.is_handle)


def _resource_inputs(facts: _HandleUse, node: Node) -> Iterator[tuple[int, bool]]:
    """The resource inputs of a node, with True for a handle and False for a reference that is
    read.
    """
    if not facts.takes_handles:
        for slot, tensor in enumerate(node.inputs):
            if (dtype := tensor.dtype) is not None and dtype.is_ref:
                yield slot, False
        return
    signature, start = facts.op.parsed(), 0
    ends = signature.input_ends(node.attrs)
    for arg, end in zip(signature.inputs, ends, strict=True):
        is_handle = _is_handle(arg)
        for slot in range(start, end):
            dtype = node.inputs[slot].dtype
            if is_handle or (dtype is not None and dtype.is_ref):
                yield slot, is_handle
        start = end


def _forwarded_handle(tensor: Output) -> Output | None:
    """The input that an output forwards, or None for a new handle."""
    node, op = tensor.node, lookup(tensor.node.op)
    if op is None or not node.inputs:
        return None
    if op.role is Role.MERGE:
        # the Merge of a loop forwards the handle that enters
        entering = [source for source in node.inputs if not _is_next_iteration(source.node)]
        return entering[0] if len(set(entering)) == 1 else None
    if op.role in FORWARDING_ROLES or op.aliasing.is_identity:
        return node.inputs[0]
    return node.inputs[0] if _forwards_updated_ref(op, tensor) else None


def _makes_new_resource(node: Node) -> bool:
    """True for a node that makes a resource from its inputs, not the handle of a lasting one."""
    op = lookup(node.op)
    return op is not None and op.effects.stateful and bool(node.inputs)


def _is_next_iteration(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.role is Role.NEXT_ITERATION


def _forwards_updated_ref(op: type[Op], tensor: Output) -> bool:
    """True for a reference input that an op updates and forwards."""
    input_dtype, output_dtype = tensor.node.inputs[0].dtype, tensor.dtype
    return (
        op.effects.stateful
        and input_dtype is not None
        and output_dtype is not None
        and input_dtype.is_ref
        and output_dtype.is_ref
    )


def _resource_key(origin: Output) -> Hashable:
    """A key that all handles of one resource share."""
    attrs = origin.node.attrs
    if attrs.get("shared_name"):
        return attrs.get("container", b""), attrs["shared_name"]
    return origin
