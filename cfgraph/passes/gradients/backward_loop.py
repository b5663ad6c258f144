"""Backward loop: the scope in which the gradients of a loop body are added.

A forward value reaches the backward loop in one of three ways: an invariant enters as a constant, a
Const is cloned, and any other value is saved on a stack (its accumulator) by the forward loop and
restored by the backward loop in the same iterations and under the same guard.

Gradients of higher order differentiate the restored value like the tensor that was saved. The loop
therefore saves exactly the tensor that the gradient reads:

    next_a = stop_gradient(a) * w      saves stop_gradient(a): saving a would give d2a/dw2 != 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cfgraph.analysis.loops.branch_decisions import BranchDecision, PathCondition
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.analysis.loops.while_loop import (
    WhileLoop,
    gradient_source_in_iteration,
    is_loop_switch,
    loop_variable,
    value_in_iteration,
)
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import CUSTOM_GRADIENT_ATTR
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import (
    is_identity,
    role_of,
    strip_gradient_identities,
    strip_identities,
)
from cfgraph.passes.gradients.accumulators import (
    BackwardTripCounter,
    ForwardTripCounter,
    add_stack,
    pop_saved,
    push_forward,
    push_gradient,
)
from cfgraph.passes.gradients.scope import GradientScope


class BackwardLoop(GradientScope):
    """The backward loop of a loop. `outer` is the scope of the gradients outside the loop."""

    outer: GradientScope

    def __init__(
        self, outer: GradientScope, loop: WhileLoop, guards: PathConditions, guard: PathCondition
    ) -> None:
        super().__init__(outer.ctx)
        self.outer = outer
        self.loop = loop
        self.guards = guards
        self._entered: dict[Output, Output] = {}
        self._entered_forward: dict[Output, Output] = {}
        self._values: dict[Output, Output] = {}
        self._exit: Node | None = None
        ctx, frame = self.ctx, loop.frame
        self.parallel = frame.parallel_iterations
        self._forward: dict[str, Any] = {
            "frame_name": frame.enters[0].attr("frame_name"),
            "parallel_iterations": self.parallel,
        }
        self._backward: dict[str, Any] = {
            "frame_name": ctx.frame_name(frame.name).encode(),
            "parallel_iterations": self.parallel,
        }
        with ctx.frame_scope(frame):
            one = self.enter_forward(self.top.const(1, dtypes.int32))
            self.forward_counter = ForwardTripCounter(
                ctx, loop.cond, self._forward, one, outer.start_after()
            )
            guards.put(guard, self.forward_counter.total.node)
            total = outer.forward_value(self.forward_counter.total)
            one = self.const(1, dtypes.int32)
            self.backward_counter = BackwardTripCounter(
                ctx, self._backward, self.forward_counter, total, one
            )

    def start_after(self) -> list[Node]:
        """Control inputs of the start of an inner loop's trip counter: this loop's step."""
        return [self.forward_counter.step]

    def wait_for(self, finished: Callable[[], Node], guard: PathCondition) -> None:
        """Start the next iteration when an inner loop, entered under a guard, has ended."""
        conditional = bool(self.decisions(guard))
        self.backward_counter.barrier.wait_for(finished(), may_be_dead=conditional)

    # -- into the loops --------------------------------------------------------------------------

    def enter(self, x: Output) -> Output:
        """A tensor of the outer scope, the same in all iterations of the backward loop."""
        entered = self._entered.get(x)
        if entered is None:
            node = self.ctx.add("Enter", (x,), "Enter", is_constant=True, **self._backward)
            entered = self._entered[x] = node.output()
        return entered

    def enter_forward(self, x: Output) -> Output:
        """A tensor from the root frame, available in the forward loop."""
        loops: list[BackwardLoop] = []
        scope: GradientScope = self
        while isinstance(scope, BackwardLoop) and x not in scope._entered_forward:
            loops.append(scope)
            scope = scope.outer
        entered = (
            scope.enter_forward(x)
            if not isinstance(scope, BackwardLoop)
            else scope._entered_forward[x]
        )
        for loop in reversed(loops):
            add = self.ctx.add_forward
            node = add("Enter", (entered,), "f_enter", is_constant=True, **loop._forward)
            entered = loop._entered_forward[x] = node.output()
        return entered

    def enter_variable(self, x: Output, name: str) -> Node:
        """Add an Enter: a tensor of the outer scope as the first value of a loop variable."""
        return self.ctx.add("Enter", (x,), name, is_constant=False, **self._backward)

    # -- forward values --------------------------------------------------------------------------

    def forward_value(self, x: Output) -> Output:
        """The value of a forward tensor in the iteration that is differentiated."""
        if x.node in self.ctx.gradient_nodes:
            return x
        source = strip_gradient_identities(x, self.ctx.stops)
        value = self._values.get(source)
        if value is None:
            for scope, outside in reversed(self._outer_values(source)):
                scope.forward_value(outside)
            value = self._invariant(source) or self._accumulated_value(source)
            self._values[source] = value
        return value

    def _outer_values(self, x: Output) -> list[tuple[GradientScope, Output]]:
        """The tensors that an invariant is in the scopes outside, outwards to the first known."""
        values: list[tuple[GradientScope, Output]] = []
        scope: GradientScope = self
        while isinstance(scope, BackwardLoop) and value_in_iteration(x).node.op != "Const":
            origin = scope._repeated_and_origin(x)[1]
            source = None if origin is None else scope._invariant_source(origin)
            if source is None:
                break
            scope = scope.outer
            values.append((scope, source))
            x = strip_gradient_identities(source, self.ctx.stops)
            if isinstance(scope, BackwardLoop) and x in scope._values:
                break
        return values

    def forward_values(self, tensors: tuple[Output, ...]) -> tuple[Output, ...]:
        """Values of forward tensors in the iteration that is differentiated."""
        return tuple([self.forward_value(x) for x in tensors])

    def _invariant(self, x: Output) -> Output | None:
        """The value from outside the loop, if it is the same in all iterations.

        Nodes that forward an invariant but not its gradient, such as StopGradient, are repeated.
        """
        constant = value_in_iteration(x).node
        if constant.op == "Const":
            return self.capture_outer(self.top.clone_const(constant))
        repeated, origin = self._repeated_and_origin(x)
        source = None if origin is None else self._invariant_source(origin)
        if source is None:
            return None
        value = self.enter(self.outer.forward_value(source))
        for node in reversed(repeated):
            attrs = {
                k: v for k, v in node.attrs.items() if k[0] != "_" or k == CUSTOM_GRADIENT_ATTR
            }
            value = self.ctx.add(node.op, (value,), node.op, **attrs).output()
        return value

    def _repeated_and_origin(self, x: Output) -> tuple[list[Node], Output | None]:
        """The nodes that forward a value, but not its gradient, and the tensor that they forward.

        None if gradients stop on the way.
        """
        stops, repeated = self.ctx.stops, list[Node]()
        origin = gradient_source_in_iteration(x, stops)
        while is_identity(origin.node):
            if origin.node in stops or len(origin.node.inputs) > 1:
                return repeated, None
            repeated.append(origin.node)
            origin = gradient_source_in_iteration(origin.node.inputs[0], stops)
        return repeated, origin

    def _invariant_source(self, origin: Output) -> Output | None:
        """The tensor outside the loop that a loop invariant is, or None."""
        node, stops = origin.node, self.ctx.stops
        if role_of(node) is Role.ENTER and node not in stops:
            return node.inputs[0]
        variable = loop_variable(node)
        if variable is None or origin.port or not variable.is_invariant(stops):
            return None
        return variable.initial

    def _accumulated_value(self, x: Output) -> Output:
        """A value that the forward loop saves and this one restores."""
        dtype = x.dtype
        assert dtype is not None
        ctx = self.ctx
        with ctx.on_device(x.node.device):
            stack = add_stack(self.top, "f_acc", x)
            handle, value = self.enter_forward(stack), self._in_body(x)
            conditional = bool(self.decisions(self.guards.of_output(x)))
            push = push_forward(ctx, handle, value, self.forward_counter, may_be_dead=conditional)
            saved = self.pop(self.capture_outer(stack), push)
            ctx.static.set_shape(saved, ctx.static.shape(x))
        return saved

    def push(self, stack: Output, x: Output) -> Node:
        """Push a gradient in this loop, in the order of its iterations."""
        return push_gradient(self.ctx, self.capture_outer(stack), x, self.backward_counter)

    def pop(self, handle: Output, push: Node) -> Output:
        """Pop the value pushed by a node of the forward loop, or of a loop that ran before."""
        decisions = self.decisions(self.guards.of_node(push))
        dtype = push.inputs[1].dtype
        assert dtype is not None
        guarded = self.guarded_by(handle, decisions)
        pop = pop_saved(self.ctx, guarded, dtype.base, self.backward_counter)
        if self.parallel > 1:
            self.backward_counter.barrier.wait_for(pop, may_be_dead=bool(decisions))
        return pop.output()

    def finished(self) -> Node:
        """A node of the outer scope that runs when this loop has ended."""
        if self._exit is None:
            with self.ctx.last_scope():
                self._exit = self.backward_counter.add_exit()
        return self._exit

    def _in_body(self, x: Output) -> Output:
        """A value, dead in the last iteration, in which only the condition runs."""
        cond = self.loop.cond.output()
        test, _ = self.guards.branch(cond)
        if self.guards.of_output(x).branch_of(test) is not None:
            return x
        for use in x.node.readers(x.port):
            if role_of(use.node) is Role.SWITCH and is_loop_switch(use.node, self.loop.cond):
                return use.node.output(1)
        return self.ctx.add_forward("Switch", (x, cond), "in_body").output(1)

    def switch(self, x: Output, pred: Output, sides: int) -> Node:
        """Add a Switch that is dead in the last iteration of the backward loop."""
        node = super().switch(x, pred, sides)
        test, _ = self.guards.branch(self.backward_counter.cond)
        if self.guards.of_node(node).branch_of(test) is None:
            # constants of the loop are live in its last iteration too
            self.ctx.graph.add_control(node, self.backward_counter.step)
            self.guards.forget(node)
        return node

    # -- guards ----------------------------------------------------------------------------------

    def decisions(self, guard: PathCondition) -> list[BranchDecision]:
        """Branch decisions within an iteration. Raises Unsupported if no predicate decides."""
        residual = self.residual_decisions(guard.decisions())
        for decision in residual:
            if not decision.test.branches:
                message = "no predicate determines whether it is live"
                path = self.loop.frame.path
                raise Unsupported(message, node=decision.output.node, frame=path, code="CFG505")
        return residual

    def residual_decisions(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """Drop the decision of the loop itself to continue."""
        own, _ = self.guards.branch(self.loop.cond.output())
        return [decision for decision in decisions if decision.test is not own]

    # -- constants, shapes and zeros -------------------------------------------------------------

    def constant(self, array: Any, dtype: DType) -> Output:
        """Add a constant that is available in this loop."""
        if array.ndim == 0 and dtype.is_integer and array == -1:
            # as a shape it means unknown rank, which TensorFlow recognizes only in a Const
            return self._const_in_loop(array, dtype)
        return self.enter(self.outer.const(array, dtype))

    def _const_in_loop(self, array: Any, dtype: DType) -> Output:
        attrs = {"dtype": dtype, "value": TensorValue(array)}
        return self.ctx.add("Const", (), "Const", [self.backward_counter.step], **attrs).output()

    def runtime_shape(self, x: Output, dtype: DType) -> Output:
        """The shape of a tensor at run time, computed in the forward loop for a forward tensor."""
        if x.node in self.ctx.gradient_nodes:
            return super().runtime_shape(x, dtype)
        source = self._invariant_source(value_in_iteration(x))
        if source is not None:
            return self.enter(self.outer.shape(source, dtype))
        key = ("Shape", strip_identities(x), dtype)
        shape = self._cache.get(key)
        if shape is None:
            node = self.ctx.add_forward("Shape", (x,), "f_shape", out_type=dtype)
            shape = self._cache[key] = self.forward_value(node.output())
        return shape

    def zeros_like(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor, live where it is."""
        dtype = x.dtype
        if dtype is not None and dtype.is_opaque:
            return super().zeros_like(x)
        source = self._invariant_source(value_in_iteration(x))
        if source is not None:
            zeros = self.enter(self.outer.zeros_like(source))
        elif not self.known_shape(x).is_full:
            # live where the shape is, which was saved where x is live
            return self.zeros_from_shape(x)
        else:
            zeros = self.capture_outer(self.top.zeros_from_shape(x))
        return self.guarded_by(zeros, self.decisions(self.guards.of_output(x)))

    def finish(self) -> None:
        """Add the control edges that order the iterations."""
        with self.ctx.frame_scope(self.loop.frame):
            self.forward_counter.barrier.finish("f_sync")
            self.backward_counter.barrier.finish("b_sync")
