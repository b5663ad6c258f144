"""Gradients of any order: add derivatives of tensors with respect to other tensors.

order 1:   y = f(x)   ──▶   gradients/x = sum over y of grad_y * dy/dx
order 2:              ──▶   gradients_1/x = d(sum of gradients/*)/dx
order 3:              ──▶   …
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final

import numpy as np

from cfgraph.analysis.gradient_paths import (
    ActivityAnalysis,
    GradientFlow,
    format_path,
    gradient_path_through,
)
from cfgraph.analysis.verify.verify import require_valid, require_valid_result
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph, Output, require_graph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.names import name_list
from cfgraph.ir.traversal import is_partitioned
from cfgraph.ops.opdef.op import calls_functions, function_calls
from cfgraph.passes.gradients.checkpointing import AUTO, differentiate_with_checkpoints
from cfgraph.passes.gradients.custom_gradients import bind_captures
from cfgraph.passes.gradients.function_gradients import (
    called_functions_with_gradient,
    rewrite_as_calls,
)
from cfgraph.passes.gradients.loop_gradient import reverse_loop
from cfgraph.passes.gradients.opaque_calls import OpaqueGradients
from cfgraph.passes.gradients.reverse import GradientRequest, differentiate
from cfgraph.passes.lowering import lower
from cfgraph.stack_position import LOCATORS, StackPosition, pass_position

UNCONNECTED: Final = ("none", "zero")


@dataclass(frozen=True, slots=True)
class DerivativeRequest:
    """Tensors to differentiate, the order, and options with the meaning that `gradients` defines.

    `grad_ys` multiply the first order only. `recompute` requires order 1: the loops of a gradient
    push and pop, which cannot be repeated, and a second order would save the values of the segments
    twice, using more memory than without.
    """

    ys: Sequence[str]
    xs: Sequence[str]
    order: int = 1
    grad_ys: Sequence[Any] | None = None
    stop_gradients: Sequence[str] = ()
    unconnected: str = "none"
    swap_memory: bool = False
    ignore_custom: bool = False
    recompute: int | str | None = None

    def require_valid(self) -> None:
        """Raise UsageError for an order below 1, Unsupported for one that is not implemented."""
        if self.order < 1:
            message = f"order must be at least 1, got {self.order}"
            hint = "use 1 for gradients, 2 for those of their sum, and so on"
            raise UsageError(message, hint=hint)
        if self.recompute is not None and self.order > 1:
            message = f"recompute is not supported for gradients of order {self.order}"
            hint = "omit recompute, or request order 1"
            raise Unsupported(message, hint=hint, code="CFG510")


def gradients(
    graph: Graph,
    ys: str | Sequence[str],
    xs: str | Sequence[str],
    *,
    grad_ys: Sequence[Any] | None = None,
    stop_gradients: str | Iterable[str] = (),
    unconnected: str = "none",
    swap_memory: bool = False,
    ignore_custom: bool = False,
    recompute: int | str | None = None,
) -> list[str | None]:
    """Add the gradients of the sum of `ys` with respect to each of `xs`, in place.

    Functional nodes are lowered first. Integer and boolean tensors carry no gradient. For a
    variable's handle in `xs`, the result is the gradient of the variable's value.

    Args:
        grad_ys: upstream gradient of each y: the name of a tensor, an array, or None for ones.
        stop_gradients: tensors that no gradient passes.
        unconnected: gradient of an x that no y depends on: "none" for None, or "zero" for zeros.
            All outputs of a functional node are assumed to use all its inputs.
        swap_memory: mark the values that loops save, so that devices may move them to the host.
        ignore_custom: use the gradient of the op if a node names a custom one.
        recompute: gradient checkpointing: loops save their state every this many iterations, and
            recompute the rest; "auto" uses the square root of a static trip count. Variables that
            such a loop reads must not change before the gradients are computed.

    Returns the names of the gradients, each of the shape and type of its x.

    Raises UsageError for unknown names and unsuitable upstream gradients, Unsupported for nodes
    that cannot be differentiated; the graph is lowered then, and otherwise unchanged.
    """
    request = DerivativeRequest(
        name_list(ys),
        name_list(xs),
        grad_ys=grad_ys,
        stop_gradients=name_list(stop_gradients),
        unconnected=unconnected,
        swap_memory=swap_memory,
        ignore_custom=ignore_custom,
        recompute=recompute,
    )
    names, _ = add_gradients(graph, request)
    return names


def gradient_with_flow(graph: Graph, y: str, x: str) -> tuple[str | None, GradientFlow]:
    """Add the gradient of a tensor, in place; also return where gradients ended.

    Raises as `gradients` does.
    """
    flow = GradientFlow()
    (name,), _ = add_gradients(graph, DerivativeRequest([y], [x]), flow)
    return name, flow


def add_gradients(
    graph: Graph,
    request: DerivativeRequest,
    flow: GradientFlow | None = None,
    reachable: Collection[str] = (),
) -> tuple[list[str | None], tuple[str, ...]]:
    """Add gradients, and record in `flow` where they end; the xs in `reachable` have one.

    Returns the names of the gradients, and those of all added nodes.
    """
    require_graph(graph)
    ys, xs, stopped = request.ys, request.xs, request.stop_gradients
    _require_valid_request(graph, request)
    zeros = _reachable_through_functions(graph, ys, xs, stopped)
    lower_for_gradients(graph, ignore_custom=request.ignore_custom)
    targets, sources = [graph.tensor(name) for name in ys], [graph.tensor(name) for name in xs]
    resolved = GradientRequest(
        targets,
        sources,
        _checked_weights(graph, targets, request.grad_ys),
        [graph.tensor(name) for name in stopped],
        [
            x
            for x in sources
            if request.unconnected == "zero" or x.name in zeros or x.name in reachable
        ],
        request.swap_memory,
        request.ignore_custom,
        flow=flow,
    )
    with graph.paused_gc():
        results = (
            differentiate(graph, resolved, reverse_loop)
            if request.recompute is None
            else differentiate_with_checkpoints(graph, resolved, request.recompute)
        )
        require_valid_result(graph, "gradients")
        lowered = lower(graph).names if calls_functions(graph) else {}
    added = [name for node in resolved.added for name in lowered.get(node.name, (node.name,))]
    names = [None if x is None else x.name for x in results]
    return names, tuple(name for name in added if name in graph)


def _gradient_position(frames: Sequence[FrameType]) -> StackPosition:
    return pass_position(frames)._replace(activity=gradients.__name__)


LOCATORS[add_gradients.__code__] = _gradient_position


def lower_for_gradients(graph: Graph, *, ignore_custom: bool) -> None:
    """Lower the graph, in place, except calls of functions with a gradient function."""
    if not ignore_custom:
        bind_captures(graph)
    if not calls_functions(graph):
        require_valid(graph)
        return
    with_gradient = called_functions_with_gradient(graph)
    lower(graph, keep_calls=with_gradient)
    rewrite_as_calls(graph, graph.gradient_functions)


def _require_valid_request(graph: Graph, request: DerivativeRequest) -> None:
    """Raise UsageError for invalid options, Unsupported for a partitioned graph."""
    unconnected, recompute = request.unconnected, request.recompute
    if unconnected not in UNCONNECTED:
        message = f"unconnected is {unconnected!r}, expected one of {', '.join(UNCONNECTED)}"
        raise UsageError(message, hint="use none for None, zero for a tensor of zeros")
    if recompute not in (None, AUTO) and (not isinstance(recompute, int) or recompute < 1):
        message = f"recompute is {recompute!r}, expected a positive integer or {AUTO!r}"
        raise UsageError(message, hint="set the number of iterations between checkpoints")
    if not request.ys or not request.xs:
        message = (
            "no y to differentiate" if not request.ys else "no x to differentiate with respect to"
        )
        raise UsageError(message, hint="name at least one tensor")
    if is_partitioned(graph):
        message = "the graph is already partitioned"
        hint = "differentiate it before partitioning"
        raise Unsupported(message, hint=hint, code="CFG411")


def _reachable_through_functions(
    graph: Graph, ys: Sequence[str], xs: Sequence[str], stops: Sequence[str]
) -> frozenset[str]:
    """The xs that a y depends on if each output of a functional node depends on all its inputs.

    Once lowered, a function that ignores an argument cuts the path. Raises UsageError for a name
    that does not exist.
    """
    named = [[graph.tensor(name) for name in names] for names in (ys, xs, stops)]
    ops = graph.ops
    called = ops & graph.functions.keys()
    if called:
        # a node whose op is a function has no type attributes
        copy = copy_graph(graph)
        rewrite_as_calls(copy, called)
        named = [[copy.tensor(x.name) for x in tensors] for tensors in named]
    elif not any(function_calls(op).kind for op in ops):
        return frozenset()
    targets, sources, ends = named
    activity = ActivityAnalysis(targets, sources, ends)
    return frozenset(x.name for x in sources if activity.is_active(x))


def _checked_weights(
    graph: Graph, ys: Sequence[Output], grad_ys: Sequence[Any] | None
) -> list[Any]:
    """The weights of the ys: tensors, arrays, or None. Raises UsageError for unsuitable ones."""
    weights = [None] * len(ys) if grad_ys is None else list(grad_ys)
    if len(weights) != len(ys):
        message = f"{len(weights)} grad_ys for {len(ys)} ys, expected one per y"
        raise UsageError(message, hint="use None for ones")
    return [_checked_weight(graph, y, weight) for y, weight in zip(ys, weights, strict=True)]


def _checked_weight(graph: Graph, y: Output, weight: Any) -> Any:
    dtype = y.dtype
    if dtype is dtypes.variant and not isinstance(weight, str):
        message = f"{y.name} has dtype variant, which has no default upstream gradient"
        raise UsageError(message, node=y.node, hint="name a tensor list in grad_ys")
    if dtype is not None and dtype.base in (dtypes.resource, dtypes.string):
        message = f"{y.name} has dtype {dtype}, which has no gradient"
        raise UsageError(message, node=y.node, hint="name a tensor of numbers as y")
    if weight is None:
        return None
    if isinstance(weight, str):
        tensor = graph.tensor(weight)
        if dtype and tensor.dtype and tensor.dtype.base is not dtype.base:
            message = f"grad_ys {weight!r} has dtype {tensor.dtype}, expected {dtype} as {y.name}"
            raise UsageError(message, node=y.node)
        return tensor
    # Python numbers have no dtype and take that of the y
    typed = dtype is None or isinstance(weight, np.ndarray | np.generic)
    try:
        array = np.asarray(weight, None if typed or dtype is None else dtype.base.numpy)
    except (TypeError, ValueError):
        message = f"grad_ys {weight!r} is not a number of dtype {dtype} as {y.name}"
        raise UsageError(message, node=y.node) from None
    if dtype is None or array.dtype != dtype.base.numpy:
        message = f"a grad_ys array has dtype {array.dtype}, expected {dtype} as {y.name}"
        raise UsageError(message, node=y.node)
    return array


# a requested tensor is inside a loop: no path is to blame
_INSIDE_LOOP_CODE: Final = "CFG506"


@dataclass(frozen=True, slots=True)
class Derivative:
    """The gradients of one order: `names` contains a tensor or None for each x.

    They differentiate the sum of `ys`, multiplied by `grad_ys` (None for ones), and do not flow
    through `stops`. `added` are the names of the nodes that were added for them.
    """

    order: int
    ys: tuple[str, ...]
    xs: tuple[str, ...]
    grad_ys: tuple[Any, ...]
    stops: tuple[str, ...]
    names: tuple[str | None, ...]
    added: tuple[str, ...] = ()


def derivatives(graph: Graph, request: DerivativeRequest) -> list[Derivative]:
    """Add gradients up to an order, in place; one entry per order.

    Errors are the same as for `gradients`. If no gradient of one order depends on any x, all
    gradients of the next orders are None. Unsupported names the path from an x to a y on which the
    node lies; gradients of lower orders have been added.
    """
    request.require_valid()
    is_repeated = request.order > 1
    if is_repeated:
        require_valid(graph)
    xs, stops, targets = request.xs, request.stop_gradients, list(request.ys)
    weights = None if request.grad_ys is None else list(request.grad_ys)
    opaque = OpaqueGradients.from_graph(graph, request.ys, xs, stops) if is_repeated else None
    results: list[Derivative] = []
    for number in range(1, request.order + 1):
        names, added = list[str | None]([None] * len(xs)), tuple[str, ...]()
        reachable = opaque.advance(weights) if opaque else frozenset[str]()
        if targets or number == 1:
            try:
                step = replace(request, ys=targets, grad_ys=weights)
                names, added = add_gradients(graph, step, reachable=reachable if number > 1 else ())
            except Unsupported as error:
                _add_path(error, graph, targets, xs, stops)
                raise
        multipliers = tuple(weights or [None] * len(targets))
        ys = tuple(targets)
        results.append(
            Derivative(number, ys, tuple(xs), multipliers, tuple(stops), tuple(names), added)
        )
        targets, weights = [name for name in names if name is not None], None
    return results


def _add_path(
    error: Unsupported, graph: Graph, ys: Sequence[str], xs: Sequence[str], stops: Sequence[str]
) -> None:
    """Append to a message the path from an x to a y on which the node lies."""
    node = graph.nodes.get(error.node or "")
    if node is None or error.code == _INSIDE_LOOP_CODE:
        return
    tensors = ([graph.tensor(name) for name in names] for names in (xs, ys, stops))
    starts, ends, stopped = tensors
    path = gradient_path_through(starts, node, ends, stopped)
    if len(path) > 1:
        error.message += f"; it is on the path {format_path(path)}"
