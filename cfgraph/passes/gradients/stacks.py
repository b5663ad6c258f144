"""Gradients of stacks: what a pop read, a push wrote.

    forward:    loop 1: push(v)                        loop 2: u = pop()
    backward:   loop 2 back: push(du) on a new stack   loop 1 back: dv = pop() from it

Loop 2 pops in the reverse of the order in which loop 1 pushed, so running back over it pushes in
the order of loop 1, and running back over that pops what belongs to each iteration. It begins when
the other has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.resource_handles import StackAccesses
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.loop_site import LoopSite
from cfgraph.passes.gradients.site import Site


@dataclass(slots=True)
class GradientStack:
    """The stack of gradients of one stack; `filled` says where what ran before it is complete."""

    handle: Output
    filled: dict[Site, Node] = field(default_factory=dict)


class GradientStacks:
    """The stacks of gradients of a graph's stacks."""

    def __init__(self, of: dict[Node, StackAccesses]) -> None:
        self.of = of
        self._made: dict[Node, GradientStack] = {}
        self._reached: set[Frame] = set()

    def links(self) -> dict[Node, list[Node]]:
        """For each pop the pushes that it may read from."""
        return {
            node: use.pushes for node, use in self.of.items() if node in use.pops and use.pushes
        }

    def reaches(self, loop: Frame) -> bool:
        """True if gradients wait for what a loop, or one inside of it, has pushed."""
        return loop in self._reached

    def push(self, site: Site, pop: Node, dx: Output, frames: Mapping[Node, Frame]) -> None:
        """Save the gradient of what a node popped. Raises Unsupported for a shared stack.

        `frames` has the frame of each node.
        """
        use = self.of[pop]
        if len(use.pushes) > 1 or len(use.pops) > 1:
            message = (
                f"the stack {use.handle.name!r} has {len(use.pushes)} pushes and {len(use.pops)} "
                "pops; its gradient needs one of each"
            )
            raise Unsupported(message, node=pop, code="CFG508")
        stack = self._made[use.handle] = GradientStack(_new(site, pop))
        push = site.push(stack.handle, dx)
        stack.filled[site] = push
        frame: Frame | None = frames[use.pushes[0]]
        while frame is not None:
            self._reached.add(frame)
            frame = frame.parent

    def ended(self, outer: Site, inner: LoopSite) -> None:
        """Note that what a loop pushed is there, for the site around it, when the loop is done."""
        for stack in self._made.values():
            if inner in stack.filled and outer not in stack.filled:
                stack.filled[outer] = inner.done()

    def pop(self, site: Site, push: Node) -> Output | None:
        """The gradient of what a node pushed; None if nobody's gradient came that way."""
        stack = self._made.get(self.of[push].handle) if push in self.of else None
        if stack is None:
            return None
        at: Site = site
        while at not in stack.filled and isinstance(at, LoopSite):
            at = at.outer
        done = stack.filled.get(at)
        if done is None:
            message = "what it pushed is popped in the same iteration of another loop"
            raise Unsupported(message, node=push, code="CFG508")
        handle = at.new("Identity", [at.bring(stack.handle)], "g_acc_filled", [done]).output()
        return site.pop(_down(site, at, handle), push)


def _down(site: Site, at: Site, x: Output) -> Output:
    """A tensor of a site around, in this one."""
    return (
        x if site is at or not isinstance(site, LoopSite) else site.enter(_down(site.outer, at, x))
    )


def _new(site: Site, pop: Node) -> Output:
    dtype = pop.attr("elem_type")
    size = site.top.const(-1, dtypes.int32)
    node = site.top.new("StackV2", [size], "g_acc", elem_type=dtype, stack_name=b"g_acc")
    return node.output()
