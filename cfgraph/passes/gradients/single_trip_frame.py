"""Gradient of a frame that is not a loop: each of its nodes runs at most once.

    Enter ──▶ nodes ──▶ Exit        the gradients of the nodes are added outside the frame

A value of the frame is read outside through an Exit of its own.
"""

from __future__ import annotations

from typing import Any

from cfgraph.analysis.loops.path_conditions import PathCondition, PathConditions
from cfgraph.analysis.loops.regions import Region
from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.gradients.scope import GradientScope


def is_single_trip(region: Region) -> bool:
    """True for a frame whose nodes run once: nothing comes around."""
    frame = region.frame
    return not frame.next_iterations and not frame.loop_conds


class SingleTripFrame(GradientScope):
    """The site around a frame, for the nodes in it."""

    def __init__(
        self, outer: GradientScope, region: Region, guards: PathConditions, guard: PathCondition
    ) -> None:
        super().__init__(outer.work)
        self.outer = outer
        self.region = region
        self.guards = guards
        self.guard = guard
        self._left: dict[Output, Output] = {}

    @property
    def top(self) -> GradientScope:
        """The top of the graph."""
        return self.outer.top

    def capture_outer(self, x: Output) -> Output:
        """A tensor from the top of the graph, as it can be read here."""
        return self.outer.capture_outer(x)

    def constant(self, array: Any, dtype: DType) -> Output:
        """A constant that can be read here."""
        return self.outer.const(array, dtype)

    def read(self, x: Output) -> Output:
        """A value of the frame outside of it."""
        if x.node in self.work.made:
            return x
        found = self._left.get(x)
        if found is None:
            found = self._left[x] = self.outer.read(self._outside(x))
        return found

    def _outside(self, x: Output) -> Output:
        if role_of(x.node) is Role.ENTER:
            return x.node.inputs[0]
        if self.guards.of(x) is not self.guards.none:
            message = "a value of a conditional in a frame that is no loop is needed outside"
            path = self.region.frame.path
            raise Unsupported(message, node=x.node, frame=path, code="CFG504")
        leaving = self.work.add_forward("Exit", (x,), "f_exit")
        self.guards.put(self.guard, leaving)
        return leaving.output()
