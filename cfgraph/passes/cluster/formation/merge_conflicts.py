"""Conflicts between two clusters when the fetches of later runs are unknown.

A cluster waits for everything that its nodes wait for. Two nodes may share a cluster only if they
depend on the same side effects (variable writes, assertions, printing) or are needed by the same
outputs of the graph. Otherwise a run that fetches one would trigger effects that only the other
depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.ir import registry
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.node_effects import may_write
from cfgraph.ops.opdef.op import lookup

# with more outputs than this, what they need counts as needed by different ones
_MAX_OUTPUTS: Final = 4096


@dataclass(slots=True)
class EffectSet:
    """Of a node or a cluster: the effects it is behind, and the outputs that need it, a bit each.

    `needed` is None where its nodes are not all needed by the same outputs, or nobody knows.
    """

    behind: int = 0
    needed: int | None = None

    def take(self, other: EffectSet) -> None:
        """Add those of another one."""
        self.behind |= other.behind
        self.needed = self.needed if self.needed == other.needed else None

    def apart(self, other: EffectSet) -> bool:
        """True where a run may ask for one of two without the other, and have fewer effects."""
        same = self.needed is not None and self.needed == other.needed
        return self.behind != other.behind and not same


class FetchEffects:
    """The ties of the nodes of a graph."""

    def __init__(self, order: Sequence[Node], effects: EffectAnalysis) -> None:
        writers = [node for node in order if _has_lasting_effect(node, effects)]
        self._behind: Mapping[Node, int] = {}
        self._needed: Mapping[Node, int] = {}
        if writers:
            self._behind = _propagate_bits(order, writers, _predecessors)
            outputs = [node for node in order if not node.uses]
            if len(outputs) <= _MAX_OUTPUTS:
                self._needed = _propagate_bits(order[::-1], outputs, _successors)

    def of(self, node: Node) -> EffectSet:
        """The ties of one node."""
        return EffectSet(self._behind.get(node, 0), self._needed.get(node))


def _propagate_bits(
    order: Iterable[Node], marked: Iterable[Node], near: Callable[[Node], Iterable[Node]]
) -> dict[Node, int]:
    """For each node a bit of each marked one from which it is reached."""
    found = dict.fromkeys(order, 0)
    found.update((node, 1 << place) for place, node in enumerate(marked))
    changed = True
    while changed:  # once more for each depth of loops, whose last nodes come before their first
        changed = False
        for node, bits in found.items():
            new = bits
            for source in near(node):
                new |= found.get(source, 0)
            if new != bits:
                found[node], changed = new, True
    return found


def _predecessors(node: Node) -> list[Node]:
    return [*(item.node for item in node.inputs), *node.controls]


def _successors(node: Node) -> list[Node]:
    return [use.node for use in node.uses]


def _has_lasting_effect(node: Node, effects: EffectAnalysis) -> bool:
    """True for what outlasts a run, or is seen outside of it. Stacks and arrays are a run's own."""
    op = lookup(node.op)
    if op is None or op.swap_role or not may_write(node):
        return False
    return registry.output_count(node) == 0 or any(
        access.writes for access in effects.accesses([node])
    )
