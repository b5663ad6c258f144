"""Second-order gradients of the recorded cases: ours, and the slopes of those of first order.

The gradients of first order are weighted with random arrays, so that errors do not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cfgraph.comparison.gradient_check import GradientCheckOptions, check_gradients
from cfgraph.ir.dtypes import variant
from cfgraph.ir.graph import Graph
from cfgraph.passes.derivatives import Derivative, gradients
from cfgraph.passes.widen import widen
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session
from tests.conformance import recorded, recorded_gradients

# elements of each x that are moved
_MOST = 8


class SecondOrder(NamedTuple):
    """The gradients of both orders for each x; None where there is none."""

    first: list[Any]
    second: list[Any]


def weight_of(index: int, value: Any) -> Any:
    """The weight of the gradient with respect to the x of an index."""
    value = np.asarray(value)
    draw = np.random.default_rng([7, index])
    weight = draw.normal(size=value.shape)
    if value.dtype.kind == "c":
        weight = weight + 1j * draw.normal(size=value.shape)
    return np.asarray(weight, value.dtype)


def computed(case: dict[str, Any], **options: Any) -> SecondOrder:
    """Our gradients of a case, at the recorded precision; `options` are those of the sessions."""
    options = {"state": State(), "soft_placement": True, **options}
    graph, feeds = recorded.graph(case["graph"]), _arrays(case["feeds"], np.asarray)
    _initialize(case, options, lambda graph: None, np.asarray)
    first = recorded_gradients.add_gradients(case, graph)
    values = _values(graph, first, feeds, options)
    second = _add_second(case, graph, first, values, case["unconnected"]).names
    return SecondOrder(values, _values(graph, second, feeds, options))


def difference_from_slopes(case: dict[str, Any]) -> str:
    """The difference between our gradients of order 2 and slopes of order 1, in 64 bits, or ``."""
    graph = recorded.graph(case["graph"])
    narrow = tuple(widen(graph).names)
    options = {"state": State(), "soft_placement": True}
    feeds = _arrays(case["feeds"], _wide)
    _initialize(case, options, widen, _wide)
    first = recorded_gradients.add_gradients(case, graph, wide=_wide)
    values = _values(graph, first, feeds, options)
    # a missing gradient is compared, too: as zeros
    derivative = _add_second(case, graph, first, values, "zero")
    if not derivative.ys:
        return ""
    checked = GradientCheckOptions(feeds, most=_MOST, narrow=narrow, state=options["state"])
    (slopes,) = check_gradients(graph, [derivative], checked)
    wrong = (comparison for comparison in slopes.values() if not comparison.agrees)
    return "; ".join(f"{each.x}: {each.actual}, slope {each.expected}" for each in wrong)


def _add_second(
    case: dict[str, Any],
    graph: Graph,
    first: Sequence[str | None],
    values: Sequence[Any],
    unconnected: str,
) -> Derivative:
    """Add the gradients of the weighted gradients of first order."""
    pairs = [(index, name) for index, name in enumerate(first) if values[index] is not None]
    ys = [str(name) for _, name in pairs]
    weights = [weight_of(index, values[index]) for index, _ in pairs]
    stops, xs = tuple(case["stop_gradients"] or ()), tuple(case["xs"])
    names: list[str | None] = [None] * len(xs)
    if ys:
        names = gradients(
            graph, ys, xs, grad_ys=weights, stop_gradients=stops, unconnected=unconnected
        )
    return Derivative(2, tuple(ys), xs, tuple(weights), stops, tuple(names))


def _values(
    graph: Graph, names: Sequence[str | None], feeds: Mapping[str, Any], options: dict[str, Any]
) -> list[Any]:
    """The values of tensors; None for no tensor and for lists."""
    fetched = [
        name for name in names if name is not None and graph.tensor(name).dtype is not variant
    ]
    if not fetched:
        return [None] * len(names)
    values = Session(graph, **options).run(fetched, feeds, timeout=60)
    have = dict(zip(fetched, values, strict=True))
    return [have.get(name or "") for name in names]


def _arrays(keys: Mapping[str, str], convert: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: convert(recorded.array(key)) for name, key in keys.items()}


def _wide(value: Any) -> Any:
    """A number in double precision."""
    value = np.asarray(value)
    if value.dtype.kind == "f" or value.dtype.name == "bfloat16":
        return value.astype(np.float64)
    return value.astype(np.complex128) if value.dtype.kind == "c" else value


def _initialize(
    case: dict[str, Any],
    options: dict[str, Any],
    prepare: Callable[[Graph], object],
    convert: Callable[[Any], Any],
) -> None:
    """Run what came before in the session, its graphs prepared."""
    for run in case["init"]:
        graph = recorded.graph(run["graph"])
        prepare(graph)
        tensors = [name for name in run["fetches"] if ":" in name]
        targets = [name for name in run["fetches"] if ":" not in name]
        Session(graph, **options).run(tensors, _arrays(run["feeds"], convert), targets, timeout=60)
