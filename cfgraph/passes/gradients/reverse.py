"""Reverse-mode differentiation of a lowered graph, from tensors to tensors.

y = f(x)   ──▶   gradients/x = sum over y of grad_y * dy/dx

A region's items are visited in reverse order. Each item passes the gradients of its outputs to its
inputs; the gradient of a tensor is the sum of the partial gradients from its readers. If a tensor
is read by a node that runs less often than the tensor is live, the partial gradient is merged with
zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cfgraph.analysis.gradient_paths import ActivityAnalysis, GradientFlow, carries_gradient
from cfgraph.analysis.loops.branch_decisions import PathCondition
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.regions import Region, Regions, regions
from cfgraph.analysis.loops.while_loop import is_loop_switch
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.functions import CUSTOM_GRADIENT_ATTR
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.families.stacks import StackHandle
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradient, InputGradients
from cfgraph.ops.opdef.op import back_edge_of, contains_op, lookup, role_of
from cfgraph.passes.gradients.conditional_gradient import (
    merge_gradient,
    merge_with_zeros,
    switch_gradient,
)
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.custom_gradients import custom_gradient
from cfgraph.passes.gradients.iteration_scope import IterationScope
from cfgraph.passes.gradients.scope import GradientScope
from cfgraph.passes.gradients.stack_gradients import StackGradients


@dataclass(frozen=True, slots=True)
class GradientRequest:
    """Request for the gradients of the weighted sum of `ys` with respect to `xs`.

    `weights` contains a tensor, an array, or None (ones) for each y. Gradients do not flow through
    `stops`. An x in `zeros` gets zeros rather than None if no y depends on it. With `swap_memory`,
    values that loops save may be moved to host memory. With `ignore_custom`, a node that names a
    custom gradient uses the gradient of its op instead. `function` is empty, or the
    name of the function whose body is differentiated; the limit on expanded nodes applies then.
    `flow` records the inputs that get no gradient, and `added` the nodes that are added, in the
    graph that is differentiated, too. `call_rules` are the gradients of calls by the
    name of the function, which need not exist.
    """

    ys: Sequence[Output]
    xs: Sequence[Output]
    weights: Sequence[Any]
    stops: Iterable[Output] = ()
    zeros: Collection[Output] = ()
    swap_memory: bool = False
    ignore_custom: bool = False
    function: str = ""
    flow: GradientFlow | None = None
    added: list[Node] = field(default_factory=list)
    call_rules: Mapping[str, Callable[..., InputGradients]] = field(default_factory=dict)


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
        stacks: StackGradients | None,
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
            residual = guard.beyond(self.guards.of_output(x))
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
            # on the device of x: else a carried gradient crosses devices twice per iteration
            with self.ctx.last_scope(x.node.device):
                total = self.scope.ctx.add("AddN", partials, "AddN").output()
            partials[:] = [total]
            self.ctx.static.set_shape(total, self.scope.known_shape(x))
        return partials[0]

    def output_gradients(self, node: Node) -> list[Output | None]:
        """The gradients of a node's outputs; none where gradients stop."""
        outputs = node.outputs
        if node in self.activity.stops:
            return [None] * len(outputs)
        return [*map(self.gradient_of, outputs)]

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
                    self.accumulate(x, dx, self.guards.of_output(x))

    def _stack(self, stacks: StackGradients, node: Node) -> None:
        """Push the gradient of a popped value; pop the gradient of a pushed one."""
        dx = self.output_gradients(node)[0]
        with self.ctx.scope(node):
            if stacks.is_pop(node):
                if dx is not None:
                    stacks.push(self.scope, node, dx, self.regions.frames.of)
                return
            value = node.inputs[1]
            if not self.is_active(value):
                return
            for partial_gradient in (dx, stacks.pop(self.scope, node)):
                if partial_gradient is not None:
                    self.accumulate(value, partial_gradient, self.guards.of_node(node))

    def _ordinary(self, node: Node) -> None:
        """Apply the gradient of an op. Raises Unsupported if it has none."""
        if self.stacks is not None and node in self.stacks.accesses:
            self._stack(self.stacks, node)
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
            rule = _gradient_rule(self.ctx, node)
            partials: Sequence[InputGradient] = rule(self.scope, node, *gradients)
            if len(partials) != len(inputs):
                message = f"{len(partials)} gradients for the {len(inputs)} inputs of {node!r}"
                raise AssertionError(message)
            guard, flow = self.guards.of_node(node), self.ctx.flow
            for x, computed, is_active in zip(inputs, partials, are_active, strict=True):
                if not is_active:
                    continue
                dx = computed if computed is None or isinstance(computed, Output) else computed()
                if dx is not None:
                    self._accumulate_guarded(x, dx, guard)
                if flow is not None:
                    flow.record(node, x, passes=dx is not None)


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
        hint = (
            "save the model with SaveOptions(experimental_custom_gradients=True), "
            "or use the gradient of the op instead: --ignore-custom, or ignore_custom=True"
        )
        raise Unsupported(message, node=node, hint=hint, code="CFG507")


def _gradient_rule(ctx: GradientContext, node: Node) -> Callable[..., Any]:
    """The gradient of a called function that has one in the library, or else of the op."""
    functions = ctx.graph.gradient_functions
    called = node.attrs.get("f") if functions or ctx.call_rules else None
    if isinstance(called, Func):
        if called.name in ctx.call_rules:
            return ctx.call_rules[called.name]
        if called.name in functions:
            return partial(_call_gradient_function, functions[called.name])
    custom = None if ctx.ignore_custom else custom_gradient(ctx.graph, node)
    if custom is not None:
        return custom
    op = lookup(node.op)
    require_own_gradient(node, ignore_custom=ctx.ignore_custom)
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
    types = tuple(node.input_types or ())
    call = g.StatefulPartitionedCall(*node.inputs, *dys, Tout=types, f=Func(name)).node
    return [
        call.output(port) if dtype.is_differentiable else None for port, dtype in enumerate(types)
    ]


# -- from tensors to tensors ------------------------------------------------------------------


def differentiate(
    graph: Graph, request: GradientRequest, loop_rule: LoopRule
) -> list[Output | None]:
    """Add gradients to a lowered graph, in place; the result is None for an x that no y depends on.

    Tensors of one loop are differentiated in its iterations. `loop_rule` adds the gradient of a
    loop. Raises Unsupported for a node that cannot be differentiated, with the graph unchanged.
    """
    stacks = StackGradients(graph) if contains_op(graph, StackHandle) else None
    links = {} if stacks is None else stacks.pushes_by_pop()
    graph_regions = regions(graph, links)
    frame = _common_frame(graph_regions.frames, request)
    if frame is not graph_regions.frames.root:
        # no gradient leaves the iteration
        back_edges = [node.output() for node in frame.next_iterations]
        request = replace(request, stops=[*request.stops, *back_edges])
    activity = ActivityAnalysis(request.ys, request.xs, request.stops, links)
    ctx = GradientContext(
        graph,
        graph_regions.frames,
        request.xs,
        activity.stops,
        swap_memory=request.swap_memory,
        ignore_custom=request.ignore_custom,
        function=request.function,
        flow=request.flow,
        added_nodes=request.added,
        call_rules=request.call_rules,
    )
    try:
        scope = GradientScope(ctx)
        if frame is not graph_regions.frames.root:
            scope = IterationScope(ctx, graph_regions, frame)
        region = graph_regions.of[frame]
        reverse = ReverseMode(scope, region, graph_regions, activity, stacks, loop_rule)
        results = _add_gradients(reverse, request)
        if isinstance(scope, IterationScope):
            scope.require_own_arrays()
        return results
    except Exception:
        ctx.undo()
        raise


def _add_gradients(reverse: ReverseMode, request: GradientRequest) -> list[Output | None]:
    for y, weight in zip(request.ys, request.weights, strict=True):
        if carries_gradient(y) and reverse.is_active(y):
            guard = reverse.guards.of_output(y)
            reverse.accumulate(y, _initial_gradient(reverse.scope, y, weight, guard), guard)
    reverse.run()
    zeros = {*request.zeros, *_reachable_through_loops(reverse.regions, request)}
    return [_named_gradient(reverse, x, x in zeros) for x in request.xs]


def _reachable_through_loops(graph_regions: Regions, request: GradientRequest) -> list[Output]:
    """The xs that a y depends on if every Exit of a loop depends on every Enter.

    They have a gradient, if only zeros: the effect of an input may depend on the trip count.
    """
    links = {
        node: frame.enters
        for frame in graph_regions.frames.all
        for node in frame.exits
        if frame.enters
    }
    if not links:
        return []
    activity = ActivityAnalysis(request.ys, request.xs, request.stops, links)
    return [x for x in request.xs if activity.is_active(x)]


def _common_frame(frames: Frames, request: GradientRequest) -> Frame:
    """The frame of all ys, xs, and weights. Raises Unsupported if they differ."""
    weights = [weight for weight in request.weights if isinstance(weight, Output)]
    tensors = (*request.ys, *request.xs, *weights)
    found = {frames.of_outputs[x.node]: x for x in reversed(tensors)}
    if len(found) == 1:
        return next(iter(found))
    x = next(x for x in tensors if frames.of_outputs[x.node] is not frames.root)
    frame = frames.of_outputs[x.node]
    outside = next(item for item in tensors if frames.of_outputs[item.node] is not frame)
    message = f"{x.name} is inside the loop {frame.path}, and {outside.name} is not"
    exits = ", ".join(node.name for node in frame.exits[:3])
    hint = f"it has a value per iteration; the loop's results are its Exits: {exits}"
    entered = [node.name for node in frame.enters if outside in node.inputs]
    if entered:
        hint += f"; inside, {outside.name} is {entered[0]}"
    raise Unsupported(message, node=x.node, frame=frame.path, hint=hint, code="CFG506")


def _initial_gradient(scope: GradientScope, y: Output, weight: Any, guard: PathCondition) -> Output:
    """The upstream gradient of a y, dead where the y is dead."""
    dtype = y.dtype
    assert dtype is not None
    if weight is not None and not isinstance(weight, Output):
        weight = scope.const(weight, dtype.base)
    if weight is not None:
        weight = _shaped_as(scope, y, weight)
    decisions = guard.decisions()
    if weight is None:
        if decisions:
            return scope.OnesLike(y, name="grad_ys")
        one = scope.const(1, dtype.base)
        return scope.Fill(scope.shape(y), one, name="grad_ys")
    if dtype.base is dtypes.variant:
        return scope.guarded_by(weight, decisions)
    return scope.Mul(scope.OnesLike(y, name="grad_ys"), weight) if decisions else weight


def _shaped_as(scope: GradientScope, y: Output, weight: Output) -> Output:
    """The weight, in the shape of the y if both have one element."""
    expected, actual = scope.known_shape(y), scope.known_shape(weight)
    try:
        expected.merge(actual)
        return weight
    except ValueError:
        if {*(expected.dims or ()), *(actual.dims or ())} == {1}:
            return scope.Reshape(weight, scope.shape(y))
        message = f"grad_ys (--grad-ys) for {y.name} has shape {actual}, expected {expected}"
        hint = f"an upstream gradient has the shape of its y, {y.name}"
        raise UsageError(message, node=y.node, hint=hint) from None


def _named_gradient(reverse: ReverseMode, x: Output, zeros: bool) -> Output | None:
    """The gradient of an x, under the name of the x.

    Zeros if a y depends on the x only through steps, such as Floor or Sign, or depends on another
    output of the same node, whose gradient was passed on.
    """
    scope = reverse.scope
    with reverse.ctx.result_scope(x):
        total = reverse.gradient_of(x)
        zeros = zeros or reverse.is_active(x) or _has_sibling_gradient(reverse, x)
        if total is None and reverse.ctx.flow is not None:
            reverse.ctx.flow.without_gradient.add(x)
        if total is None and not zeros:
            return None
        gradient = total or scope.zeros_like(x)
        return scope.ctx.add("Identity", [gradient], x.node.name).output()


def _has_sibling_gradient(reverse: ReverseMode, x: Output) -> bool:
    """True if another output of the same node passed a gradient on; this one counted as zeros."""
    node = x.node
    return (
        carries_gradient(x)
        and any(reverse.activity.are_active(node.inputs))
        and any(reverse.output_gradients(node))
    )
