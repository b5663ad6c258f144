"""Placement facts of ops: the edges that require colocation, and the ops that only a CPU runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Use
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ir.signature import ArgDef
from cfgraph.ops.opdef.op import Op, lookup, role_of

NodePort = tuple[Node, int]  # a node and one of its outputs

_WRITTEN_VARIABLE: Final = "the value of a variable that a loop can write"
# roles whose nodes hand on what they read
_DRIVER_ROLES: Final[dict[Role | None, tuple[Role, ...]]] = {
    Role.MERGE: (Role.ENTER, Role.NEXT_ITERATION),
    Role.SWITCH: (Role.MERGE,),
    Role.EXIT: (Role.SWITCH,),
}


@dataclass(frozen=True, slots=True)
class ColocationEdge:
    """An edge whose ends are to be on one device, and why.

    A loose one joins them only where nobody asks otherwise: a value that is read from a reference
    can be sent, only not at a time that its order with writes would leave no doubt of.
    """

    source: Node
    reader: Node
    why: str
    loose: bool = False


@dataclass(frozen=True, slots=True)
class OpPlacement:
    """What is said of all nodes of one op and types.

    `ties`: readers may have to be beside the node; `handles` are the outputs that pass for a text;
    `driven_by` are the roles of what drives it in a loop; `on_host`: only a CPU has a kernel: it
    prints, looks up, or works on text; `hands_on`: what it reads, it gives.
    """

    ties: bool
    handles: tuple[int, ...]
    driver_roles: tuple[Role, ...]
    on_host: bool
    hands_on: bool

    @property
    def is_special(self) -> bool:
        """True if something keeps a node from being anywhere."""
        return self.ties or self.on_host or bool(self.driver_roles)


class PlacementFacts:
    """The facts of a graph's nodes; `special` are the nodes that cannot be just anywhere."""

    def __init__(self, graph: Graph) -> None:
        self._type_attrs = _TypeAttrs()
        self._of_kind: dict[tuple[Any, ...], OpPlacement] = {}
        self.special: dict[Node, OpPlacement] = {}
        for node in graph:
            facts = self._of(node)
            if facts.is_special:
                self.special[node] = facts

    def _of(self, node: Node) -> OpPlacement:
        kind = (node.op, *map(node.attrs.get, self._type_attrs[node.op]))
        facts = self._of_kind.get(kind)
        if facts is None:
            facts = self._of_kind[kind] = _op_placement(node)
        return facts

    def on_host(self) -> Iterator[Node]:
        """The nodes that only a CPU can run."""
        return (node for node, facts in self.special.items() if facts.on_host)

    def ties(self, node: Node) -> Iterator[ColocationEdge]:
        """The readers of a special node that are to be on its device."""
        facts = self.special[node]
        if facts.ties:
            yield from self._colocation_edges(node, facts)

    def loop_edges(self) -> Iterator[ColocationEdge]:
        """What drives a loop with a Merge, Switch or Exit: it had better be beside it."""
        for node, facts in self.special.items():
            for item in node.inputs if facts.driver_roles else ():
                if role_of(item.node) in facts.driver_roles:
                    yield ColocationEdge(item.node, node, "a loop", loose=True)

    def _colocation_edges(self, node: Node, facts: OpPlacement) -> Iterator[ColocationEdge]:
        types = registry.output_types(node)
        for use in node.uses:
            if use.slot < 0:
                continue
            reader, port = use.node, use.node.inputs[use.slot].port
            dtype = types[port] if types is not None and port < len(types) else None
            if port in facts.handles:
                yield from self._string_handle_edges(node, port)
            elif dtype is None:
                yield ColocationEdge(node, reader, "of a type that nothing is known of", loose=True)
            elif dtype.kind == "resource":
                yield ColocationEdge(node, reader, "a resource")
            elif dtype.is_ref:
                by_value = not _takes_reference(use)
                yield ColocationEdge(node, reader, "a reference", loose=by_value)
                if by_value and _enters_loop(node, port):
                    start = self._forwarded_outputs(reader, use.slot, _is_not_reference)
                    yield from self._followed(
                        start, _is_not_reference, _WRITTEN_VARIABLE, loose=True
                    )

    def _string_handle_edges(self, node: Node, port: int) -> Iterator[ColocationEdge]:
        """Follow a handle that passes for a string to all who get it."""
        return self._followed([(node, port)], _is_string, "the handle of an array", loose=False)

    def _followed(
        self, start: list[NodePort], test: Callable[[DType], bool], why: str, *, loose: bool
    ) -> Iterator[ColocationEdge]:
        """Follow outputs to all who get what they give, through what hands it on."""
        pending, seen = list(start), set(start)
        while pending:
            source, port = pending.pop()
            for use in source.readers(port):
                yield ColocationEdge(source, use.node, why, loose=loose)
                found = self._forwarded_outputs(use.node, use.slot, test)
                passed = [item for item in found if item not in seen]
                pending.extend(passed)
                seen.update(passed)

    def _forwarded_outputs(
        self, node: Node, slot: int, test: Callable[[DType], bool]
    ) -> list[NodePort]:
        """The outputs, of types that pass a test, that a node hands an input on to."""
        if not self._of(node).hands_on:
            return []
        outputs = registry.output_types(node) or []
        by_slot = _is_identity(node)
        ports = [port for port, dtype in enumerate(outputs) if test(dtype)]
        return [(node, port) for port in ports if not by_slot or port == slot]


def _enters_loop(node: Node, port: int) -> bool:
    """True for a reference that goes into a loop, where it can be written."""
    return any(
        role_of(use.node) is Role.ENTER and _takes_reference(use) for use in node.readers(port)
    )


def _takes_reference(use: Use) -> bool:
    """True for a use that wants the reference, not its value, and for one not known."""
    wanted = registry.input_types(use.node)
    return wanted is None or wanted[use.slot].is_ref


def _is_not_reference(dtype: DType) -> bool:
    return not dtype.is_ref


def _is_identity(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.aliasing.is_identity


class _TypeAttrs(dict[str, tuple[str, ...]]):
    """The attributes that say the types of an op, by its name."""

    def __missing__(self, name: str) -> tuple[str, ...]:
        op = lookup(name)
        args = (*op.parsed().inputs, *op.parsed().outputs) if op else ()
        attrs = self[name] = tuple(dict.fromkeys(arg.type_attr for arg in args if arg.type_attr))
        return attrs


def _op_placement(node: Node) -> OpPlacement:
    op: type[Op] | None = lookup(node.op)
    if op is None:
        return OpPlacement(ties=True, handles=(), driver_roles=(), on_host=False, hands_on=False)
    signature = op.parsed()
    hands_on = op.role in FORWARDING_ROLES or op.aliasing.is_identity
    # a text that lies in host memory anyway binds nobody
    inputs = [
        arg for place, arg in enumerate(signature.inputs) if place not in op.placement.host_inputs
    ]
    outputs = [
        arg
        for place, arg in enumerate(signature.outputs)
        if place not in op.placement.handle_outputs
    ]
    worked_on = [] if op.role or hands_on else [*inputs, *outputs]
    return OpPlacement(
        ties=bool(op.placement.handle_outputs)
        or any(_has_type(arg, node, _requires_colocation) for arg in signature.outputs),
        handles=op.placement.handle_outputs,
        driver_roles=_DRIVER_ROLES.get(op.role, ()),
        on_host=op.placement.host_only
        or any(_has_type(arg, node, _is_string) for arg in worked_on),
        hands_on=hands_on,
    )


def _has_type(arg: ArgDef, node: Node, test: Callable[[DType], bool]) -> bool:
    """True if a type of an argument passes a test."""
    said = arg.dtype or node.attrs.get(arg.type_attr or "")
    types = said if isinstance(said, tuple) else (said,)
    return any(isinstance(item, DType) and test(item.ref if arg.is_ref else item) for item in types)


def _is_string(dtype: DType) -> bool:
    return dtype.base.kind == "string"


def _requires_colocation(dtype: DType) -> bool:
    return dtype.is_handle
