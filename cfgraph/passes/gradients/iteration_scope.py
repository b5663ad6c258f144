"""Gradients inside a loop: of tensors of an iteration with respect to others of the same iteration.

    body: y = f(x)      becomes      body: y = f(x), gradients/x = dy/dx in each iteration

For these gradients, an iteration has the role that the root frame has for others: its values are at
hand, and the stacks of inner loops are created in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.loops.branch_decisions import BranchDecision
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.regions import Regions
from cfgraph.analysis.loops.while_loop import while_loop
from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.tensor_array_ops import TensorArrayGradV3
from cfgraph.ops.opdef.op import is_a
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.scope import GradientScope


class IterationScope(GradientScope):
    """The scope of the gradients in the iterations of a loop.

    Raises Unsupported for a frame that is no loop.
    """

    def __init__(self, ctx: GradientContext, regions: Regions, frame: Frame) -> None:
        super().__init__(ctx)
        loop = while_loop(frame)
        if loop is None or not loop.variables:
            message = f"the frame {frame.path} is not a loop with one condition"
            raise Unsupported(message, node=frame.enters[0], frame=frame.path, code="CFG504")
        self.regions = regions
        self.loop = loop
        with ctx.frame_scope(frame):
            inputs = loop.variables[0].merge.output(), loop.cond.output()
            switch = ctx.add("Switch", inputs, "in_body")
            # live in each iteration that runs the body
            self.pivot = ctx.add("Identity", (switch.output(1),), "pivot")

    def constant(self, array: Any, dtype: DType) -> Output:
        """Add a constant of each iteration."""
        return self._const(dtype=dtype, value=TensorValue(array))

    def clone_const(self, node: Node) -> Output:
        """A copy of a Const of a loop."""
        return self._const(dtype=node.attr("dtype"), value=node.attr("value"))

    def _const(self, **attrs: Any) -> Output:
        return self.ctx.add("Const", (), "Const", [self.pivot], **attrs).output()

    def start_after(self) -> list[Node]:
        """Control inputs of the start of an inner loop's trip counter: this iteration."""
        return [self.pivot]

    def residual_decisions(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """Drop the decision of the loop to continue, which is implied in this scope."""
        own, _ = self.regions.guards.branch(self.loop.cond.output())
        return [decision for decision in decisions if decision.test is not own]

    def require_own_arrays(self) -> None:
        """Raise Unsupported for a gradient array that all iterations would share."""
        effects, frames, frame = EffectAnalysis(), self.regions.frames, self.loop.frame
        for node in self.ctx.added_nodes:
            if not is_a(node, TensorArrayGradV3):
                continue
            array = effects.origin(node.inputs[0]).node
            if array in frames.of and not frames.of[array].is_within(frame):
                message = (
                    f"all iterations of {frame.path} would write to one gradient array, since "
                    f"the array {array.name!r} is created outside of the loop"
                )
                hint = "create the array inside of the loop, or use a tensor list"
                raise Unsupported(message, node=array, frame=frame.path, hint=hint, code="CFG229")
