"""The effects and variables that every run needs which needs a node.

If fetches are not known, any result may be fetched by itself. A call, and a cluster, waits for all
that its nodes wait for: side effects (variable writes, assertions, printing), and variables, which
may have no value yet. It must not wait for more than the results that are fetched need.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.op import Op, lookup, may_write


class RunRequirements:
    """The effects and variables that every run needs which needs a node, as bit sets.

    Any sink of the graph, and any of the nodes `outside` of clusters or loops, may be fetched by
    itself. An empty `order` means that the fetches are known, and are run together.

        read x ─▶ h ─▶ pred                h, pred: {x}
                  └──▶ loss ◀─ read y      loss: {x, y}
    """

    def __init__(
        self, order: Sequence[Node], outside: Collection[Node], effects: EffectAnalysis
    ) -> None:
        numbers: dict[Hashable, int] = {}
        marked: dict[Node, int] = {}
        for node in order:
            for key in _needs(node, effects):
                bit = 1 << numbers.setdefault(key, len(numbers))
                marked[node] = marked.get(node, 0) | bit
        self._has_needs = bool(marked)
        self._upstream = _propagate_bits(order, marked) if marked else {}
        self._required: dict[Node, int] = {}
        for node in reversed(order if marked else ()):
            bits = self._upstream[node]
            if node not in outside and node.uses:
                # the reader of a back edge comes later
                bits = reduce(and_, [self._required.get(use.node, bits) for use in node.uses])
            self._required[node] = bits

    def __bool__(self) -> bool:
        """True if a node needs an effect or a variable."""
        return self._has_needs

    def __getitem__(self, node: Node) -> int:
        return self._required.get(node, 0)

    def upstream(self, nodes: Iterable[Node]) -> int:
        """The effects and variables that some nodes need themselves."""
        return reduce(or_, [self._upstream.get(node, 0) for node in nodes], 0)

    def adopt(self, node: Node, replaced: Iterable[Node]) -> None:
        """Record that a new node needs what the nodes that it replaces need."""
        self._upstream[node] = self.upstream(replaced)


def _needs(node: Node, effects: EffectAnalysis) -> Iterator[Hashable]:
    """Keys of what a run may lack, or may not trigger, unless it needs the node."""
    op = lookup(node.op)
    is_check = op is not None and (op.effects.only_checks or _only_checks(op, node))
    if is_check or _has_lasting_effect(node, effects):
        yield node
    elif op is not None and not op.placement.swap_role:
        for access in effects.accesses([node]):
            if access.origin is None:  # the resource outlasts the run
                yield access.resource


def _only_checks(op: type[Op], node: Node) -> bool:
    """True for a node that returns its input, or fails."""
    return op.aliasing.is_identity and op.can_fail(node) and not op.role


def _propagate_bits(order: Iterable[Node], marked: Mapping[Node, int]) -> dict[Node, int]:
    """The bits of all marked nodes that reach each node."""
    reached = dict.fromkeys(order, 0)
    reached.update(marked)
    known: dict[int, int] = {}  # equal sets share their memory
    changed = True
    while changed:  # loops need one more round per nesting level
        changed = False
        for node, bits in reached.items():
            new = bits
            for source in node.predecessors:
                new |= reached.get(source, 0)
            if new != bits:
                reached[node], changed = known.setdefault(new, new), True
    return reached


def _has_lasting_effect(node: Node, effects: EffectAnalysis) -> bool:
    """Return true for effects that outlast a run or are visible outside; stacks are not."""
    op = lookup(node.op)
    if op is None or op.placement.swap_role or not may_write(node):
        return False
    return node.output_count == 0 or any(access.writes for access in effects.accesses([node]))
