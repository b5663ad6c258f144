"""Reverse-mode differentiation of a lowered graph, from tensors to tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.gradient_paths import carries_gradient
from cfgraph.analysis.loops.path_conditions import PathCondition
from cfgraph.analysis.loops.regions import Regions, regions
from cfgraph.analysis.resource_handles import stacks
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph, Output
from cfgraph.passes.gradients.activity import ActivityAnalysis
from cfgraph.passes.gradients.checkpointing.policy import CheckpointPolicy
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.gradient_stacks import GradientStacks
from cfgraph.passes.gradients.loop_gradient import reverse_loop
from cfgraph.passes.gradients.recomputed_loop import cleanup_clones
from cfgraph.passes.gradients.reverse import ReverseMode
from cfgraph.passes.gradients.scope import GradientScope


@dataclass(frozen=True, slots=True)
class GradientRequest:
    """What is asked for: the gradients of the sum of `ys`, each weighed, with respect to `xs`.

    `weights` has for each y a tensor, an array, or None for ones. Nothing flows through `stops`.
    Those of `zeros` get zeros where no y depends on them. `swap_memory` marks what loops save;
    `ignore_custom` takes the gradient of an op where a node names one of its own. With `recompute`,
    loops save their state once in so many iterations, and run again what lies between.
    """

    ys: Sequence[Output]
    xs: Sequence[Output]
    weights: Sequence[Any]
    stops: Iterable[Output] = ()
    zeros: Collection[Output] = ()
    swap_memory: bool = False
    ignore_custom: bool = False
    recompute: int | str | None = None


def differentiate(graph: Graph, wish: GradientRequest) -> list[Output | None]:
    """Add gradients to a lowered graph, in place; for an x that no y depends on None.

    Raises Unsupported for what cannot be differentiated; the graph is unchanged then.
    """
    if wish.recompute is None:
        return _differentiate(graph, wish, None)
    saved = GradientStacks(stacks(graph))
    active = ActivityAnalysis(wish.ys, wish.xs, wish.stops, saved.links())
    cut = CheckpointPolicy(graph, wish.recompute, active, saved)
    try:
        found = _differentiate(graph, wish, cut)
    except Exception:
        cut.undo()
        raise
    cut.finish()
    return found


def _differentiate(
    graph: Graph, wish: GradientRequest, cut: CheckpointPolicy | None
) -> list[Output | None]:
    """Add gradients; loops that are cut run again."""
    saved = GradientStacks(stacks(graph))
    links = saved.links()
    active = ActivityAnalysis(wish.ys, wish.xs, wish.stops, links)
    found = regions(graph, links)
    weights = [weight for weight in wish.weights if isinstance(weight, Output)]
    for item in (*wish.ys, *wish.xs, *weights):
        _require_outside_loops(found, item)
    work = GradientContext(graph, found.frames, wish.swap_memory, wish.ignore_custom)
    if cut is not None:
        work.segments, work.left_out = cut.segments, cut.left_out
    try:
        return _add_gradients(work, found, active, saved, wish)
    except Exception:
        work.undo()
        raise


def _add_gradients(
    work: GradientContext,
    found: Regions,
    active: ActivityAnalysis,
    saved: GradientStacks,
    wish: GradientRequest,
) -> list[Output | None]:
    site = GradientScope(work)
    reverse = ReverseMode(site, found.root, found, active, saved)
    for y, weight in zip(wish.ys, wish.weights, strict=True):
        if carries_gradient(y) and active.wants(y):
            guard = found.guards.of(y)
            reverse.accumulate(y, _initial_gradient(site, y, weight, guard), guard)
    reverse.run(reverse_loop)
    cleanup_clones(work)
    zeros = {*wish.zeros, *_reachable_through_loops(found, wish)}
    return [_named_gradient(reverse, x, x in zeros) for x in wish.xs]


def _reachable_through_loops(found: Regions, wish: GradientRequest) -> list[Output]:
    """The xs that a y depends on if all that leaves a loop depends on all that enters it.

    They have a gradient, if only of zeros: what a loop makes of a value may depend on how often it
    goes around.
    """
    links = {
        node: frame.enters for frame in found.frames.all for node in frame.exits if frame.enters
    }
    if not links:
        return []
    active = ActivityAnalysis(wish.ys, wish.xs, wish.stops, links)
    return [x for x in wish.xs if active.wants(x)]


def _require_outside_loops(found: Regions, item: Output) -> None:
    frame = found.frames.of_outputs[item.node]
    if frame is not found.frames.root:
        message = f"{item.name} is inside the loop {frame.path}"
        exits = ", ".join(node.name for node in frame.exits[:3])
        hint = f"it has a value in each iteration; outside the loop there are its Exits: {exits}"
        raise Unsupported(message, node=item.node, frame=frame.path, hint=hint, code="CFG506")


def _initial_gradient(site: GradientScope, y: Output, weight: Any, guard: PathCondition) -> Output:
    """The gradient that a y begins with; dead where the y is."""
    dtype = y.dtype
    assert dtype is not None
    if weight is not None and not isinstance(weight, Output):
        weight = site.const(weight, dtype.base)
    if weight is not None:
        _require_shape(site, y, weight)
    decisions = guard.decisions()
    if weight is None:
        if decisions:
            return site.OnesLike(y, name="grad_ys")
        one = site.const(1, dtype.base)
        return site.Fill(site.shape(y), one, name="grad_ys")
    if dtype.base is dtypes.variant:
        return site.under(weight, decisions)
    return site.Mul(site.OnesLike(y, name="grad_ys"), weight) if decisions else weight


def _require_shape(site: GradientScope, y: Output, weight: Output) -> None:
    wanted, found = site.known_shape(y), site.known_shape(weight)
    try:
        wanted.merge(found)
    except ValueError:
        message = f"a weight of shape {found} cannot weigh {y.name} of shape {wanted}"
        raise UsageError(message, node=y.node) from None


def _named_gradient(reverse: ReverseMode, x: Output, zeros: bool) -> Output | None:
    """The gradient of an x under its own name.

    Zeros where a y depends on the x, but only in steps: along Floor, say, or Sign; and where it
    depends on another output of the node, whose gradient goes on from there.
    """
    site = reverse.site
    site.work.prefix, site.work.device = site.work.scope, x.node.device
    total = reverse.total(x)
    zeros = zeros or reverse.active.wants(x) or _has_sibling_gradient(reverse, x)
    if total is None and not zeros:
        return None
    return site.new("Identity", [total or site.zeros_like(x)], x.node.name).output()


def _has_sibling_gradient(reverse: ReverseMode, x: Output) -> bool:
    """True for an output whose node got a gradient for another one, and handed it on.

    It took zeros for this one.
    """
    node = x.node
    return (
        carries_gradient(x)
        and any(reverse.active.wanted(node.inputs))
        and any(reverse.arrived(node))
    )
