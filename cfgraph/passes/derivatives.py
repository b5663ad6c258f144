"""Gradients of any order: add the gradients of some tensors with respect to others.

y = f(x)   ──▶   gradients/x = sum over y of grad_y * df/dx
           ──▶   gradients_1/x = d(sum of gradients/*)/dx   ──▶   …
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.analysis.gradient_paths import format_path, gradient_path_through
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Output, require_graph
from cfgraph.ir.library import copy_graph
from cfgraph.ops.opdef.op import function_calls
from cfgraph.passes.gradients.activity import ActivityAnalysis
from cfgraph.passes.gradients.checkpointing.policy import AUTO
from cfgraph.passes.gradients.differentiate import GradientRequest, differentiate
from cfgraph.passes.gradients.function_gradients import (
    called_functions_with_gradient,
    rewrite_as_calls,
)
from cfgraph.passes.lower.lower import lower

UNCONNECTED: Final = ("none", "zero")


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

    `grad_ys` has for each y the name of a tensor that it is weighed with, an array, or None for
    ones. Nothing flows through `stop_gradients`. Functional nodes are lowered first. `swap_memory`
    marks the values that loops save, so that a device may move them to the host; `ignore_custom`
    takes the gradient of the op where a node names one that is not in the file. With
    `recompute=K` a loop saves its state every K iterations alone, and runs those again before
    their gradient; "auto" takes the root of the number of iterations, where that is known. What
    such a loop reads of variables must not change before the gradients are there.

    Returns the names of the gradients, each of the shape and type of its x; for an x that no y
    depends on None, or with `unconnected="zero"` zeros. An integer y depends on nothing; behind a
    functional node every input counts as used, and of a node that hands a gradient on every output
    does. Where an x is the handle of a variable, the gradient is that of its value.

    Raises UsageError for names that do not exist and weights that do not fit, Unsupported for what
    cannot be differentiated; the graph is lowered then, and otherwise unchanged.
    """
    require_graph(graph)
    ys, xs, stopped = (
        [names] if isinstance(names, str) else list(names) for names in (ys, xs, stop_gradients)
    )
    _require_valid_options(graph, ys, xs, unconnected, recompute)
    zeros = _reachable_through_functions(graph, ys, xs, stopped)
    kept = called_functions_with_gradient(graph)
    lower(graph, keep_calls=kept)
    rewrite_as_calls(graph, graph.gradient_functions)
    targets, sources = [graph.tensor(name) for name in ys], [graph.tensor(name) for name in xs]
    wish = GradientRequest(
        targets,
        sources,
        _checked_weights(graph, targets, grad_ys),
        [graph.tensor(name) for name in stopped],
        [x for x in sources if unconnected == "zero" or x.name in zeros],
        swap_memory,
        ignore_custom,
        recompute,
    )
    with paused_gc():
        found = differentiate(graph, wish)
    if kept:
        lower(graph)
    require_valid(graph)
    return [None if item is None else item.name for item in found]


def _require_valid_options(
    graph: Graph,
    ys: Sequence[str],
    xs: Sequence[str],
    unconnected: str,
    recompute: int | str | None,
) -> None:
    """Refuse options that are none, and a graph that is cut."""
    if unconnected not in UNCONNECTED:
        message = f"unconnected is {unconnected!r}"
        raise UsageError(message, hint=f"one of {', '.join(UNCONNECTED)}")
    if recompute not in (None, AUTO) and (not isinstance(recompute, int) or recompute < 1):
        message = f"recompute is {recompute!r}"
        raise UsageError(message, hint=f"a number of iterations, 1 or more, or {AUTO!r}")
    if not ys or not xs:
        message = "no y to differentiate" if not ys else "no x to differentiate by"
        raise UsageError(message, hint="name at least one tensor")
    if is_partitioned(graph):
        message = "the graph is partitioned already"
        hint = "differentiate it before it is partitioned"
        raise Unsupported(message, hint=hint, code="CFG411")


def _reachable_through_functions(
    graph: Graph, ys: Sequence[str], xs: Sequence[str], stops: Sequence[str]
) -> frozenset[str]:
    """The xs that a y depends on if each output of a functional node depends on all its inputs.

    What a function makes of its arguments is not seen there; it may be nothing. Raises UsageError
    for a name that does not exist.
    """
    named = [[graph.tensor(name) for name in names] for names in (ys, xs, stops)]
    ops = graph.ops
    called = ops & graph.functions.keys()
    if called:
        # a node whose op is a function does not say its types
        seen = copy_graph(graph)
        rewrite_as_calls(seen, called)
        named = [[seen.tensor(item.name) for item in items] for items in named]
    elif not any(function_calls(op).kind for op in ops):
        return frozenset()
    targets, sources, ends = named
    active = ActivityAnalysis(targets, sources, ends)
    return frozenset(x.name for x in sources if active.wants(x))


def _checked_weights(graph: Graph, ys: Sequence[Output], given: Sequence[Any] | None) -> list[Any]:
    """A tensor, an array or None for each y. Raises UsageError where they do not fit."""
    weights = [None] * len(ys) if given is None else list(given)
    if len(weights) != len(ys):
        message = f"{len(weights)} weights (grad_ys) for {len(ys)} ys"
        raise UsageError(message, hint="one for each y; None for ones")
    return [_checked_weight(graph, y, weight) for y, weight in zip(ys, weights, strict=True)]


def _checked_weight(graph: Graph, y: Output, weight: Any) -> Any:
    dtype = y.dtype
    if dtype is dtypes.variant and not isinstance(weight, str):
        message = f"{y.name} is of type variant, which has no ones"
        raise UsageError(message, node=y.node, hint="name a list to weigh it with (grad_ys)")
    if weight is None:
        return None
    if isinstance(weight, str):
        tensor = graph.tensor(weight)
        if dtype and tensor.dtype and tensor.dtype.base is not dtype.base:
            message = f"{weight!r} of type {tensor.dtype} cannot weigh {y.name} of type {dtype}"
            raise UsageError(message, node=y.node)
        return tensor
    # Python's own numbers have no type; they take that of the y
    typed = dtype is None or isinstance(weight, np.ndarray | np.generic)
    try:
        array = np.asarray(weight, None if typed or dtype is None else dtype.base.numpy)
    except (TypeError, ValueError):
        message = f"{weight!r} cannot weigh {y.name} of type {dtype}"
        raise UsageError(message, node=y.node) from None
    if dtype is None or array.dtype != dtype.base.numpy:
        message = f"an array of type {array.dtype} cannot weigh {y.name} of type {dtype}"
        raise UsageError(message, node=y.node)
    return array


# what is asked for is inside a loop: no path is to blame
_INSIDE_LOOP_CODE: Final = "CFG506"


@dataclass(frozen=True, slots=True)
class Derivative:
    """The gradients of one order: `names` has for each x a tensor, or None.

    They are those of the sum of `ys`, weighed with `grad_ys` (None for ones), and with nothing
    flowing through `stops`.
    """

    order: int
    ys: tuple[str, ...]
    xs: tuple[str, ...]
    grad_ys: tuple[Any, ...]
    stops: tuple[str, ...]
    names: tuple[str | None, ...]


def derivatives(
    graph: Graph,
    ys: Sequence[str],
    xs: Sequence[str],
    *,
    order: int = 1,
    grad_ys: Sequence[Any] | None = None,
    stop_gradients: Iterable[str] = (),
    unconnected: str = "none",
    swap_memory: bool = False,
    ignore_custom: bool = False,
    recompute: int | str | None = None,
) -> list[Derivative]:
    """Add gradients up to an order, in place; one entry for each order.

    Options and errors are those of `gradients`; `grad_ys` weigh the first order only. Where no
    gradient of one order depends on any x, those of the next ones are all None. Unsupported tells
    a path from an x to a y on which the node lies; lower orders are in the graph then.

    `recompute` goes with the first order alone. The loops of a gradient push and pop, which cannot
    be done again; and a second order that saves what they compute holds the values of the segments
    twice, as they ran and as they ran again: more than without.
    """
    if order < 1:
        message = f"there are no gradients of order {order}"
        raise UsageError(message, hint="1 for gradients, 2 for those of their sum, and so on")
    if recompute is not None and order > 1:
        message = f"gradients of order {order} would save all that --recompute runs again, and more"
        hint = "leave --recompute out, or ask for the first order alone"
        raise Unsupported(message, hint=hint, code="CFG510")
    stops, targets = tuple(stop_gradients), list(ys)
    weights = None if grad_ys is None else list(grad_ys)
    found: list[Derivative] = []
    for number in range(1, order + 1):
        names: list[str | None] = [None] * len(xs)
        if targets or number == 1:
            try:
                names = gradients(
                    graph,
                    targets,
                    xs,
                    grad_ys=weights,
                    stop_gradients=stops,
                    unconnected=unconnected,
                    swap_memory=swap_memory,
                    ignore_custom=ignore_custom,
                    recompute=recompute,
                )
            except Unsupported as error:
                _add_path(error, graph, targets, xs, stops)
                raise
        by = tuple(weights or [None] * len(targets))
        found.append(Derivative(number, tuple(targets), tuple(xs), by, stops, tuple(names)))
        targets, weights = [name for name in names if name is not None], None
    return found


def _add_path(
    error: Unsupported, graph: Graph, ys: Sequence[str], xs: Sequence[str], stops: Sequence[str]
) -> None:
    """Put into a message the path from an x to a y that the node lies on."""
    node = graph.nodes.get(error.node or "")
    if node is None or error.code == _INSIDE_LOOP_CODE:
        return
    tensors = ([graph.tensor(name) for name in names] for names in (xs, ys, stops))
    starts, ends, kept = tensors
    path = gradient_path_through(starts, node, ends, kept)
    if len(path) > 1:
        error.message += f"; it is on the path {format_path(path)}"
