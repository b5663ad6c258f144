"""Reverse mode over a region: visit its items in reverse order and sum the partial gradients.

Each item passes the gradients of its outputs to its inputs; the gradient of a tensor is the sum of
the partial gradients from its readers. In conditionals a Merge becomes Switches, a Switch a Merge:

    Switch(x, p): dx = Merge(d false, d true)        Merge(a, b): da = Switch(dz, p):0, db = …:1

The gradient of a live tensor is live, and the gradient of a dead tensor is dead. If only one side
of a Switch is used, the other side contributes zeros that are live on that side alone. If a tensor
is read by a node that runs less often than the tensor is live, the partial gradient is merged with
zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from cfgraph.analysis.gradient_paths import ActivityAnalysis
from cfgraph.analysis.loops.branch_decisions import BranchDecision
from cfgraph.analysis.loops.path_conditions import PathCondition, PathConditions
from cfgraph.analysis.loops.regions import Region, Regions
from cfgraph.analysis.loops.while_loop import is_loop_switch
from cfgraph.errors import Unsupported
from cfgraph.ir import registry
from cfgraph.ir.attrs import Func
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradient, InputGradients
from cfgraph.ops.opdef.op import CUSTOM_GRADIENT_ATTR, back_edge_of, lookup, role_of
from cfgraph.passes.gradients.scope import GradientScope
from cfgraph.passes.gradients.stack_gradients import StackGradients

# -- conditionals ------------------------------------------------------------------------------


def switch_gradient(
    scope: GradientScope,
    guards: PathConditions,
    node: Node,
    output_gradients: Sequence[Output | None],
) -> Output | None:
    """The gradient of a Switch's data, from the gradients of its outputs."""
    if not any(output_gradients):
        return None
    sides: list[Output] = []
    for port, dx in enumerate(output_gradients):
        sides.append(dx if dx is not None else _side_zeros(scope, guards, node.output(port)))
    return scope.add("Merge", sides, "Merge", {})


def _side_zeros(scope: GradientScope, guards: PathConditions, side: Output) -> Output:
    """Zeros that are live where an output of a Switch is."""
    if scope is scope.top and not _is_resource(side):
        return scope.zeros_like(side)
    zeros = scope.zeros_like(side.node.inputs[0])
    return scope.guarded_by(zeros, [guards.decision(side)])


def merge_gradient(
    scope: GradientScope, guards: PathConditions, node: Node, slot: int, dz: Output
) -> Output:
    """The gradient of one input of a Merge."""
    inner, outer = guards.of(node.inputs[slot]), guards.shared_by_inputs(node)
    is_decided = inner.is_decided_beyond(outer)
    if is_decided and inner is not outer and guards.alone(node, slot):
        return scope.guarded_within(dz, inner, outer)
    chosen = scope.add("Equal", (node.output(1), slot), "chosen", {})
    dx = scope.add("Switch", (dz, chosen), "Switch", {}).node.output(1)
    if not is_decided:
        return dx
    # the Merge may take another input although this one is live
    zeros = scope.add("Switch", (scope.zeros_like(node.inputs[slot]), chosen), "Switch", {})
    return scope.add("Merge", (zeros, dx), "Merge", {})


def merge_with_zeros(
    scope: GradientScope, x: Output, dx: Output, decisions: Iterable[BranchDecision]
) -> Output:
    """Extend a gradient that is live only under these decisions with zeros elsewhere."""
    zeros, layers = scope.zeros_like(x), []
    for decision in decisions:
        if not decision.sides:
            message = f"no predicate tells whether the reader of {x.name} is live"
            raise Unsupported(message, node=decision.pred.node, code="CFG505")
        other_ports = [port for port in range(decision.sides) if port != decision.port]
        chosen = scope.guarded_by(zeros, [decision])
        layers.append([Output(chosen.node, port) for port in other_ports])
        zeros = chosen
    for other_zeros in reversed(layers):
        dx = scope.add("Merge", [dx, *other_zeros], "Merge", {})
    return dx


def _is_resource(x: Output) -> bool:
    return x.dtype is not None and x.dtype.kind == "resource"


# -- regions -----------------------------------------------------------------------------------


class ReverseMode:
    """The gradients of one region, accumulated per tensor.

    `loop_rule` passes the gradients of a loop's Exits to its Enters.
    """

    def __init__(
        self,
        scope: GradientScope,
        region: Region,
        regions: Regions,
        activity: ActivityAnalysis,
        stacks: StackGradients,
        loop_rule: LoopRule,
    ) -> None:
        self.scope = scope
        self.ctx = scope.ctx
        self.region = region
        self.regions = regions
        self.guards = regions.guards
        self.stacks = stacks
        self.activity = activity
        self.is_active = activity.is_active
        self.loop_rule = loop_rule
        self._partials: dict[Output, list[Output]] = {}

    def nested(self, scope: GradientScope, region: Region) -> ReverseMode:
        """Reverse mode over an inner region, whose gradients are added in a scope."""
        return ReverseMode(scope, region, self.regions, self.activity, self.stacks, self.loop_rule)

    def accumulate(self, x: Output, dx: Output, guard: PathCondition) -> None:
        """Add a partial gradient, live under a guard, to the gradient of an active tensor."""
        if self.is_active(x):
            self._accumulate_guarded(x, dx, guard)

    def _accumulate_guarded(self, x: Output, dx: Output, guard: PathCondition) -> None:
        if guard is not self.guards.none:
            residual = guard.beyond(self.guards.of(x))
            if residual and (residual := self.scope.residual_decisions(residual)):
                dx = merge_with_zeros(self.scope, x, dx, residual)
        partials = self._partials.get(x)
        if partials is None:
            self._partials[x] = [dx]
        else:
            partials.append(dx)

    def partials(self, x: Output) -> list[Output]:
        """The partial gradients of a tensor; none where gradients stop."""
        return [] if x.node in self.activity.stops else self._partials.get(x, [])

    def gradient_of(self, x: Output) -> Output | None:
        """The gradient of a tensor: the sum of its partial gradients, or None."""
        partials = self._partials.get(x)
        if partials is None:
            return None
        if len(partials) > 1:
            with self.ctx.last_scope():
                total = self.scope.add_node("AddN", partials, "AddN").output()
            partials[:] = [total]
            self.ctx.static.set_shape(total, self.scope.known_shape(x))
        return partials[0]

    def output_gradients(self, node: Node) -> list[Output | None]:
        """The gradients of a node's outputs; none where gradients stop."""
        count = registry.output_count(node) or 0
        if node in self.activity.stops:
            return [None] * count
        gradient_of = self.gradient_of
        return [gradient_of(node.output(port)) for port in range(count)]

    def run(self) -> None:
        """Differentiate the items of the region, the last one first."""
        running = [self._run_between_loops()]
        while running:
            inner = next(running[-1], None)
            if inner is None:
                running.pop()
            else:
                running.append(inner._run_between_loops())

    def _run_between_loops(self) -> Iterator[ReverseMode]:
        """Differentiate the items of the region, and yield each inner region that must run."""
        for item in reversed(self.region.order):
            check_deadline()
            if isinstance(item, Region):
                yield from self.loop_rule(self, item)
                continue
            role = role_of(item)
            if role is Role.SWITCH:
                self._switch(item)
            elif role is Role.MERGE:
                self._merge(item)
            elif not role:
                self._ordinary(item)

    def _switch(self, node: Node) -> None:
        data = node.inputs[0]
        gradients = self.output_gradients(node)
        if not any(gradients) or not self.is_active(data):
            return
        require_own_gradient(node, ignore_custom=self.ctx.ignore_custom)
        with self.ctx.scope(node):
            if is_loop_switch(node, self.region.frame.loop_cond):
                # of a loop's own Switch, only the side of the body is in an iteration
                dx = gradients[1]
            else:
                dx = switch_gradient(self.scope, self.guards, node, gradients)
            if dx is not None:
                self.accumulate(data, dx, self.guards.of_node(node))

    def _merge(self, node: Node) -> None:
        if back_edge_of(node) is not None:
            return
        dz = self.output_gradients(node)[0]
        if dz is None:
            return
        require_own_gradient(node, ignore_custom=self.ctx.ignore_custom)
        with self.ctx.scope(node):
            for slot, x in enumerate(node.inputs):
                if self.is_active(x):
                    dx = merge_gradient(self.scope, self.guards, node, slot, dz)
                    self.accumulate(x, dx, self.guards.of(x))

    def _stack(self, node: Node) -> None:
        """Push the gradient of a popped value; pop the gradient of a pushed one."""
        dx = self.output_gradients(node)[0]
        with self.ctx.scope(node):
            if self.stacks.is_pop(node):
                if dx is not None:
                    self.stacks.push(self.scope, node, dx, self.regions.frames.of)
                return
            value = node.inputs[1]
            if not self.is_active(value):
                return
            for partial_gradient in (dx, self.stacks.pop(self.scope, node)):
                if partial_gradient is not None:
                    self.accumulate(value, partial_gradient, self.guards.of_node(node))

    def _ordinary(self, node: Node) -> None:
        """Apply the gradient of an op. Raises Unsupported if it has none."""
        if node in self.stacks.accesses:
            self._stack(node)
            return
        gradients = self.output_gradients(node)
        if not any(gradients):
            return
        inputs = node.inputs
        are_active = self.activity.are_active(inputs)
        if True not in are_active:
            return
        _require_known_types(node)
        with self.ctx.scope(node):
            rule = _gradient_rule(self.ctx.graph, node, ignore_custom=self.ctx.ignore_custom)
            partials: Sequence[InputGradient] = rule(self.scope, node, *gradients)
            if len(partials) != len(inputs):
                message = f"{len(partials)} gradients for the {len(inputs)} inputs of {node!r}"
                raise AssertionError(message)
            guard = self.guards.of_node(node)
            for x, computed, is_active in zip(inputs, partials, are_active, strict=True):
                if computed is None or not is_active:
                    continue
                dx = computed if isinstance(computed, Output) else computed()
                if dx is not None:
                    self._accumulate_guarded(x, dx, guard)


# yields the inner regions that must run, since loops may be nested too deeply for recursion
LoopRule = Callable[[ReverseMode, Region], Iterator[ReverseMode]]

# -- gradients of ops and calls ----------------------------------------------------------------


def _require_known_types(node: Node) -> None:
    for x in node.inputs:
        # in a valid graph, the output types of a registered op are known
        if lookup(x[0].op) is not None or x.dtype is not None:
            continue
        message = f"{node.op} reads {x.name}, whose type is unknown"
        hint = f"the op {x.node.op} is not registered"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")


def require_own_gradient(node: Node, *, ignore_custom: bool) -> None:
    """Raise Unsupported for a node whose gradient is registered by the program that wrote it."""
    if node.attrs.get(CUSTOM_GRADIENT_ATTR) and not ignore_custom:
        message = f"{node.op} has a custom gradient that is not in the file"
        hint = "--ignore-custom uses the gradient of the op instead"
        raise Unsupported(message, node=node, hint=hint, code="CFG507")


def _gradient_rule(graph: Graph, node: Node, *, ignore_custom: bool) -> Callable[..., Any]:
    """The gradient of a called function that has one in the library, or else of the op."""
    called = node.attrs.get("f") if graph.gradient_functions else None
    if isinstance(called, Func) and called.name in graph.gradient_functions:
        return partial(_call_gradient_function, graph.gradient_functions[called.name])
    op = lookup(node.op)
    require_own_gradient(node, ignore_custom=ignore_custom)
    if op is None or op.gradient is None:
        message = f"{node.op} has no gradient"
        hint = "stop gradients before it (--stop), or replace it by differentiable ops"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")
    return op.gradient


def _call_gradient_function(
    name: str, g: GradientBuilder, node: Node, *grads: Output | None
) -> InputGradients:
    """Call a gradient function with the arguments and output gradients of a call."""
    dys = [g.zeros_like(node.output(port)) if dy is None else dy for port, dy in enumerate(grads)]
    types = tuple(registry.input_types(node) or ())
    call = g.StatefulPartitionedCall(*node.inputs, *dys, Tout=types, f=Func(name)).node
    return [
        call.output(port) if dtype.is_differentiable else None for port, dtype in enumerate(types)
    ]
