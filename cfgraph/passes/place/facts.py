"""What the ops say of where their nodes can be: which edges tie, and what only a CPU can run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.signature import Arg
from cfgraph.ops.op import Op, lookup, role

# roles whose nodes hand on what they read
_HAND_ON: Final = frozenset({"switch", "merge", "enter", "exit", "next_iteration"})
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
class _OpFacts:
    """What the class of an op says of all its nodes, and the attributes that say the rest."""

    hands_on: bool
    on_host: bool
    ties: bool
    handles: tuple[int, ...]
    driven_by: tuple[str, ...]
    tying_attrs: tuple[str, ...]
    text_attrs: tuple[str, ...]


class Facts(dict[str, _OpFacts]):
    """The facts of ops, by op name, each worked out once."""

    def __missing__(self, name: str) -> _OpFacts:
        op = lookup(name)
        facts = self[name] = _of_op(op) if op else _OpFacts(False, False, True, (), (), (), ())
        return facts

    def needs_host(self, node: Node) -> bool:
        """True if only a CPU has a kernel for the node: it prints, looks up, or works on text."""
        facts = self[node.op]
        if facts.on_host:
            return True
        attrs = node.attrs
        return any(_holds(attrs.get(name), _is_text) for name in facts.text_attrs)

    def ties(self, node: Node) -> Iterator[Tie]:
        """The readers of a node that are to be on its device."""
        facts = self[node.op]
        attrs = node.attrs
        if facts.handles or facts.ties:
            yield from self._tied(node, facts)
        else:
            for name in facts.tying_attrs:
                value = attrs.get(name)
                if value.__class__ is DType and not (value.is_ref or value.kind == "resource"):
                    continue
                if _holds(value, _is_tying):
                    yield from self._tied(node, facts)
                    return

    def loop_ties(self, node: Node) -> list[Tie]:
        """What drives a loop with a Merge, Switch or Exit: it had better be beside it."""
        drivers = self[node.op].driven_by
        if not drivers:
            return []
        sources = [item.node for item in node.inputs if role(item.node) in drivers]
        return [Tie(source, node, "a loop", loose=True) for source in sources]

    def _tied(self, node: Node, facts: _OpFacts) -> Iterator[Tie]:
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
                wanted = registry.input_types(reader)
                by_value = wanted is not None and not wanted[use.slot].is_ref
                yield Tie(node, reader, "a reference", loose=by_value)

    def _text_handles(self, node: Node, port: int) -> Iterator[Tie]:
        """Follow a handle that passes for a string to all who get it."""
        pending, seen = [(node, port)], {(node, port)}
        while pending:
            source, port = pending.pop()
            for use in source.readers(port):
                yield Tie(source, use.node, "the handle of an array")
                passed = [item for item in self._passed(use.node, use.slot) if item not in seen]
                pending.extend(passed)
                seen.update(passed)

    def _passed(self, node: Node, slot: int) -> list[tuple[Node, int]]:
        """The outputs that a node hands a text of an input on to."""
        if not self[node.op].hands_on:
            return []
        outputs = registry.output_types(node) or []
        by_slot = _forwards(node)
        ports = [port for port, dtype in enumerate(outputs) if _is_text(dtype)]
        return [(node, port) for port in ports if not by_slot or port == slot]


def _forwards(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.forwards


def _of_op(op: type[Op]) -> _OpFacts:
    signature = op.parsed()
    hands_on = op.role in _HAND_ON or op.forwards
    # a text that lies in host memory anyway binds nobody
    inputs = [arg for place, arg in enumerate(signature.inputs) if place not in op.host_inputs]
    outputs = [arg for place, arg in enumerate(signature.outputs) if place not in op.handles]
    worked_on = [] if op.role or hands_on else [*inputs, *outputs]
    return _OpFacts(
        hands_on=hands_on,
        on_host=op.host_only or any(_fixed(arg, _is_text) for arg in worked_on),
        ties=any(arg.is_ref or _fixed(arg, _is_tying) for arg in signature.outputs),
        handles=op.handles,
        driven_by=_DRIVEN_BY.get(op.role, ()),
        tying_attrs=_type_attrs(signature.outputs),
        text_attrs=_type_attrs(worked_on),
    )


def _type_attrs(args: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(arg.type_attr for arg in args if arg.type_attr))


def _fixed(arg: Arg, test: Any) -> bool:
    return arg.dtype is not None and bool(test(arg.dtype))


def _holds(value: Any, test: Any) -> bool:
    """True if a type, or one of a list of types, passes a test."""
    if isinstance(value, tuple):
        return any(isinstance(item, DType) and test(item) for item in value)
    return isinstance(value, DType) and bool(test(value))


def _is_text(dtype: DType) -> bool:
    return dtype.base.kind == "string"


def _is_tying(dtype: DType) -> bool:
    return dtype.is_ref or dtype.kind == "resource"
