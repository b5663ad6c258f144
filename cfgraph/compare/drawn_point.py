"""A point at which to run a graph: what is fed, random values for the rest, and variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.compare.point import Point
from cfgraph.compare.random_inputs import NORMAL, Sizes, can_draw, drawn, random_inputs
from cfgraph.ir.graph import Graph, Node
from cfgraph.runtime.frame_state import MOST_ITERATIONS
from cfgraph.runtime.state import State


@dataclass(frozen=True, slots=True)
class Setting:
    """What is given of points: `feeds`, nodes that run before, sizes that are not known, limits.

    `state` has values of variables, as they are before these nodes run.
    """

    feeds: Mapping[str, Any] = field(default_factory=dict)
    inits: Sequence[str] = ()
    sizes: Sizes = field(default_factory=Sizes)
    max_iterations: int | None = MOST_ITERATIONS
    timeout: float | None = None
    state: State | None = None


def drawn_point(
    graph: Graph,
    wanted: Sequence[Node],
    setting: Setting,
    seed: int,
    floats: tuple[str, str | None] = NORMAL,
) -> Point:
    """A point with random inputs for all that `wanted` need and that is not fed.

    Variables that nothing wrote to get random values too, but for those of texts. Raises UsageError
    for inputs of types that cannot be drawn, ExecutionError where a node that runs before fails.
    """
    fed = {graph.tensor(name) for name in setting.feeds}
    inits = [graph[name.removeprefix("^")] for name in setting.inits]
    given = random_inputs(
        graph, [*wanted, *inits], fed, seed=seed, sizes=setting.sizes, floats=floats
    )
    point = Point(
        graph,
        {**given, **setting.feeds},
        [node.name for node in inits],
        state=setting.state,
        seed=seed,
        max_iterations=setting.max_iterations,
        timeout=setting.timeout,
    )
    for node, cell in point.variables(wanted).items():
        if point.value(cell) is None and can_draw(cell.dtype):
            value = drawn(
                node.name, cell.dtype, cell.shape, seed=seed, sizes=setting.sizes, floats=floats
            )
            point.set(cell, value)
    return point
