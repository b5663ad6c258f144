"""Reverse-mode differentiation of a lowered graph, from tensors to tensors.

y = f(x)   ──▶   gradients/x = sum over y of grad_y * dy/dx
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.gradient_paths import ActivityAnalysis, carries_gradient
from cfgraph.analysis.loops.path_conditions import PathCondition
from cfgraph.analysis.loops.regions import Regions, regions
from cfgraph.analysis.resource_handles import stacks
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph, Output
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.loop_gradient import reverse_loop
from cfgraph.passes.gradients.reverse import LoopRule, ReverseMode
from cfgraph.passes.gradients.scope import GradientScope
from cfgraph.passes.gradients.stack_gradients import StackGradients


@dataclass(frozen=True, slots=True)
class GradientRequest:
    """Request for the gradients of the weighted sum of `ys` with respect to `xs`.

    `weights` contains a tensor, an array, or None (ones) for each y. Gradients do not flow through
    `stops`. An x in `zeros` gets zeros rather than None if no y depends on it. With `swap_memory`,
    values that loops save may be moved to host memory. With `ignore_custom`, a node that names a
    custom gradient uses the gradient of its op instead.
    """

    ys: Sequence[Output]
    xs: Sequence[Output]
    weights: Sequence[Any]
    stops: Iterable[Output] = ()
    zeros: Collection[Output] = ()
    swap_memory: bool = False
    ignore_custom: bool = False


def differentiate(
    graph: Graph, request: GradientRequest, loop_rule: LoopRule = reverse_loop
) -> list[Output | None]:
    """Add gradients to a lowered graph, in place; the result is None for an x that no y depends on.

    `loop_rule` adds the gradient of a loop. Raises Unsupported for a node that cannot be
    differentiated, with the graph unchanged.
    """
    stack_gradients = StackGradients(stacks(graph))
    links = stack_gradients.pushes_by_pop()
    activity = ActivityAnalysis(request.ys, request.xs, request.stops, links)
    graph_regions = regions(graph, links)
    weights = [weight for weight in request.weights if isinstance(weight, Output)]
    for x in (*request.ys, *request.xs, *weights):
        _require_outside_loops(graph_regions, x)
    ctx = GradientContext(
        graph,
        graph_regions.frames,
        activity.stops,
        swap_memory=request.swap_memory,
        ignore_custom=request.ignore_custom,
    )
    scope = GradientScope(ctx)
    reverse = ReverseMode(
        scope, graph_regions.root, graph_regions, activity, stack_gradients, loop_rule
    )
    try:
        return _add_gradients(reverse, request)
    except Exception:
        ctx.undo()
        raise


def _add_gradients(reverse: ReverseMode, request: GradientRequest) -> list[Output | None]:
    for y, weight in zip(request.ys, request.weights, strict=True):
        if carries_gradient(y) and reverse.is_active(y):
            guard = reverse.guards.of(y)
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


def _require_outside_loops(graph_regions: Regions, x: Output) -> None:
    frame = graph_regions.frames.of_outputs[x.node]
    if frame is not graph_regions.frames.root:
        message = f"{x.name} is inside the loop {frame.path}"
        exits = ", ".join(node.name for node in frame.exits[:3])
        hint = f"it has a value per iteration; the loop's results are its Exits: {exits}"
        raise Unsupported(message, node=x.node, frame=frame.path, hint=hint, code="CFG506")


def _initial_gradient(scope: GradientScope, y: Output, weight: Any, guard: PathCondition) -> Output:
    """The upstream gradient of a y, dead where the y is dead."""
    dtype = y.dtype
    assert dtype is not None
    if weight is not None and not isinstance(weight, Output):
        weight = scope.const(weight, dtype.base)
    if weight is not None:
        _require_compatible_shape(scope, y, weight)
    decisions = guard.decisions()
    if weight is None:
        if decisions:
            return scope.OnesLike(y, name="grad_ys")
        one = scope.const(1, dtype.base)
        return scope.Fill(scope.shape(y), one, name="grad_ys")
    if dtype.base is dtypes.variant:
        return scope.guarded_by(weight, decisions)
    return scope.Mul(scope.OnesLike(y, name="grad_ys"), weight) if decisions else weight


def _require_compatible_shape(scope: GradientScope, y: Output, weight: Output) -> None:
    expected, actual = scope.known_shape(y), scope.known_shape(weight)
    try:
        expected.merge(actual)
    except ValueError:
        message = f"grad_ys for {y.name} has shape {actual}, expected {expected}"
        raise UsageError(message, node=y.node) from None


def _named_gradient(reverse: ReverseMode, x: Output, zeros: bool) -> Output | None:
    """The gradient of an x, under the name of the x.

    Zeros if a y depends on the x only through steps, such as Floor or Sign, or depends on another
    output of the same node, whose gradient was passed on.
    """
    scope = reverse.scope
    with reverse.ctx.result_scope(x):
        total = reverse.gradient_of(x)
        zeros = zeros or reverse.is_active(x) or _has_sibling_gradient(reverse, x)
        if total is None and not zeros:
            return None
        gradient = total or scope.zeros_like(x)
        return scope.add_node("Identity", [gradient], x.node.name).output()


def _has_sibling_gradient(reverse: ReverseMode, x: Output) -> bool:
    """True if another output of the same node passed a gradient on; this one counted as zeros."""
    node = x.node
    return (
        carries_gradient(x)
        and any(reverse.activity.are_active(node.inputs))
        and any(reverse.output_gradients(node))
    )
