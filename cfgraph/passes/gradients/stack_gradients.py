"""Gradients of stacks: the gradient of a popped value flows to the matching push.

    forward:    loop 1: push(v)                            loop 2: u = pop()
    backward:   backward loop 2: push(du) on a new stack   backward loop 1: dv = pop() from it

Loop 2 pops in the reverse order of the pushes of loop 1. Its backward loop therefore pushes in the
order of loop 1, and the backward loop of loop 1, which starts when the other has ended, pops the
gradient that belongs to each iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.resource_handles import stacks
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.passes.gradients.accumulators import add_stack
from cfgraph.passes.gradients.backward_loop import BackwardLoop
from cfgraph.passes.gradients.scope import GradientScope


@dataclass(slots=True)
class GradientStack:
    """The stack of gradients of a forward stack.

    `filled_by` has for a scope the node there after which all gradients have been pushed.
    """

    handle: Output
    filled_by: dict[GradientScope, Node] = field(default_factory=dict)


class StackGradients:
    """Stacks of gradients, one per forward stack; `accesses` are the pushes and pops of a node."""

    def __init__(self, graph: Graph) -> None:
        self.accesses = stacks(graph)
        self._stacks: dict[Node, GradientStack] = {}
        self._reached: set[Frame] = set()

    def pushes_by_pop(self) -> dict[Node, list[Node]]:
        """Map of each pop to the pushes that it may read from."""
        return {
            node: use.pushes
            for node, use in self.accesses.items()
            if node in use.pops and use.pushes
        }

    def is_pop(self, node: Node) -> bool:
        """True for a node that pops from a forward stack, False for one that pushes to it."""
        return node in self.accesses[node].pops

    def reaches(self, frame: Frame) -> bool:
        """True if gradients were pushed for values that a loop, or one inside it, pushed."""
        return frame in self._reached

    def push(
        self, scope: GradientScope, pop: Node, dx: Output, frame_of: Mapping[Node, Frame]
    ) -> None:
        """Push the gradient of a popped value. Raises Unsupported for a shared stack."""
        use = self.accesses[pop]
        if len(use.pushes) > 1 or len(use.pops) > 1:
            message = (
                f"the stack {use.handle.name!r} has {len(use.pushes)} pushes and {len(use.pops)} "
                "pops; its gradient needs one of each"
            )
            raise Unsupported(message, node=pop, code="CFG508")
        handle = add_stack(scope.top, "g_acc", dx)
        stack = self._stacks[use.handle] = GradientStack(handle)
        stack.filled_by[scope] = scope.push(handle, dx)
        frame: Frame | None = frame_of[use.pushes[0]]
        while frame is not None:
            self._reached.add(frame)
            frame = frame.parent

    def finish_loop(self, outer: GradientScope, inner: BackwardLoop) -> None:
        """Record for the outer scope that the pushes of a loop are complete when it has ended."""
        for stack in self._stacks.values():
            if inner in stack.filled_by and outer not in stack.filled_by:
                stack.filled_by[outer] = inner.finished()

    def pop(self, scope: GradientScope, push: Node) -> Output | None:
        """The gradient of a pushed value, or None if the popped value has none."""
        stack = self._stacks.get(self.accesses[push].handle) if push in self.accesses else None
        if stack is None:
            return None
        source: GradientScope = scope
        while source not in stack.filled_by and isinstance(source, BackwardLoop):
            source = source.outer
        filled_by = stack.filled_by.get(source)
        if filled_by is None:
            message = "the value it pushes is popped in the same iteration of another loop"
            raise Unsupported(message, node=push, code="CFG508")
        captured = source.capture_outer(stack.handle)
        handle = source.ctx.add("Identity", [captured], "g_acc_filled", [filled_by]).output()
        return scope.pop(_enter_from(scope, source, handle), push)


def _enter_from(scope: GradientScope, source: GradientScope, x: Output) -> Output:
    """A tensor of an outer scope, available in an inner one."""
    return (
        x
        if scope is source or not isinstance(scope, BackwardLoop)
        else scope.enter(_enter_from(scope.outer, source, x))
    )
