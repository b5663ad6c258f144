"""Ways to run a program in cfgraph: passes before a run, where gradients are added, the engine.

A stage or an engine may have an argument, as `partition=cpu:0-3` and `workers=2` do.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cfgraph
from cfgraph.analysis.resource_handles import is_variable
from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.graph import Graph
from cfgraph.passes.derivatives import gradients
from cfgraph.passes.functionalize.functionalize import functionalize
from cfgraph.runtime.engine.step import State
from tests.conformance import recorded

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
    "functionalize",
    "functionalize*",
    "freeze",
)
# three passes that differed where no two of them do
_TRIPLES = (
    ("lower", "optimize", "functionalize"),
    ("lower", "optimize*", "functionalize*"),
    ("functionalize", "lower", "partition"),
    ("functionalize*", "lower", "partition"),
)
GRADIENT = "gradient"
ENGINES = ("tokens", "compiled")
# stages that do not follow a stage: what a pass would name is in a cluster, of whose results none
# is known to be live, and what was clustered or partitioned is not differentiated
_EXCLUDED = {
    "cluster*": {*PASSES, GRADIENT},
    "cluster": {GRADIENT, "functionalize*"},
    "regions": {GRADIENT, "functionalize*"},
    "partition": {GRADIENT, *PASSES} - {"lower", "cluster", "cluster*", "regions"},
}
# for each way in these, one more with the engine `xla`
_XLA_EVERY = 23
# gradients, and runs that XLA compiled, round in another order
_LOOSER = 20


@dataclass(frozen=True)
class Way:
    """Stages in order, `gradient` among the passes once per order; and the engine of the run."""

    stages: tuple[str, ...]
    engine: str

    @property
    def order(self) -> int:
        """The order of the gradients."""
        return sum(stage.partition("=")[0] == GRADIENT for stage in self.stages)

    @classmethod
    def parse(cls, text: str) -> Way:
        """Return the way that `str` wrote."""
        *stages, engine = text.split()
        return cls(tuple(stages), engine)

    def __str__(self) -> str:
        return " ".join((*self.stages, self.engine))


@functools.cache
def ways(order: int) -> tuple[Way, ...]:
    """All ways for an order: no pass, every pass and pair, triples, and gradients between them."""
    sequences: list[tuple[str, ...]] = [(), *_TRIPLES]
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
class Run:
    """Fetches and feeds of one run, and TensorFlow's values or the message of its error."""

    fetches: list[str]
    feeds: dict[str, Any]
    values: list[Any] = field(default_factory=list)
    error: str = ""


@dataclass
class Subject:
    """A graph with its runs in TensorFlow, each after the one before in one session.

    The gradients of each order are those of `ys` with respect to `xs` in the first run.
    """

    graph: bytes
    init: str
    runs: list[Run]
    ys: Sequence[str] = ()
    xs: Sequence[str] = ()
    gradients: Sequence[Sequence[Any]] = ()


def disagreement(subject: Subject, way: Way) -> str:
    """Describe the difference from TensorFlow, if any; raises the errors of the passes."""
    graph = cfgraph.loads(subject.graph)
    derived = applied(graph, way, subject)
    loosen = _LOOSER if way.engine == "xla" or way.order else 1
    ratios = _loosened_by_casts(graph)
    first = subject.runs[0]
    with session(graph, way) as running:
        _initialize(running, subject)
        for names, expected in zip(derived, subject.gradients, strict=False):
            if not first.error:
                values = running.run(names, _fed(graph, first.feeds))
                failure = compared(subject.xs, values, expected, loosen, ratios)
                if failure:
                    return f"gradient {failure}"
        if derived:
            _initialize(running, subject)
        for run in filter(lambda run: run.fetches, subject.runs):
            try:
                values = running.run(run.fetches, _fed(graph, run.feeds), timeout=60)
            except Unsupported:
                raise
            except CfgraphError as error:
                # what ran before an error depends on the schedule
                return "" if run.error else f"{type(error).__name__}: {error}"
            if run.error and not _is_dropped(run.error, way):
                return f"no error, where TensorFlow has {run.error[:200]}"
            failure = "" if run.error else compared(run.fetches, values, run.values, loosen, ratios)
            if failure:
                return failure
    return ""


def _loosened_by_casts(graph: Graph) -> dict[str, float]:
    """The ratio of tolerances where a Cast makes a type of a narrower floating-point type."""
    ratios: dict[str, float] = {}
    bodies = (function.definition.nodes for function in graph.functions.values())
    for node in itertools.chain(graph, *bodies):
        if node.op == "Cast":
            source, result = node.attrs["SrcT"].name, node.attrs["DstT"].name
            if {source, result} <= {*recorded.TOLERANCES}:
                ratio = recorded.TOLERANCES[source][0] / recorded.TOLERANCES[result][0]
                ratios[result] = max(ratio, ratios.get(result, 1))
    return ratios


def _is_dropped(error: str, way: Way) -> bool:
    """Return true for an error of a TensorArray that became a list.

    A list does not record which elements were written, so that it accepts an element that was
    written twice or never.
    """
    lists = {"functionalize", "functionalize*", "regions"}
    return "TensorArray" in error and not lists.isdisjoint(way.stages)


def _initialize(running: Any, subject: Subject) -> None:
    if subject.init:
        running.run(targets=[subject.init])


def _fed(graph: Graph, feeds: dict[str, Any]) -> dict[str, Any]:
    """The feeds that a graph still has."""
    return {name: value for name, value in feeds.items() if name.rpartition(":")[0] in graph}


def compared(
    names: Sequence[str],
    have: Sequence[Any],
    want: Sequence[Any],
    loosen: float = 1,
    ratios: Mapping[str, float] | None = None,
) -> str:
    """Describe the first difference, if any; `ratios` by type multiply `loosen`."""
    for name, actual, expected in zip(names, have, want, strict=True):
        array = np.asarray(expected)
        ratio = (ratios or {}).get(array.dtype.name, 1)
        failure = recorded.compare(actual, array, loosen=loosen * ratio)
        if failure:
            return f"{name}: {failure}"
    return ""


def applied(graph: Graph, way: Way, subject: Subject) -> list[list[str]]:
    """Apply the stages of a way in place; returns the names of the gradients of each order."""
    found: list[list[str]] = []
    ys = list(subject.ys)
    fetches = dict.fromkeys(name for run in subject.runs for name in run.fetches)
    for stage in way.stages:
        if stage == GRADIENT:
            names = gradients(graph, ys, subject.xs, unconnected="zero")
            ys = [name for name in names if name is not None]
            found.append(ys)
        else:
            wanted = [*fetches, *itertools.chain(*found)]
            # what a gradient is taken of, or with respect to, has to stay, too
            _apply(graph, stage, [*dict.fromkeys([*wanted, *subject.ys, *subject.xs])], subject)
    return found


def _apply(graph: Graph, stage: str, wanted: list[str], subject: Subject) -> None:
    init = [subject.init] if subject.init else []
    fed = tuple(_fed(graph, subject.runs[0].feeds))
    apply(graph, stage, Requirements(tuple(wanted), tuple(init), fed, seed=len(graph)))


@dataclass(frozen=True)
class Requirements:
    """Fetched tensors, targets, and fed tensors of a run; and a seed for its devices."""

    fetches: tuple[str, ...]
    targets: tuple[str, ...]
    feeds: tuple[str, ...]
    seed: int

    @property
    def names(self) -> list[str]:
        """The fetches, and the targets with the mark of nodes."""
        return [*self.fetches, *(f"^{name}" for name in self.targets)]


def apply(graph: Graph, stage: str, run: Requirements) -> None:
    """Apply a pass in place, for a run."""
    name, _, argument = stage.partition("=")
    known = [*run.fetches, *run.targets, *run.feeds]
    match name:
        case "functionalize":
            functionalize(graph, run.names, target=argument or "tensorflow")
        case "functionalize*":
            functionalize(graph)
        case "freeze":
            kept = [node.name for node in graph if is_variable(node)]
            outputs = [*run.names, *run.feeds]
            cfgraph.freeze(graph, outputs=outputs, keep_variables=kept)
        case "lower":
            cfgraph.lower(graph)
        case "optimize":
            limit = int(argument) if argument else None
            cfgraph.optimize(graph, fetches=run.names, feeds=run.feeds, unroll=limit)
        case "optimize*":
            cfgraph.optimize(graph, feeds=run.feeds, keep=[*run.fetches, *run.targets])
        case "cluster":
            size = int(argument or 2)
            cfgraph.cluster(graph, fetches=known, feeds=run.feeds, min_size=size)
        case "cluster*":
            cfgraph.cluster(graph, min_size=int(argument or 1))
        case "regions":
            cfgraph.cluster(graph, fetches=known, feeds=run.feeds, regions=True)
        case "partition":
            cut(run.seed, argument or "cpu:0-2")(graph)
        case "extract":
            cfgraph.extract(graph, outputs=run.names)


def cut(seed: int, devices: str) -> Callable[[Graph], Graph]:
    """A pass that places at random on devices, and partitions."""

    def prepare(graph: Graph) -> Graph:
        cfgraph.place(graph, devices=devices, seed=seed)
        cfgraph.partition(graph)
        return graph

    return prepare


def session(graph: Graph, way: Way) -> Any:
    """A session of the engine of a way."""
    return cfgraph.Session(graph, engine=way.engine, state=State(), soft_placement=True)
