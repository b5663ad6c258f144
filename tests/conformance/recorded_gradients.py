"""The recorded TensorFlow gradients: how to add ours to their graphs, run them and compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.graph import Graph
from cfgraph.passes.derivatives import gradients
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session
from tests.conformance import recorded

# gradients are recorded to rtol 1e-4 and atol 1e-5 in float32: five and ten times of what sessions
LOOSEN = 10


def disagreement(
    case: dict[str, Any],
    prepare: Callable[[Graph, list[str | None]], None] = lambda graph, names: None,
    recompute: int | None = None,
    forward: Callable[[Graph], None] = lambda graph: None,
    **options: Any,
) -> str:
    """The difference from a recorded gradient case, or ``.

    `forward` changes the graph before its gradients are added, and `prepare` the graph with them.
    """
    graph = recorded.graph(case["graph"])
    options = {"state": State(), "soft_placement": True, **options}
    try:
        forward(graph)
        names = add_gradients(case, graph, recompute)
        prepare(graph, names)
        _initialize(case, options)
        values = _run(case, graph, names, options)
    except Unsupported as error:
        return f"Unsupported: {error}"
    except CfgraphError as error:
        return f"{type(error).__name__}: {error}"
    for x, want in zip(case["xs"], case["expected"], strict=True):
        failure = _compare(values.get(x), want, random="random" in case["tags"])
        if failure:
            return f"{x}: {failure}"
    return ""


def add_gradients(
    case: dict[str, Any],
    graph: Graph,
    recompute: int | None = None,
    wide: Callable[[Any], Any] = np.asarray,
) -> list[str | None]:
    """Add the gradients of a case, with arrays of `grad_ys` in float64; their names."""
    return gradients(
        graph,
        case["ys"],
        case["xs"],
        grad_ys=[
            wide(recorded.array(item["array"])) if isinstance(item, dict) else item
            for item in case["grad_ys"]
        ]
        or None,
        stop_gradients=case["stop_gradients"] or (),
        unconnected=case["unconnected"],
        recompute=recompute,
    )


def _initialize(case: dict[str, Any], options: dict[str, Any]) -> None:
    for run in case["init"]:
        tensors, feeds, targets = recorded.run_arguments(run)
        with Session(recorded.graph(run["graph"]), **options) as session:
            session.run(tensors, feeds, targets, timeout=60)
            if options.get("workers") is not None:
                options["state"] = session.state.copy()


def _run(
    case: dict[str, Any], graph: Graph, names: list[str | None], options: dict[str, Any]
) -> dict[str, Any]:
    wanted = [
        (x, name)
        for x, name, want in zip(case["xs"], names, case["expected"], strict=True)
        if name is not None and want is not None
    ]
    if not wanted:
        return {}
    feeds = {name: recorded.array(key) for name, key in case["feeds"].items()}
    with Session(graph, **options) as session:
        values = session.run([name for _, name in wanted], feeds, timeout=60)
    return dict(zip([x for x, _ in wanted], values, strict=True))


def _compare(have: Any, want: str | None, *, random: bool) -> str:
    if want is None:
        return ""  # None, or not fetched
    if have is None:
        return "None, where TensorFlow has a gradient"
    return recorded.compare(
        np.asarray(have), recorded.array(want), shapes_only=random, loosen=LOOSEN
    )
