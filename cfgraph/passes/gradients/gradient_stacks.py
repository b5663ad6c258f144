"""Gradients of stacks: the gradient of a popped value flows to the matching push.

    forward:    loop 1: push(v)                        loop 2: u = pop()
    backward:   backward loop 2: push(du) on a new stack   backward loop 1: dv = pop() from it

Loop 2 pops in the reverse order of the pushes of loop 1. Its backward loop therefore pushes in the
order of loop 1, and the backward loop of loop 1, which starts when the other has ended, pops the
gradient that belongs to each iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.resource_handles import StackAccesses
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.backward_loop import BackwardLoop
from cfgraph.passes.gradients.scope import GradientScope


@dataclass(slots=True)
class GradientStack:
    """The stack of gradients of one stack; `filled` says where what ran before it is complete."""

    handle: Output
    filled: dict[GradientScope, Node] = field(default_factory=dict)


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

    def push(
        self, site: GradientScope, pop: Node, dx: Output, frames: Mapping[Node, Frame]
    ) -> None:
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
        stack = self._made[use.handle] = GradientStack(_new_stack(site, pop))
        push = site.push(stack.handle, dx)
        stack.filled[site] = push
        frame: Frame | None = frames[use.pushes[0]]
        while frame is not None:
            self._reached.add(frame)
            frame = frame.parent

    def ended(self, outer: GradientScope, inner: BackwardLoop) -> None:
        """Note that what a loop pushed is there, for the site around it, when the loop is done."""
        for stack in self._made.values():
            if inner in stack.filled and outer not in stack.filled:
                stack.filled[outer] = inner.done()

    def pop(self, site: GradientScope, push: Node) -> Output | None:
        """The gradient of what a node pushed; None if nobody's gradient came that way."""
        stack = self._made.get(self.of[push].handle) if push in self.of else None
        if stack is None:
            return None
        at: GradientScope = site
        while at not in stack.filled and isinstance(at, BackwardLoop):
            at = at.outer
        done = stack.filled.get(at)
        if done is None:
            message = "what it pushed is popped in the same iteration of another loop"
            raise Unsupported(message, node=push, code="CFG508")
        handle = at.new(
            "Identity", [at.capture_outer(stack.handle)], "g_acc_filled", [done]
        ).output()
        return site.pop(_enter_from(site, at, handle), push)


def _enter_from(site: GradientScope, at: GradientScope, x: Output) -> Output:
    """A tensor of a site around, in this one."""
    return (
        x
        if site is at or not isinstance(site, BackwardLoop)
        else site.enter(_enter_from(site.outer, at, x))
    )


def _new_stack(site: GradientScope, pop: Node) -> Output:
    dtype = pop.attr("elem_type")
    size = site.top.const(-1, dtypes.int32)
    node = site.top.new("StackV2", [size], "g_acc", elem_type=dtype, stack_name=b"g_acc")
    return node.output()
