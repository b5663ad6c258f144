"""Type and count attributes that the readable form may leave out: they follow from the inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node

_FIRST_TRIES: Final = 4


class Written(Protocol):
    """A node of a graph, or of a function's body."""

    @property
    def op(self) -> str:
        """The name of its op."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Its attributes."""


@cache
def _from_inputs(definition: Any) -> frozenset[str]:
    """The names of the attributes of an op that the types and number of its inputs tell."""
    inputs = definition.parsed().inputs
    names = [name for arg in inputs for name in (arg.type_attr, arg.count) if name]
    return frozenset(names)


def lacks_attrs(node: Written) -> bool:
    """True if the node carries less than its inputs may tell."""
    definition = registry.lookup(node.op)
    return definition is not None and not _from_inputs(definition) <= node.attrs.keys()


def attrs_from_inputs(node: Node) -> dict[str, Any]:
    """The attributes that a node lacks and its inputs tell, but for those that are the default."""
    return attrs_told(node.op, node.attrs, [source.dtype for source in node.inputs])


def attrs_told(op: str, given: Mapping[str, Any], types: Sequence[DType | None]) -> dict[str, Any]:
    """The attributes that an op lacks and inputs of these types tell, but for the defaults."""
    definition = registry.lookup(op)
    if definition is None:
        return {}
    signature = definition.parsed()
    try:
        attrs = signature.infer(types, given)
    except (TypeError, ValueError):
        return {}
    return {
        key: value
        for key, value in attrs.items()
        if key not in given
        and not (signature.attrs[key].has_default and signature.attrs[key].default == value)
    }


def complete_attrs(nodes: Iterable[Node]) -> None:
    """Give nodes the attributes that their inputs tell, and go on to those that read them.

    A node is tried at first, and again when inputs have become known: at the first few, then ever
    more rarely, and at the last.
    """
    waiting = deque(node for node in nodes if lacks_attrs(node))
    left = set(waiting)
    missing = {node: sum(source.node in left for source in node.inputs) for node in waiting}
    known = dict.fromkeys(waiting, 0)
    while waiting:
        node = waiting.popleft()
        found = attrs_from_inputs(node) if node in left else {}
        if not found:
            continue
        node.attrs.update(found)
        left.discard(node)
        for use in node.uses:
            if use.slot >= 0 and use.node in left:
                known[use.node] += 1
                if _is_time(known[use.node], missing[use.node]):
                    waiting.append(use.node)


def _is_time(known: int, missing: int) -> bool:
    return known <= _FIRST_TRIES or known == missing or known & (known - 1) == 0
