"""The gradient of a segment of a loop: it is run again, in the loop that runs back over segments.

    backward loop over segments:   saved state ──▶ the segment again ──▶ back over its iterations

The loop saves its state once a segment. Whatever the gradients of the iterations need is saved
while the segment runs again, and has been used up when the one before it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cfgraph.analysis.loops.path_conditions import BranchDecision, PathCondition
from cfgraph.analysis.loops.regions import Region
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.loop_site import LoopSite
from cfgraph.passes.gradients.reverse import Reverse
from cfgraph.passes.gradients.site import Site
from cfgraph.passes.gradients.twins import twin_of


class RerunSite(Site):
    """The backward loop over segments, as what lies around the segment that is run again in it.

    To the gradient of the segment it is what the top of the graph is to that of other loops.
    """

    def __init__(self, outer: LoopSite) -> None:
        super().__init__(outer.work)
        self.outer = outer

    @property
    def top(self) -> Site:
        """The top of the graph."""
        return self.outer.top

    def bring(self, x: Output) -> Output:
        """A tensor from the top of the graph, as it can be read here."""
        return self.outer.bring(x)

    def enter_forward(self, x: Output) -> Output:
        """A tensor from the top of the graph, where the segment that is run again can read it."""
        return self.outer.bring(x)

    def constant(self, array: Any, dtype: DType) -> Output:
        """A constant that can be read here."""
        return self.outer.const(array, dtype)

    def behind(self) -> list[Node]:
        """What the counter of the segment begins behind: the end of the segment after it."""
        return [self.outer.back.step]

    def wait_for(self, inner: LoopSite, guard: PathCondition) -> None:
        """Go on to the segment before when this one has been run back over."""
        self.outer.back.steps.wait_for(inner.done(), may_be_dead=False)

    def within_iteration(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """These decisions without that of the backward loop itself, to go on."""
        guards = self.outer.guards
        own = guards.source(self.outer.back.cond)[0]
        return [item for item in decisions if item.source != own]


class Rerun:
    """A segment that is run again: its region there, and the gradients around it."""

    def __init__(self, around: Reverse, region: Region) -> None:
        outer = around.site
        assert isinstance(outer, LoopSite)
        self.around = around
        found = around.regions
        self.region, self.twins = twin_of(outer.work, region, outer.read)
        found.learn(Region(region.frame, None, [self.region]))
        around.active.also(self.twins)
        self.enters = region.frame.enters
        entering = [node for node in self.enters if around.wanted(node.inputs[0])]
        around.active.want(self.twins[node].inputs[0] for node in entering)
        site = RerunSite(outer)
        self.reverse = Reverse(site, around.region, found, around.active, around.stacks)
        for node in region.frame.exits:
            leaving = self.twins[node].output()
            for part in around.parts(node.output()):
                self.reverse.hand(leaving, part, found.guards.of(leaving))

    def hand_back(self) -> None:
        """Hand the gradients of what entered the segment to what enters it in the graph."""
        around, handed = self.around, set[Output]()
        for enter in self.enters:
            source, twin = enter.inputs[0], self.twins[enter].inputs[0]
            if twin in handed or not around.wanted(source):
                continue  # what is the same in all segments may enter them several times
            handed.add(twin)
            for part in self.reverse.parts(twin):
                around.hand(source, part, around.regions.guards.of(source))
