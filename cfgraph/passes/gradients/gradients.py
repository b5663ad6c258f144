"""Add the gradients of some tensors with respect to others, in reverse mode.

y = f(x)   ──▶   gradients/x = sum over y of grad_y * df/dx
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from cfgraph.errors import UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.walk import topological
from cfgraph.passes.gradients.active import active, carries
from cfgraph.passes.gradients.reverse import Gradients, reverse_node
from cfgraph.passes.gradients.site import Site
from cfgraph.passes.gradients.work import Work
from cfgraph.passes.lower.lower import lower

UNCONNECTED: Final = ("none", "zero")


def gradients(
    graph: Graph,
    ys: Sequence[str],
    xs: Sequence[str],
    *,
    grad_ys: Sequence[Any] | None = None,
    stop_gradients: Iterable[str] = (),
    unconnected: str = "none",
) -> list[str | None]:
    """Add the gradients of the sum of `ys` with respect to each of `xs`, in place.

    `grad_ys` has for each y the name of a tensor that it is weighed with, an array, or None for
    ones. Nothing flows through `stop_gradients`. Functional nodes are lowered first. Returns the
    names of the gradients; for an x that no y depends on None, or with `unconnected="zero"` zeros.

    Raises UsageError for names that do not exist and types that have no gradient, Unsupported for
    what cannot be differentiated; the graph is lowered then, and otherwise unchanged.
    """
    lower(graph)
    targets = [graph.tensor(name) for name in ys]
    sources = [graph.tensor(name) for name in xs]
    stops = {graph.tensor(name) for name in stop_gradients}
    if unconnected not in UNCONNECTED:
        message = f"unconnected is {unconnected!r}"
        raise UsageError(message, hint=f"one of {', '.join(UNCONNECTED)}")
    wanted = active(targets, sources, stops)
    work = Work(graph)
    site, found = Site(work), Gradients()
    order = topological(graph).nodes
    for y, grad in zip(targets, grad_ys or [None] * len(targets), strict=True):
        found.hand(y, _seed(graph, site, y, grad))
    for node in reversed(order):
        reverse_node(site, node, found, wanted)
    return [_named(site, x, found, unconnected) for x in sources]


def _seed(graph: Graph, site: Site, y: Output, grad: Any) -> Output:
    """The gradient that a y begins with."""
    if isinstance(grad, str):
        return graph.tensor(grad)
    dtype: DType | None = y.dtype
    if dtype is None or not carries(y):
        message = f"{y.name} of type {dtype} has no gradient"
        raise UsageError(message, node=y.node)
    if grad is not None:
        return site.const(grad, dtype)
    return site.Fill(site.shape(y), site.const(1, dtype), name="grad_ys")


def _named(site: Site, x: Output, found: Gradients, unconnected: str) -> str | None:
    """The gradient of an x under its own name."""
    site.work.prefix = site.work.scope
    total = found.total(site, x)
    if total is None and unconnected == "none":
        return None
    total = total or site.zeros_like(x)
    return site.new("Identity", [total], x.node.name).output().name
