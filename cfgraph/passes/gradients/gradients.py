"""Add the gradients of some tensors with respect to others, in reverse mode.

y = f(x)   ──▶   gradients/x = sum over y of grad_y * df/dx
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.collector import without_collector
from cfgraph.ir.copy import copy_of
from cfgraph.ir.graph import Graph, Output, require_graph
from cfgraph.ops.op import lookup
from cfgraph.passes.gradients.active import Active
from cfgraph.passes.gradients.calls import called_with_gradient, write_as_calls
from cfgraph.passes.gradients.differentiate import Wish, differentiate
from cfgraph.passes.gradients.recompute import AUTO
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
    _require_sense(graph, ys, xs, unconnected, recompute)
    zeros = _behind_functions(graph, ys, xs, stopped)
    kept = called_with_gradient(graph)
    lower(graph, keep_calls=kept)
    write_as_calls(graph, graph.gradient_functions)
    targets, sources = [graph.tensor(name) for name in ys], [graph.tensor(name) for name in xs]
    wish = Wish(
        targets,
        sources,
        _weights(graph, targets, grad_ys),
        [graph.tensor(name) for name in stopped],
        [x for x in sources if unconnected == "zero" or x.name in zeros],
        swap_memory,
        ignore_custom,
        recompute,
    )
    with without_collector():
        found = differentiate(graph, wish)
    if kept:
        lower(graph)
    require_valid(graph)
    return [None if item is None else item.name for item in found]


def _require_sense(
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


def _behind_functions(
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
        seen = copy_of(graph)
        write_as_calls(seen, called)
        named = [[seen.tensor(item.name) for item in items] for items in named]
    elif not any(getattr(lookup(op), "functional", "") for op in ops):
        return frozenset()
    targets, sources, ends = named
    active = Active(targets, sources, ends)
    return frozenset(x.name for x in sources if active.wants(x))


def _weights(graph: Graph, ys: Sequence[Output], given: Sequence[Any] | None) -> list[Any]:
    """A tensor, an array or None for each y. Raises UsageError where they do not fit."""
    weights = [None] * len(ys) if given is None else list(given)
    if len(weights) != len(ys):
        message = f"{len(weights)} weights (grad_ys) for {len(ys)} ys"
        raise UsageError(message, hint="one for each y; None for ones")
    return [_weight(graph, y, weight) for y, weight in zip(ys, weights, strict=True)]


def _weight(graph: Graph, y: Output, weight: Any) -> Any:
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
