"""Add the gradients of some tensors with respect to others, in reverse mode.

y = f(x)   ──▶   gradients/x = sum over y of grad_y * df/dx
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from cfgraph.analysis.regions import Regions, regions
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Output
from cfgraph.passes.gradients.active import Active, carries
from cfgraph.passes.gradients.loops import reverse_loop
from cfgraph.passes.gradients.reverse import Reverse
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
    swap_memory: bool = False,
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
    active = Active(targets, sources, stops)
    found = regions(graph)
    work = Work(graph, found.frames, swap_memory)
    try:
        return _differentiate(work, found, active, targets, sources, grad_ys, unconnected)
    except Exception:
        work.undo()
        raise


def _differentiate(
    work: Work,
    found: Regions,
    active: Active,
    ys: Sequence[Output],
    xs: Sequence[Output],
    grad_ys: Sequence[Any] | None,
    unconnected: str,
) -> list[str | None]:
    site = Site(work)
    reverse = Reverse(site, found.root, found, active)
    for y, grad in zip(ys, grad_ys or [None] * len(ys), strict=True):
        if carries(y):
            reverse.hand(y, _seed(work.graph, site, y, grad), found.guards.of(y))
    reverse.run(reverse_loop)
    return [_named(reverse, x, unconnected) for x in xs]


def _seed(graph: Graph, site: Site, y: Output, grad: Any) -> Output:
    """The gradient that a y begins with."""
    if isinstance(grad, str):
        return graph.tensor(grad)
    dtype = y.dtype
    assert dtype is not None
    if grad is not None:
        return site.const(grad, dtype)
    return site.Fill(site.shape(y), site.const(1, dtype), name="grad_ys")


def _named(reverse: Reverse, x: Output, unconnected: str) -> str | None:
    """The gradient of an x under its own name."""
    site = reverse.site
    site.work.prefix = site.work.scope
    total = reverse.total(x)
    if total is None and unconnected == "none":
        return None
    total = total or site.zeros_like(x)
    return site.new("Identity", [total], x.node.name).output().name
