"""Placement facts of ops: the edges that require colocation, and the ops that only a CPU runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Use
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ir.signature import ArgDef
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import Op, is_identity, lookup, role_of

NodePort = tuple[Node, int]  # one output of a node

_WRITTEN_VARIABLE: Final = "the value of a variable that a loop can write"
# roles of the inputs that drive a loop primitive
_DRIVER_ROLES: Final[dict[Role | None, tuple[Role, ...]]] = {
    Role.MERGE: (Role.ENTER, Role.NEXT_ITERATION),
    Role.SWITCH: (Role.MERGE,),
    Role.EXIT: (Role.SWITCH,),
}


@dataclass(frozen=True, slots=True)
class ColocationEdge:
    """An edge whose ends should share a device because they share something.

    A preference yields to device requests: the value that is read from a reference can be sent, but
    its order with writes is then less certain.
    """

    source: Node
    reader: Node
    shared: str
    is_preference: bool = False


@dataclass(frozen=True, slots=True)
class OpPlacement:
    """Placement facts of all nodes with one op and certain types.

    `has_colocated_readers`: readers may have to share the device of the node. `handles` are the
    outputs that contain a handle as a string. `driver_roles` are the roles of the inputs that drive
    the node in a loop. `is_host_only`: only a CPU has a kernel (printing, lookup, strings).
    `forwards`: an output is an input.
    """

    has_colocated_readers: bool
    handles: tuple[int, ...]
    driver_roles: tuple[Role, ...]
    is_host_only: bool
    forwards: bool

    @property
    def is_special(self) -> bool:
        """Return true if something restricts the devices of a node."""
        return self.has_colocated_readers or self.is_host_only or bool(self.driver_roles)


class PlacementFacts:
    """Placement facts of a graph; `special` has the nodes that restrict their devices."""

    def __init__(self, graph: Graph) -> None:
        self._type_attrs = _TypeAttrs()
        self._by_kind: dict[tuple[Any, ...], OpPlacement] = {}
        self.special: dict[Node, OpPlacement] = {}
        for node in graph:
            facts = self._facts(node)
            if facts.is_special:
                self.special[node] = facts

    def _facts(self, node: Node) -> OpPlacement:
        kind = (node.op, *map(node.attrs.get, self._type_attrs[node.op]))
        facts = self._by_kind.get(kind)
        if facts is None:
            facts = self._by_kind[kind] = _op_placement(node)
        return facts

    def host_only_nodes(self) -> Iterator[Node]:
        """Yield the nodes that only a CPU can run."""
        return (node for node, facts in self.special.items() if facts.is_host_only)

    def colocation_edges(self, node: Node) -> Iterator[ColocationEdge]:
        """Yield the edges from a special node to readers that should share its device."""
        facts = self.special[node]
        if facts.has_colocated_readers:
            yield from self._reader_edges(node, facts)

    def loop_edges(self) -> Iterator[ColocationEdge]:
        """Yield a preference for each Merge, Switch, and Exit to share the device of its driver."""
        for node, facts in self.special.items():
            check_deadline()
            for tensor in node.inputs if facts.driver_roles else ():
                if role_of(tensor.node) in facts.driver_roles:
                    yield ColocationEdge(tensor.node, node, "a loop", is_preference=True)

    def _reader_edges(self, node: Node, facts: OpPlacement) -> Iterator[ColocationEdge]:
        types = node.output_types
        for use in node.uses:
            if use.slot < 0:
                continue
            reader, port = use.node, use.node.inputs[use.slot].port
            dtype = types[port] if types is not None and port < len(types) else None
            if port in facts.handles:
                yield from self._string_handle_edges(node, port)
            elif dtype is None:
                yield ColocationEdge(node, reader, "an unknown type", is_preference=True)
            elif dtype.kind == "resource":
                yield ColocationEdge(node, reader, "a resource")
            elif dtype.is_ref:
                by_value = not _takes_reference(use)
                yield ColocationEdge(node, reader, "a reference", is_preference=by_value)
                if by_value and _enters_loop(node, port):
                    start = self._forwarded_outputs(reader, use.slot, _is_not_reference)
                    yield from self._forwarding_edges(
                        start, _is_not_reference, _WRITTEN_VARIABLE, is_preference=True
                    )

    def _string_handle_edges(self, node: Node, port: int) -> Iterator[ColocationEdge]:
        """Yield the edges over which a handle in the form of a string is forwarded."""
        return self._forwarding_edges(
            [(node, port)], _is_string, "the handle of an array", is_preference=False
        )

    def _forwarding_edges(
        self,
        start: list[NodePort],
        test: Callable[[DType], bool],
        shared: str,
        *,
        is_preference: bool,
    ) -> Iterator[ColocationEdge]:
        """Yield the edges from outputs to their readers, also through nodes that forward them."""
        pending, seen = list(start), set(start)
        while pending:
            check_deadline()
            source, port = pending.pop()
            for use in source.readers(port):
                yield ColocationEdge(source, use.node, shared, is_preference=is_preference)
                outputs = self._forwarded_outputs(use.node, use.slot, test)
                new = [output for output in outputs if output not in seen]
                pending.extend(new)
                seen.update(new)

    def _forwarded_outputs(
        self, node: Node, slot: int, test: Callable[[DType], bool]
    ) -> list[NodePort]:
        """Return the outputs that forward an input and whose type passes a test."""
        if not self._facts(node).forwards:
            return []
        outputs = node.output_types or []
        by_slot = is_identity(node)
        ports = [port for port, dtype in enumerate(outputs) if test(dtype)]
        return [(node, port) for port in ports if not by_slot or port == slot]


def _enters_loop(node: Node, port: int) -> bool:
    """Return true for a reference that enters a loop, which may write to it."""
    return any(
        role_of(use.node) is Role.ENTER and _takes_reference(use) for use in node.readers(port)
    )


def _takes_reference(use: Use) -> bool:
    """Return true for a use that reads a reference rather than its value, or may do so."""
    types = use.node.input_types
    return types is None or types[use.slot].is_ref


def _is_not_reference(dtype: DType) -> bool:
    return not dtype.is_ref


class _TypeAttrs(dict[str, tuple[str, ...]]):
    """Type attributes of each op, by its name."""

    def __missing__(self, name: str) -> tuple[str, ...]:
        op = lookup(name)
        args = (*op.parsed().inputs, *op.parsed().outputs) if op else ()
        attrs = self[name] = tuple(dict.fromkeys(arg.type_attr for arg in args if arg.type_attr))
        return attrs


def _op_placement(node: Node) -> OpPlacement:
    op: type[Op] | None = lookup(node.op)
    if op is None:
        return OpPlacement(True, handles=(), driver_roles=(), is_host_only=False, forwards=False)
    signature = op.parsed()
    forwards = op.role in FORWARDING_ROLES or op.aliasing.is_identity
    # a string that is in host memory on any device restricts nothing
    inputs = [arg for arg in signature.inputs if not arg.memory]
    outputs = [
        arg for port, arg in enumerate(signature.outputs) if port not in op.placement.handle_outputs
    ]
    computed = [] if op.role or forwards else [*inputs, *outputs]
    return OpPlacement(
        has_colocated_readers=bool(op.placement.handle_outputs)
        or any(_has_type(arg, node, _requires_colocation) for arg in signature.outputs),
        handles=op.placement.handle_outputs,
        driver_roles=_DRIVER_ROLES.get(op.role, ()),
        is_host_only=op.placement.host_only
        or any(_has_type(arg, node, _is_string) for arg in computed),
        forwards=forwards,
    )


def _has_type(arg: ArgDef, node: Node, test: Callable[[DType], bool]) -> bool:
    """Return true if any type of an argument passes a test."""
    declared = arg.dtype or node.attrs.get(arg.type_attr or "")
    types = declared if isinstance(declared, tuple) else (declared,)
    return any(isinstance(t, DType) and test(t.ref if arg.is_ref else t) for t in types)


def _is_string(dtype: DType) -> bool:
    return dtype.base.kind == "string"


def _requires_colocation(dtype: DType) -> bool:
    return dtype.is_handle
