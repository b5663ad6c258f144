"""Ways to run a program in cfgraph: passes before a run, where gradients are added, the engine."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cfgraph
from cfgraph.ir.graph import Graph
from cfgraph.passes.derivatives import gradients
from cfgraph.runtime.engine.step import State

# passes that rewrite a graph; a name that ends with `*` has no knowledge of fetches
PASSES = (
    "lower",
    "optimize",
    "optimize*",
    "cluster",
    "cluster*",
    "regions",
    "partition",
    "extract",
)
GRADIENT = "gradient"
ENGINES = ("tokens", "compiled")
# stages that do not follow a stage: what a pass would name is in a cluster, and what was clustered
# or partitioned is not differentiated
_EXCLUDED = {
    "cluster*": {*PASSES, GRADIENT},
    "cluster": {GRADIENT},
    "regions": {GRADIENT},
    "partition": {GRADIENT, "optimize", "optimize*", "partition", "extract"},
}
# for each way in these, one more with the engine `xla`
_XLA_EVERY = 23


@dataclass(frozen=True)
class Way:
    """Stages in order, `gradient` among the passes once per order; and the engine of the run."""

    stages: tuple[str, ...]
    engine: str

    @property
    def order(self) -> int:
        """The order of the gradients."""
        return self.stages.count(GRADIENT)

    def __str__(self) -> str:
        return " ".join((*self.stages, self.engine))


@functools.cache
def ways(order: int) -> tuple[Way, ...]:
    """All ways for an order: no pass, every pass, every pair, and gradients between them."""
    sequences: list[tuple[str, ...]] = [()]
    for count in (1, 2):
        sequences += itertools.product(PASSES, repeat=count)
    staged = [
        (*passes[:place], *[GRADIENT] * order, *passes[place:])
        for passes in sequences
        for place in range(len(passes) + 1 if order else 1)
    ]
    staged = [stages for stages in staged if not _is_excluded(stages)]
    found = [Way(stages, engine) for stages in staged for engine in ENGINES]
    return tuple(found + [Way(stages, "xla") for stages in staged[::_XLA_EVERY]])


def _is_excluded(stages: tuple[str, ...]) -> bool:
    pairs = itertools.combinations(stages, 2)
    return any(later in _EXCLUDED.get(stage, ()) for stage, later in pairs)


@dataclass
class Inputs:
    """Names of a graph: what runs fetch and feed, what initializes it, and what is derived."""

    fetches: Sequence[str]
    feeds: Sequence[str]
    init: str
    ys: Sequence[str] = ()
    xs: Sequence[str] = ()


def applied(graph: Graph, way: Way, inputs: Inputs, stages: int | None = None) -> list[list[str]]:
    """Apply the stages of a way (or the first ones) in place; the gradients of each order."""
    found: list[list[str]] = []
    ys = list(inputs.ys)
    for stage in way.stages[:stages]:
        if stage == GRADIENT:
            names = gradients(graph, ys, inputs.xs, unconnected="zero")
            ys = [name for name in names if name is not None]
            found.append(ys)
        else:
            wanted = [*inputs.fetches, *itertools.chain(*found)]
            # what a gradient is taken of, or with respect to, has to stay, too
            _apply(graph, stage, [*dict.fromkeys([*wanted, *inputs.ys, *inputs.xs])], inputs)
    return found


def _apply(graph: Graph, name: str, wanted: list[str], inputs: Inputs) -> None:
    fed = [feed for feed in inputs.feeds if feed.rpartition(":")[0] in graph]
    match name:
        case "lower":
            cfgraph.lower(graph)
        case "optimize":
            cfgraph.optimize(graph, fetches=[*wanted, f"^{inputs.init}"], feeds=fed)
        case "optimize*":
            cfgraph.optimize(graph, feeds=fed, keep=[*wanted, inputs.init])
        case "cluster":
            cfgraph.cluster(graph, fetches=wanted, feeds=fed)
        case "cluster*":
            cfgraph.cluster(graph, min_size=1)
        case "regions":
            cfgraph.cluster(graph, fetches=wanted, feeds=fed, regions=True)
        case "partition":
            cfgraph.place(graph, devices="cpu:0-2", seed=len(graph))
            cfgraph.partition(graph)
        case "extract":
            cfgraph.extract(graph, outputs=[*wanted, f"^{inputs.init}"])


def session(graph: Graph, way: Way) -> Any:
    """A session of the engine of a way."""
    return cfgraph.Session(graph, engine=way.engine, state=State(), soft_placement=True)
