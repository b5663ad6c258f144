"""Conditionals of one predicate: Merges share a call unless that closes a cycle of dependencies.

Of a row of n conditionals each depends on all before it. Paths are transitive, so that one search,
to or from the last call, excludes all others.
"""

from __future__ import annotations

from cfgraph.ir.node import Node
from cfgraph.passes.cluster.formation.cycle_graph import CycleGraph
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.functionalize.functionalize_cond import ConditionalRegion


class SharedCalls:
    """The calls of one predicate in one frame, each with the Merges that it computes."""

    def __init__(self, liveness: LivenessRule, dependencies: CycleGraph) -> None:
        self.regions: list[ConditionalRegion] = []
        self._liveness = liveness
        self._dependencies = dependencies
        # bit k: a path leads from, or to, region k
        self._before: list[int] = []
        self._after: list[int] = []

    def add(self, form: ConditionalRegion) -> None:
        """Add a Merge to the first call that it is independent of, or to a new call."""
        (merge,) = form.merges
        before, after = self._order(merge)
        candidates = self._all() & ~(before | after)
        while candidates:
            number = (candidates & -candidates).bit_length() - 1
            if self._join(self.regions[number], merge):
                self._before[number] |= before
                self._after[number] |= after
                return
            candidates &= candidates - 1
        self.regions.append(form)
        self._before.append(before)
        self._after.append(after)

    def _all(self) -> int:
        return (1 << len(self.regions)) - 1

    def _order(self, merge: Node) -> tuple[int, int]:
        """Return calls before and after a Merge, from the last to one that is neither."""
        rank, vertex_of = self._dependencies.rank, self._dependencies.vertex_of
        before = after = 0
        current = vertex_of[merge]
        while candidates := self._all() & ~(before | after):
            number = candidates.bit_length() - 1
            vertex = vertex_of[self.regions[number].merges[0]]
            early, late = sorted((vertex, current), key=rank.__getitem__)
            if self._dependencies.indirect_path(early, late) is None:
                break
            if early == vertex:
                before |= self._before[number] | 1 << number
            else:
                after |= self._after[number] | 1 << number
        return before, after

    def _join(self, region: ConditionalRegion, merge: Node) -> bool:
        """Add a Merge to a call; return false if it is live elsewhere, or if a cycle closes."""
        first, vertex_of = region.merges[0], self._dependencies.vertex_of
        if not self._liveness.same_liveness(first, merge):
            return False
        if self._dependencies.merge(vertex_of[first], vertex_of[merge]) is None:
            return False
        region.merges.append(merge)
        return True
