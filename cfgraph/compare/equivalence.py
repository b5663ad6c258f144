"""Equivalence of two graphs by running both at the same points, with the first fault located.

Values and deadness of the fetches are compared, and the variables after the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.summary import effect_targets, sinks, without_io_nodes
from cfgraph.compare.divergence import Divergence, difference_message, first_divergence
from cfgraph.compare.evaluation_point import EvaluationPoint
from cfgraph.compare.sample_point import NORMAL_FLOATS, POSITIVE_FLOATS, SampleOptions, sample_point
from cfgraph.errors import CfgraphError, ExecutionError, RunTimeout, UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ops.families.functional import is_functional
from cfgraph.runtime.state import State
from cfgraph.runtime.trace.events import Observer

DEFAULT_CASES = 4


@dataclass(frozen=True, slots=True)
class ComparisonRunOptions:
    """What to run, `cases` times at points of other seeds; tolerances are those of the types.

    Without fetches and targets, the outputs of the first graph that the second one has too; where
    there are none, the nodes that are run for their effect.

    The second graph begins with the variables of the first one, but for those that `state_of_b`
    has.
    """

    setting: SampleOptions = field(default_factory=SampleOptions)
    fetches: tuple[str, ...] = ()
    targets: Sequence[str] = ()
    cases: int = DEFAULT_CASES
    seed: int = 0
    rtol: float | None = None
    atol: float | None = None
    state_of_b: State | None = None


@dataclass(frozen=True, slots=True)
class ValueMismatch:
    """Something that both computed, and differently; `what` is a tensor's or a variable's name."""

    what: str
    message: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class RunDiff:
    """How two runs compare; true where they differ, which ends the cases.

    `inputs` are those of the case that differs, `failure` is what stopped the second graph there,
    and `first` its first wrong node. `missing` are outputs that the second graph does not have,
    which is a difference too. `lowered` tells that functions of the first graph were lowered to be
    run, since calls of them cannot be: what lowering gets wrong in both graphs is not seen then.
    """

    fetches: tuple[str, ...]
    missing: tuple[str, ...] = ()
    cases: int = 0
    gaps: tuple[ValueMismatch, ...] = ()
    failure: CfgraphError | None = None
    first: Divergence | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    lowered: bool = False

    def __bool__(self) -> bool:
        return bool(self.gaps or self.failure or self.missing)


def compare_runs(a: Graph, b: Graph, options: ComparisonRunOptions | None = None) -> RunDiff:
    """Run two graphs at the same points and compare what they compute, up to the first difference.

    Raises UsageError where there is nothing to compare or inputs cannot be drawn, and whatever the
    run of the first graph raises; a failure of the second one is a difference, but that it takes
    too long is a RunTimeout as well.
    """
    options = options or ComparisonRunOptions()
    fetches, missing = _common_fetches(a, b, options)
    if not fetches and not options.targets:
        options = replace(options, targets=_common_targets(a, b))
    options = replace(options, fetches=fetches)
    found = RunDiff(fetches)
    for number in range(options.cases):
        case = _ComparisonCase(a, b, options, options.seed + number)
        found = replace(case.compare(), cases=number + 1, lowered=found.lowered or case.lowered)
        if found:
            break
    return replace(found, missing=missing)


def _common_fetches(
    a: Graph, b: Graph, options: ComparisonRunOptions
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What to fetch, and what the second graph does not have of it."""
    if options.fetches or options.targets:
        return tuple(a.tensor(name).name for name in options.fetches), ()
    names = [item.name for item in without_io_nodes(a, sinks(a))]
    found = tuple(name for name in names if name.rpartition(":")[0] in b)
    return found, tuple(name for name in names if name not in found)


def _common_targets(a: Graph, b: Graph) -> tuple[str, ...]:
    """The nodes to run where nothing can be fetched. Raises UsageError where there are none."""
    found = tuple(name for name in effect_targets(a, frames(a)) if name in b)
    if not found:
        message = "the graphs have no outputs in common"
        raise UsageError(message, hint="name tensors with --fetch, or nodes with --target")
    return found


class _ComparisonCase:
    """One point."""

    def __init__(self, a: Graph, b: Graph, options: ComparisonRunOptions, seed: int) -> None:
        self.a, self.b, self.options, self.seed = a, b, options, seed
        self.lowered = False

    def compare(self) -> RunDiff:
        """Run both and compare."""
        point, values, floats = self.first_point()
        before = _variable_values(point)
        try:
            twin = self.second_point(point, floats)
            there = self.run(twin)
        except RunTimeout as error:
            error.message = f"the second graph: {error.message}"
            raise
        except CfgraphError as error:
            return self.told(point, floats, (), error)
        pairs = zip(self.options.fetches, values, there, strict=True)
        start = _initial_values(twin) | _initial_values(point)
        gaps = tuple(self.gaps(pairs, before, _variable_values(twin), start))
        return self.told(point, floats, gaps, None) if gaps else RunDiff(self.options.fetches)

    def run(self, point: EvaluationPoint, trace: Observer | None = None) -> list[Any]:
        """What is fetched."""
        options = self.options
        return point.run(options.fetches, targets=options.targets, trace=trace)

    def run_first(self, point: EvaluationPoint) -> list[Any]:
        """What is fetched, by calls of functions where the graph has any: a session lowers them."""
        values = point.run_functional(self.options.fetches, self.options.targets)
        if values is not None:
            return values
        fed = {self.a.tensor(name) for name in point.feeds}
        self.lowered = is_functional(self.a, ancestors(self.a, self.wanted(self.a), fed))
        return self.run(point)

    def first_point(self) -> tuple[EvaluationPoint, list[Any], Any]:
        """A point at which the first graph runs, with finite values if there is one."""
        found, failure = None, None
        for floats in (NORMAL_FLOATS, POSITIVE_FLOATS):
            point = sample_point(
                self.a, self.wanted(self.a), self.options.setting, self.seed, floats
            )
            try:
                values = self.run_first(point)
            except ExecutionError as error:
                failure = failure or error
                continue
            finite = _all_finite(values)
            if found is None or finite:
                found = point, values, floats
            if finite:
                break
        if found is None:
            assert failure is not None
            failure.hint = failure.hint or "feed inputs that suit the graph: --feed NAME=VALUE"
            raise failure
        return found

    def second_point(self, point: EvaluationPoint, floats: Any) -> EvaluationPoint:
        """The same point for the second graph."""
        feeds = {name: value for name, value in point.feeds.items() if _has_tensor(self.b, name)}
        inits = [name for name in self.options.setting.inits if name.removeprefix("^") in self.b]
        own = self.options.state_of_b
        setting = replace(self.options.setting, feeds=feeds, inits=inits, state=own)
        twin = sample_point(self.b, self.wanted(self.b), setting, self.seed, floats)
        cells = twin.cells()
        for key, cell in point.cells().items():
            if key in cells and key not in (own or ()):
                twin.set(cells[key], point.value(cell))
        return twin

    def wanted(self, graph: Graph) -> list[Any]:
        """The nodes that must run."""
        names = dict.fromkeys(self.options.fetches)
        nodes = [graph.tensor(name).node for name in names]
        return nodes + [graph[name.removeprefix("^")] for name in self.options.targets]

    def gaps(self, pairs: Any, before: Any, after: Any, start: Any) -> Iterator[ValueMismatch]:
        """What differs of the fetches and of the variables."""
        rtol, atol = self.options.rtol, self.options.atol
        for name, mine, theirs in pairs:
            told = difference_message(mine, theirs, rtol, atol)
            if told is not None:
                yield ValueMismatch(name, told, mine, theirs)
        # a variable that only one of the graphs has is to the other what it was before the run
        for key in dict.fromkeys((*before, *after)):
            mine, theirs = before.get(key, start.get(key)), after.get(key, start.get(key))
            told = difference_message(mine, theirs, rtol, atol)
            if told is not None:
                told = told.replace("dead", "without a value").replace("live", "with one")
                yield ValueMismatch(f"variable {key[1]}", told, mine, theirs)

    def told(
        self,
        point: EvaluationPoint,
        floats: Any,
        gaps: tuple[ValueMismatch, ...],
        failure: CfgraphError | None,
    ) -> RunDiff:
        """The difference, with the first wrong node."""
        try:
            twin = self.second_point(point, floats)
        except CfgraphError:
            first = None
        else:
            rtol, atol = self.options.rtol, self.options.atol
            first = first_divergence(point, twin, self.run, rtol, atol)
        if first is None and failure is not None and failure.node in self.b:
            node = self.b[str(failure.node)]
            first = Divergence(node.name, node.op, failure.frame or "/", 0, failure.message)
        inputs = dict(point.feeds)
        return RunDiff(self.options.fetches, gaps=gaps, failure=failure, first=first, inputs=inputs)


def _has_tensor(graph: Graph, name: str) -> bool:
    return name.rpartition(":")[0] in graph


def _all_finite(values: Sequence[Any]) -> bool:
    arrays = [np.asarray(value) for value in values if value is not None]
    return all(np.all(np.isfinite(item)) for item in arrays if item.dtype.kind in "fc")


def _variable_values(point: EvaluationPoint) -> dict[tuple[str, str], Any]:
    """What the variables hold."""
    return {key: cell.value for key, cell in point.cells().items()}


def _initial_values(point: EvaluationPoint) -> dict[tuple[str, str], Any]:
    """What the variables held when the run began."""
    return {key: point.value(cell) for key, cell in point.cells().items()}
