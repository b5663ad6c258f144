"""Equivalence of two graphs by running both at the same points, with the first fault located.

Values and deadness of the fetches are compared, and the variables after the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.summary import effect_targets, sinks, without_io_nodes
from cfgraph.compare.differences import Divergence, RunDiff, ValueMismatch
from cfgraph.compare.divergence import difference_message, first_divergence
from cfgraph.compare.independent_runs import independent_runs
from cfgraph.compare.sample_point import (
    EvaluationPoint,
    SampleOptions,
    finite_point,
    sample_point,
)
from cfgraph.errors import CfgraphError, RunTimeout, UsageError
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors
from cfgraph.limits import reserve
from cfgraph.ops.opdef.op import is_functional, role_of
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.trace.events import Observer

DEFAULT_CASES = 4


@dataclass(frozen=True, slots=True)
class ComparisonRunOptions:
    """Options of a comparison: fetches, targets, tolerances, and the number of cases, one seed per
    case.

    The default fetches are the outputs of the first graph that also exist in the second; if there
    are none, common nodes with side effects run. The second graph starts from the variables of the
    first, except for those in `state_of_b`. The default tolerances depend on the type. Without
    `locate`, the first wrong node is not looked for.
    """

    setting: SampleOptions = field(default_factory=SampleOptions)
    fetches: tuple[str, ...] = ()
    targets: Sequence[str] = ()
    cases: int = DEFAULT_CASES
    seed: int = 0
    rtol: float | None = None
    atol: float | None = None
    state_of_b: State | None = None
    locate: bool = True


def compare_runs(a: Graph, b: Graph, options: ComparisonRunOptions | None = None) -> RunDiff:
    """Run two graphs at the same points and compare the results, up to the first difference.

    If the results of one run differ, and accesses to its variables have no defined order, several
    runs are compared in which they have one.

    Raises UsageError if there is nothing to compare or an input has no generator, and all errors of
    the first graph. A failure of the second graph is a difference, except for RunTimeout.
    """
    options = options or ComparisonRunOptions()
    fetches, missing = _common_fetches(a, b, options)
    if not fetches and not options.targets:
        options = replace(options, targets=_common_targets(a, b))
    options = replace(options, fetches=fetches)
    delta = _compare_cases(a, b, options)
    if delta:
        delta = _compare_independent_runs(a, b, options, delta)
    return replace(delta, missing=missing)


def _compare_cases(a: Graph, b: Graph, options: ComparisonRunOptions) -> RunDiff:
    """Compare one run of each graph per case."""
    delta = RunDiff(options.fetches)
    points: dict[Graph, EvaluationPoint] = {}
    for number in range(options.cases):
        case = _ComparisonCase(a, b, options, options.seed + number, points)
        delta = replace(case.compare(), cases=number + 1, lowered=delta.lowered or case.lowered)
        if delta:
            break
    return delta


def _compare_independent_runs(
    a: Graph, b: Graph, options: ComparisonRunOptions, joint: RunDiff
) -> RunDiff:
    """Compare runs whose values are determined, if those of the `joint` run are not."""
    fed = [a.tensor(name) for name in options.setting.feeds]
    divided = independent_runs(a, options.fetches, options.targets, fed)
    if len(divided.runs) == 1 and not divided.races:
        return joint
    if not divided.runs:
        message = f"two runs of the first graph may differ: {first_race(divided.races)}"
        hint = "order these accesses by control edges, or compare other tensors with --fetch"
        raise UsageError(message, hint=hint, code="CFG225")
    lowered = False
    for fetches, targets in divided.runs:
        delta = _compare_cases(a, b, replace(options, fetches=fetches, targets=targets))
        lowered = lowered or delta.lowered
        if delta:
            break
    else:
        compared = tuple(name for name in options.fetches if name not in divided.races)
        delta = RunDiff(compared, cases=options.cases)
    return replace(delta, lowered=lowered, races=divided.races)


def first_race(races: Mapping[str, Finding]) -> str:
    """The message of the first race, and the number of others."""
    messages = list(dict.fromkeys(race.message for race in races.values()))
    return messages[0] + (f" (and {len(messages) - 1} more)" if len(messages) > 1 else "")


def _required(graph: Graph, options: ComparisonRunOptions) -> list[Node]:
    """Return the nodes that must run."""
    nodes = [graph.tensor(name).node for name in dict.fromkeys(options.fetches)]
    return nodes + [graph[name.removeprefix("^")] for name in options.targets]


def _common_fetches(
    a: Graph, b: Graph, options: ComparisonRunOptions
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tensors to fetch, and the outputs that the second graph lacks."""
    if options.fetches or options.targets:
        return tuple(a.tensor(name).name for name in options.fetches), ()
    tensors = without_io_nodes(a, sinks(a))
    common = tuple(tensor.name for tensor in tensors if _has_output(b, tensor))
    # the index of a Merge that nothing reads is no result
    missing = (t for t in tensors if not (t.port == 1 and role_of(t.node) is Role.MERGE))
    return common, tuple(tensor.name for tensor in missing if tensor.name not in common)


def _has_output(graph: Graph, tensor: Output) -> bool:
    node = graph.nodes.get(tensor.node.name)
    if node is None:
        return False
    count = registry.output_count(node)
    return count is None or tensor.port < count


def _common_targets(a: Graph, b: Graph) -> tuple[str, ...]:
    """Return the common nodes with side effects. Raises UsageError if there are none."""
    targets = tuple(name for name in effect_targets(a, frames(a)) if name in b)
    if not targets:
        message = "the graphs have no outputs in common"
        raise UsageError(message, hint="name tensors with --fetch, or nodes with --target")
    return targets


class _ComparisonCase:
    """Comparison at one point; `points` are the last ones of each graph, whose plans are reused."""

    def __init__(
        self,
        a: Graph,
        b: Graph,
        options: ComparisonRunOptions,
        seed: int,
        points: dict[Graph, EvaluationPoint],
    ) -> None:
        self.a, self.b, self.options, self.seed, self.points = a, b, options, seed, points
        self.lowered = False

    def compare(self) -> RunDiff:
        """Run both graphs and compare."""
        point, values, floats = self.first_point()
        before = _variable_values(point)
        try:
            point_b = self.second_point(point, floats)
            values_b = self.run(point_b)
        except RunTimeout as error:
            error.message = f"the second graph: {error.message}"
            raise
        except CfgraphError as error:
            return self.difference(point, floats, (), error)
        pairs = zip(self.options.fetches, values, values_b, strict=True)
        initial = _initial_values(point_b) | _initial_values(point)
        gaps = tuple(self.gaps(pairs, before, _variable_values(point_b), initial))
        return self.difference(point, floats, gaps, None) if gaps else RunDiff(self.options.fetches)

    def run(self, point: EvaluationPoint, trace: Observer | None = None) -> list[Any]:
        """Return the fetched values of a point."""
        options = self.options
        return point.run(options.fetches, targets=options.targets, trace=trace)

    def run_first(self, point: EvaluationPoint) -> list[Any]:
        """Return the fetched values of the first graph, without lowering if it calls functions."""
        values = point.run_functional(self.options.fetches, self.options.targets)
        if values is not None:
            for name, value in zip(self.options.fetches, values, strict=True):
                reserve(np.asarray(value).nbytes, name)
            return values
        fed = {self.a.tensor(name) for name in point.feeds}
        self.lowered = is_functional(
            self.a, ancestors(self.a, _required(self.a, self.options), fed)
        )
        return self.run(point)

    def first_point(self) -> tuple[EvaluationPoint, list[Any], Any]:
        """Return a point at which the first graph runs, with finite values if possible."""
        return finite_point(
            lambda floats: self.sample(self.a, self.options.setting, floats), self.run_first
        )

    def second_point(self, point: EvaluationPoint, floats: Any) -> EvaluationPoint:
        """Return the same point for the second graph."""
        feeds = {name: value for name, value in point.feeds.items() if _has_tensor(self.b, name)}
        inits = [name for name in self.options.setting.inits if name.removeprefix("^") in self.b]
        state = self.options.state_of_b
        # tables, too, start as in the first graph
        initial = self.options.setting.state if state is None else state
        setting = replace(self.options.setting, feeds=feeds, inits=inits, state=initial)
        point_b = self.sample(self.b, setting, floats)
        cells = point_b.cells()
        for key, cell in point.cells().items():
            if key in cells and key not in (state or ()):
                point_b.set(cells[key], point.value(cell))
        return point_b

    def sample(self, graph: Graph, setting: SampleOptions, floats: Any) -> EvaluationPoint:
        """Return a point of a graph."""
        previous = self.points.get(graph)
        required = _required(graph, self.options)
        point = sample_point(graph, required, setting, self.seed, floats, previous)
        self.points[graph] = point
        return point

    def gaps(self, pairs: Any, before: Any, after: Any, initial: Any) -> Iterator[ValueMismatch]:
        """Yield the differences of fetches and variables."""
        rtol, atol = self.options.rtol, self.options.atol
        for name, a, b in pairs:
            message = difference_message(a, b, rtol, atol)
            if message is not None:
                yield ValueMismatch(name, message, a, b)
        # a variable of only one graph keeps its initial value in the other
        for key in dict.fromkeys((*before, *after)):
            a, b = before.get(key, initial.get(key)), after.get(key, initial.get(key))
            message = difference_message(a, b, rtol, atol)
            if message is not None:
                message = message.replace("dead", "without a value").replace("live", "with one")
                yield ValueMismatch(f"variable {key[1]}", message, a, b)

    def difference(
        self,
        point: EvaluationPoint,
        floats: Any,
        gaps: tuple[ValueMismatch, ...],
        failure: CfgraphError | None,
    ) -> RunDiff:
        """Return the difference, with the first wrong node."""
        inputs = dict(point.feeds)
        if not self.options.locate:
            return RunDiff(self.options.fetches, gaps=gaps, failure=failure, inputs=inputs)
        try:
            point_b = self.second_point(point, floats)
        except CfgraphError:
            first = None
        else:
            rtol, atol = self.options.rtol, self.options.atol
            first = first_divergence(point, point_b, self.run, rtol, atol)
        if first is None and failure is not None and failure.node in self.b:
            node = self.b[str(failure.node)]
            first = Divergence(node.name, node.op, failure.frame or "/", 0, failure.message)
        return RunDiff(self.options.fetches, gaps=gaps, failure=failure, first=first, inputs=inputs)


def _has_tensor(graph: Graph, name: str) -> bool:
    return name.rpartition(":")[0] in graph


def _variable_values(point: EvaluationPoint) -> dict[tuple[str, str], Any]:
    """Return the values of the variables after a run."""
    return {key: cell.value for key, cell in point.cells().items()}


def _initial_values(point: EvaluationPoint) -> dict[tuple[str, str], Any]:
    """Return the values of the variables at the start of a run."""
    return {key: point.value(cell) for key, cell in point.cells().items()}
