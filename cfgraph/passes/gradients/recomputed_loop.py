"""Recompute a segment of a loop inside the backward loop over segments, and differentiate it there.

    backward loop over segments:   saved state ──▶ clone of the segment ──▶ its backward loop

The loop saves its state once per segment. The values that the gradients of its iterations need are
saved while the clone runs, and are consumed before the preceding segment is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.loops.path_conditions import BranchDecision, PathCondition
from cfgraph.analysis.loops.regions import Region
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.backward_loop import BackwardLoop
from cfgraph.passes.gradients.checkpointing.purity import array_access
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.reverse import ReverseMode
from cfgraph.passes.gradients.scope import GradientScope


def clone_loop(
    work: GradientContext, region: Region, entering: Callable[[Output], Output]
) -> tuple[Region, dict[Node, Node]]:
    """Add a loop like another one; its region, and the new node for each old one.

    `entering` has for each tensor that enters the old loop the one that enters the new one.
    """
    graph, skipped = work.graph, work.left_out
    twins = {node: work.twin(node) for node in _loop_members(region) if node not in skipped}

    def twin(x: Output) -> Output:
        while x.node in skipped:
            x = x.node.inputs[1]
        return Output(twins[x.node], x.port)

    entered = set(region.frame.enters)
    for node, made in twins.items():
        work.known.copy(made, node)
        if node in entered:
            graph.connect(made, map(entering, node.inputs), ())
        else:
            controls = [twin(item.output()).node for item in node.controls]
            graph.connect(made, map(twin, node.inputs), controls)
    _name_frames(work, region, twins)
    return _clone_region(region, region.outer, twins), twins


def cleanup_clones(work: GradientContext) -> None:
    """Once the gradients are there: do not write arrays again, and remove twins that nobody needs.

    What was written is there still, so that a write has only to hand on its flow; but for arrays
    that are made again.
    """
    graph, twins, effects = work.graph, set(work.twins), EffectAnalysis()
    for node in work.twins:
        if array_access(node) == "write" and effects.origin(node.inputs[0]).node not in twins:
            flow = node.inputs[-1]
            graph.replace_uses(node.output(), flow)
            for reader in node.control_readers:
                waits = [flow.node if item is node else item for item in reader.controls]
                graph.set_controls(reader, waits)
    todo = [node for node in work.twins if any(use.node not in twins for use in node.uses)]
    needed = set(todo)
    while todo:
        node = todo.pop()
        for before in (*(item.node for item in node.inputs), *node.controls):
            if before in twins and before not in needed:
                needed.add(before)
                todo.append(before)
    graph.remove(*(node for node in work.twins if node not in needed))


def _loop_members(region: Region) -> Iterator[Node]:
    """The Enters of a loop, its nodes, and those of the loops in it."""
    yield from region.frame.enters
    for item in region.order:
        if isinstance(item, Region):
            yield from _loop_members(item)
        else:
            yield item


def _name_frames(work: GradientContext, region: Region, twins: dict[Node, Node]) -> None:
    frame = region.frame
    name = work.frame_name(f"again/{frame.name}").encode()
    for enter in frame.enters:
        work.graph.set_attr(twins[enter], "frame_name", name)
    for item in region.order:
        if isinstance(item, Region):
            _name_frames(work, item, twins)


def _clone_region(region: Region, outer: Region | None, twins: dict[Node, Node]) -> Region:
    frame = region.frame
    lists = (
        [twins[node] for node in nodes if node in twins]
        for nodes in (
            frame.nodes,
            frame.enters,
            frame.exits,
            frame.merges,
            frame.next_iterations,
            frame.loop_conds,
        )
    )
    parent = None if outer is None else outer.frame
    made = Region(Frame(frame.name, parent, frame.depth, *lists), outer)
    made.order = [
        _clone_region(item, made, twins) if isinstance(item, Region) else twins[item]
        for item in region.order
        if isinstance(item, Region) or item in twins
    ]
    return made


class RecomputationScope(GradientScope):
    """The backward loop over segments, as what lies around the segment that is run again in it.

    To the gradient of the segment it is what the top of the graph is to that of other loops.
    """

    def __init__(self, outer: BackwardLoop) -> None:
        super().__init__(outer.work)
        self.outer = outer

    @property
    def top(self) -> GradientScope:
        """The top of the graph."""
        return self.outer.top

    def capture_outer(self, x: Output) -> Output:
        """A tensor from the top of the graph, as it can be read here."""
        return self.outer.capture_outer(x)

    def enter_forward(self, x: Output) -> Output:
        """A tensor from the top of the graph, where the segment that is run again can read it."""
        return self.outer.capture_outer(x)

    def constant(self, array: Any, dtype: DType) -> Output:
        """A constant that can be read here."""
        return self.outer.const(array, dtype)

    def behind(self) -> list[Node]:
        """What the counter of the segment begins behind: the end of the segment after it."""
        return [self.outer.back.step]

    def wait_for(self, inner: BackwardLoop, guard: PathCondition) -> None:
        """Go on to the segment before when this one has been run back over."""
        self.outer.back.steps.wait_for(inner.done(), may_be_dead=False)

    def residual_decisions(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """These decisions without that of the backward loop itself, to go on."""
        guards = self.outer.guards
        own = guards.source(self.outer.back.cond)[0]
        return [item for item in decisions if item.source != own]


class Recomputation:
    """A segment that is run again: its region there, and the gradients around it."""

    def __init__(self, around: ReverseMode, region: Region) -> None:
        outer = around.site
        assert isinstance(outer, BackwardLoop)
        self.around = around
        found = around.regions
        self.region, self.twins = clone_loop(outer.work, region, outer.read)
        found.learn(Region(region.frame, None, [self.region]))
        around.active.also(self.twins)
        self.enters = region.frame.enters
        entering = [node for node in self.enters if around.wanted(node.inputs[0])]
        around.active.want(self.twins[node].inputs[0] for node in entering)
        site = RecomputationScope(outer)
        self.reverse = ReverseMode(site, around.region, found, around.active, around.stacks)
        for node in region.frame.exits:
            leaving = self.twins[node].output()
            for part in around.parts(node.output()):
                self.reverse.accumulate(leaving, part, found.guards.of(leaving))

    def accumulate_outer(self) -> None:
        """Hand the gradients of what entered the segment to what enters it in the graph."""
        around, handed = self.around, set[Output]()
        for enter in self.enters:
            source, twin = enter.inputs[0], self.twins[enter].inputs[0]
            if twin in handed or not around.wanted(source):
                continue  # what is the same in all segments may enter them several times
            handed.add(twin)
            for part in self.reverse.parts(twin):
                around.accumulate(source, part, around.regions.guards.of(source))
