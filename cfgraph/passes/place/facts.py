"""What the ops say of where their nodes can be: which edges tie, and what only a CPU can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Use
from cfgraph.ir.signature import Arg
from cfgraph.ops.op import HANDS_ON, Op, lookup, role

Place = tuple[Node, int]  # a node and one of its outputs

_WRITTEN: Final = "the value of a variable that a loop can write"
# roles whose nodes hand on what they read
_DRIVEN_BY: Final = {
    "merge": ("enter", "next_iteration"),
    "switch": ("merge",),
    "exit": ("switch",),
}


@dataclass(frozen=True, slots=True)
class Tie:
    """An edge whose ends are to be on one device, and why.

    A loose one joins them only where nobody asks otherwise: a value that is read from a reference
    can be sent, only not at a time that its order with writes would leave no doubt of.
    """

    source: Node
    reader: Node
    why: str
    loose: bool = False


@dataclass(frozen=True, slots=True)
class KindFacts:
    """What is said of all nodes of one op and types.

    `ties`: readers may have to be beside the node; `handles` are the outputs that pass for a text;
    `driven_by` are the roles of what drives it in a loop; `on_host`: only a CPU has a kernel: it
    prints, looks up, or works on text; `hands_on`: what it reads, it gives.
    """

    ties: bool
    handles: tuple[int, ...]
    driven_by: tuple[str, ...]
    on_host: bool
    hands_on: bool

    @property
    def is_special(self) -> bool:
        """True if something keeps a node from being anywhere."""
        return self.ties or self.on_host or bool(self.driven_by)


class Facts:
    """The facts of a graph's nodes; `special` are the nodes that cannot be just anywhere."""

    def __init__(self, graph: Graph) -> None:
        self._type_attrs = _TypeAttrs()
        self._of_kind: dict[tuple[Any, ...], KindFacts] = {}
        self.special: dict[Node, KindFacts] = {}
        for node in graph:
            facts = self._of(node)
            if facts.is_special:
                self.special[node] = facts

    def _of(self, node: Node) -> KindFacts:
        kind = (node.op, *map(node.attrs.get, self._type_attrs[node.op]))
        facts = self._of_kind.get(kind)
        if facts is None:
            facts = self._of_kind[kind] = _facts_of(node)
        return facts

    def on_host(self) -> Iterator[Node]:
        """The nodes that only a CPU can run."""
        return (node for node, facts in self.special.items() if facts.on_host)

    def ties(self, node: Node) -> Iterator[Tie]:
        """The readers of a special node that are to be on its device."""
        facts = self.special[node]
        if facts.ties:
            yield from self._tied(node, facts)

    def loop_ties(self) -> Iterator[Tie]:
        """What drives a loop with a Merge, Switch or Exit: it had better be beside it."""
        for node, facts in self.special.items():
            for item in node.inputs if facts.driven_by else ():
                if role(item.node) in facts.driven_by:
                    yield Tie(item.node, node, "a loop", loose=True)

    def _tied(self, node: Node, facts: KindFacts) -> Iterator[Tie]:
        types = registry.output_types(node)
        for use in node.uses:
            if use.slot < 0:
                continue
            reader, port = use.node, use.node.inputs[use.slot].port
            dtype = types[port] if types is not None and port < len(types) else None
            if port in facts.handles:
                yield from self._text_handles(node, port)
            elif dtype is None:
                yield Tie(node, reader, "of a type that nothing is known of", loose=True)
            elif dtype.kind == "resource":
                yield Tie(node, reader, "a resource")
            elif dtype.is_ref:
                by_value = not _takes(use)
                yield Tie(node, reader, "a reference", loose=by_value)
                if by_value and _enters(node, port):
                    start = self._passed(reader, use.slot, _is_value)
                    yield from self._followed(start, _is_value, _WRITTEN, loose=True)

    def _text_handles(self, node: Node, port: int) -> Iterator[Tie]:
        """Follow a handle that passes for a string to all who get it."""
        return self._followed([(node, port)], _is_text, "the handle of an array", loose=False)

    def _followed(
        self, start: list[Place], test: Callable[[DType], bool], why: str, *, loose: bool
    ) -> Iterator[Tie]:
        """Follow outputs to all who get what they give, through what hands it on."""
        pending, seen = list(start), set(start)
        while pending:
            source, port = pending.pop()
            for use in source.readers(port):
                yield Tie(source, use.node, why, loose=loose)
                found = self._passed(use.node, use.slot, test)
                passed = [item for item in found if item not in seen]
                pending.extend(passed)
                seen.update(passed)

    def _passed(self, node: Node, slot: int, test: Callable[[DType], bool]) -> list[Place]:
        """The outputs, of types that pass a test, that a node hands an input on to."""
        if not self._of(node).hands_on:
            return []
        outputs = registry.output_types(node) or []
        by_slot = _forwards(node)
        ports = [port for port, dtype in enumerate(outputs) if test(dtype)]
        return [(node, port) for port in ports if not by_slot or port == slot]


def _enters(node: Node, port: int) -> bool:
    """True for a reference that goes into a loop, where it can be written."""
    return any(role(use.node) == "enter" and _takes(use) for use in node.readers(port))


def _takes(use: Use) -> bool:
    """True for a use that wants the reference, not its value, and for one not known."""
    wanted = registry.input_types(use.node)
    return wanted is None or wanted[use.slot].is_ref


def _is_value(dtype: DType) -> bool:
    return not dtype.is_ref


def _forwards(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.forwards


class _TypeAttrs(dict[str, tuple[str, ...]]):
    """The attributes that say the types of an op, by its name."""

    def __missing__(self, name: str) -> tuple[str, ...]:
        op = lookup(name)
        args = (*op.parsed().inputs, *op.parsed().outputs) if op else ()
        attrs = self[name] = tuple(dict.fromkeys(arg.type_attr for arg in args if arg.type_attr))
        return attrs


def _facts_of(node: Node) -> KindFacts:
    op: type[Op] | None = lookup(node.op)
    if op is None:
        return KindFacts(ties=True, handles=(), driven_by=(), on_host=False, hands_on=False)
    signature = op.parsed()
    hands_on = op.role in HANDS_ON or op.forwards
    # a text that lies in host memory anyway binds nobody
    inputs = [arg for place, arg in enumerate(signature.inputs) if place not in op.host_inputs]
    outputs = [arg for place, arg in enumerate(signature.outputs) if place not in op.handles]
    worked_on = [] if op.role or hands_on else [*inputs, *outputs]
    return KindFacts(
        ties=bool(op.handles) or any(_holds(arg, node, _is_tying) for arg in signature.outputs),
        handles=op.handles,
        driven_by=_DRIVEN_BY.get(op.role, ()),
        on_host=op.host_only or any(_holds(arg, node, _is_text) for arg in worked_on),
        hands_on=hands_on,
    )


def _holds(arg: Arg, node: Node, test: Callable[[DType], bool]) -> bool:
    """True if a type of an argument passes a test."""
    said = arg.dtype or node.attrs.get(arg.type_attr or "")
    types = said if isinstance(said, tuple) else (said,)
    return any(isinstance(item, DType) and test(item.ref if arg.is_ref else item) for item in types)


def _is_text(dtype: DType) -> bool:
    return dtype.base.kind == "string"


def _is_tying(dtype: DType) -> bool:
    return dtype.is_ref or dtype.kind == "resource"
