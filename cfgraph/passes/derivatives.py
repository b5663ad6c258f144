"""Add gradients of any order: those of the sum of the gradients before.

y = f(x)   ──▶   gradients/x = df/dx   ──▶   gradients_1/x = d(sum of gradients/*)/dx   ──▶   …
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.gradient_paths import format_path, gradient_path_through
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.graph import Graph
from cfgraph.passes.gradients.gradients import gradients

# what is asked for is inside a loop: no path is to blame
_ASKED_WRONGLY: Final = "CFG506"


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
                _tell_path(error, graph, targets, xs, stops)
                raise
        by = tuple(weights or [None] * len(targets))
        found.append(Derivative(number, tuple(targets), tuple(xs), by, stops, tuple(names)))
        targets, weights = [name for name in names if name is not None], None
    return found


def _tell_path(
    error: Unsupported, graph: Graph, ys: Sequence[str], xs: Sequence[str], stops: Sequence[str]
) -> None:
    """Put into a message the path from an x to a y that the node lies on."""
    node = graph.nodes.get(error.node or "")
    if node is None or error.code == _ASKED_WRONGLY:
        return
    tensors = ([graph.tensor(name) for name in names] for names in (xs, ys, stops))
    starts, ends, kept = tensors
    path = gradient_path_through(starts, node, ends, kept)
    if len(path) > 1:
        error.message += f"; it is on the path {format_path(path)}"
