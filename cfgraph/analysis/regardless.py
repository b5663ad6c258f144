"""What runs whichever way a predicate falls, though only one side of it has a use for it.

Only what is made inside of a branch waits for its predicate. What is made outside and read inside
runs always, the Switches on its way into the branch throw it away.
"""

from __future__ import annotations

from dataclasses import dataclass

from cfgraph.analysis.guards import Guards
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.walk import topological
from cfgraph.ops.op import lookup, role


@dataclass(frozen=True, slots=True)
class Regardless:
    """A predicate, its Switches, and what only one of its sides reads but runs on both.

    `of` has by side (for a Switch of two, 0 is false and 1 is true) the nodes in graph order.
    """

    predicate: Output
    switches: tuple[Node, ...]
    of: dict[int, tuple[Node, ...]]


def regardless(graph: Graph, predicate: Output) -> Regardless | None:
    """What runs regardless of a predicate; None for a tensor that no Switch asks.

    Constants, inputs and what has effects do not count: they are no work, or wanted as they are.
    """
    guards = Guards()
    source, _ = guards.source(predicate)
    switches = [
        node
        for node in graph
        if role(node) == "switch" and guards.source(node.inputs[1])[0] == source
    ]
    if not switches:
        return None
    sides: dict[Node, int | None] = {}
    for node in reversed(topological(graph).nodes):
        if node.uses and _is_pure(node):
            sides[node] = _only_side(node, guards, source, sides)
    found: dict[int, list[Node]] = {}
    for node in graph:
        side = sides.get(node)
        if side is not None and _is_work(node):
            found.setdefault(side, []).append(node)
    return Regardless(source, tuple(switches), {key: tuple(found[key]) for key in sorted(found)})


def _only_side(
    node: Node, guards: Guards, source: Output, sides: dict[Node, int | None]
) -> int | None:
    """The one side of the predicate that all readers of a node serve; None if there is none."""
    wanted = {
        _side_of_reader(use.node, use.slot, guards, source, sides.get(use.node))
        for use in node.uses
    }
    return wanted.pop() if len(wanted) == 1 else None


def _side_of_reader(
    reader: Node, slot: int, guards: Guards, source: Output, known: int | None
) -> int | None:
    if role(reader) != "switch" or slot == CONTROL or guards.source(reader.inputs[1])[0] != source:
        return known
    if slot != 0:
        return None
    used = {use.node.inputs[use.slot].port for use in reader.uses if use.slot != CONTROL}
    if len(used) != 1:
        return None
    return guards.decision(reader.output(used.pop())).side


def _is_pure(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and not (op.role or op.stateful or op.is_input)


def _is_work(node: Node) -> bool:
    op = lookup(node.op)
    return bool(node.inputs) and op is not None and not op.forwards
