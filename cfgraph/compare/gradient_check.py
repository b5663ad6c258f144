"""Check of gradients in a graph against finite differences at many points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cfgraph.analysis.gradient_paths import stopping_tensors
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.reachability import ancestors
from cfgraph.compare.evaluation_point import EvaluationPoint
from cfgraph.compare.finite_differences import (
    SINGLE_PRECISION,
    Accuracy,
    SlopeComparison,
    compare_with_slopes,
    weighted_objective,
    worst_comparisons,
)
from cfgraph.compare.sample_point import (
    NORMAL_FLOATS,
    POSITIVE_FLOATS,
    DimensionSizes,
    SampleOptions,
    sample_point,
)
from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Graph, Output
from cfgraph.passes.derivatives import Derivative
from cfgraph.runtime.state import State

_FEED_HINT: Final = "feed inputs that suit the graph: --feed NAME=VALUE"


@dataclass(frozen=True, slots=True)
class GradientCheckOptions:
    """Where to compare: at `feeds`, and random values for what is not fed, `cases` times.

    `state` has values of variables, and `inits` are nodes that run before. At most `most` elements
    of an x are moved one by one; `size` stands for sizes that are not known. `narrow` names nodes
    that do not compute in 64 bits.
    """

    feeds: Mapping[str, Any] = field(default_factory=dict)
    inits: Sequence[str] = ()
    cases: int = 1
    seed: int = 0
    size: int = 2
    most: int = 12
    rtol: float | None = None
    narrow: Iterable[str] = ()
    max_iterations: int | None = 10_000
    timeout: float | None = None
    state: State | None = None


def check_gradients(
    graph: Graph, found: Sequence[Derivative], options: GradientCheckOptions | None = None
) -> list[dict[str, SlopeComparison]]:
    """Compare the gradients of each order with finite differences; by x, the worst of all cases.

    The graph should compute in double precision (`passes.widen`). Every run begins with the same
    variables; those that nothing wrote to get random values. Where gradients are stopped, the value
    stays as it is; within loops that cannot be done, and an x that differs because of it is
    skipped, as is one whose gradient is None, or dead at all points, as it is where every y is.

    Raises ExecutionError where a run fails or a y is not finite at any point that was tried,
    UsageError for inputs that nobody can draw.
    """
    options = options or GradientCheckOptions()
    held = [_stopped_tensors(graph, item) for item in found]
    cases: list[list[dict[str, SlopeComparison]]] = []
    for case in range(options.cases):
        point = _finite_point(graph, found, options, options.seed + case)
        checks = [
            _GradientCheck(graph, point, item, keep, options)
            for item, keep in zip(found, held, strict=True)
        ]
        cases.append([check.compare() for check in checks])
    return [worst_comparisons(rows) for rows in zip(*cases, strict=True)]


def _stopped_tensors(graph: Graph, item: Derivative) -> tuple[list[Output], list[Output]]:
    """The tensors at which gradients stop: those that can be held still, and those in loops."""
    kept = _stopped_between(graph, item, item.xs)
    root = frames(graph)
    outside = [tensor for tensor in kept if root.of_outputs[tensor.node] is root.root]
    return outside, [tensor for tensor in kept if tensor not in outside]


def _stopped_between(graph: Graph, item: Derivative, xs: Sequence[str]) -> list[Output]:
    tensors = (list(map(graph.tensor, names)) for names in (xs, item.ys, item.stops))
    return stopping_tensors(*tensors)


def _finite_point(
    graph: Graph, found: Sequence[Derivative], options: GradientCheckOptions, seed: int
) -> EvaluationPoint:
    """A point at which all ys are finite: with normal floats, or else with positive ones."""
    names = list(dict.fromkeys(y for item in found for y in item.ys))
    wanted = list(dict.fromkeys(graph.tensor(name).node for name in _fetched_tensors(found)))
    setting = SampleOptions(
        options.feeds,
        options.inits,
        DimensionSizes(options.size),
        options.max_iterations,
        options.timeout,
        options.state,
    )
    failure: ExecutionError | None = None
    for floats in (NORMAL_FLOATS, POSITIVE_FLOATS):
        point = sample_point(graph, wanted, setting, seed, floats)
        try:
            values = point.run(names)
        except ExecutionError as error:
            failure = failure or error
            continue
        if all(value is None or np.all(np.isfinite(value)) for value in values):
            return point
    if failure is not None:
        failure.hint = failure.hint or _FEED_HINT
        raise failure
    bad = next(n for n, v in zip(names, values, strict=True) if not np.all(np.isfinite(v)))
    tensor = graph.tensor(bad)
    message = f"{tensor.name} is not finite at the inputs that were tried"
    raise ExecutionError(message, node=tensor.node, hint=_FEED_HINT)


def _fetched_tensors(found: Sequence[Derivative]) -> Iterator[str]:
    """All tensors whose values are asked for."""
    for item in found:
        yield from (*item.ys, *item.xs)
        yield from (name for name in item.names if name is not None)
        yield from (weight for weight in item.grad_ys if isinstance(weight, str))


class _GradientCheck:
    """The gradients of one order at one point."""

    def __init__(
        self,
        graph: Graph,
        point: EvaluationPoint,
        item: Derivative,
        held: tuple[Sequence[Output], Sequence[Output]],
        options: GradientCheckOptions,
    ) -> None:
        self.graph, self.point, self.item, self.options = graph, point, item, options
        self.cells = point.variables(graph.tensor(x).node for x in item.xs)
        self.loose = set(held[1])
        names = [tensor.name for tensor in held[0]]
        self.held = {n: v for n, v in zip(names, self._run(names), strict=True) if v is not None}
        ys = self._run(self.item.ys)
        self.dead = all(y is None for y in ys)
        self.weights = self._weights(ys)
        self.accuracy = self._accuracy()

    def compare(self) -> dict[str, SlopeComparison]:
        """The comparison of each x."""
        wanted = [name for name in self.item.names if name is not None]
        values = dict(zip(wanted, self._run(wanted), strict=True))
        pairs = zip(self.item.xs, self.item.names, strict=True)
        return {x: self._compare(x, name, values) for x, name in pairs}

    def _compare(self, x: str, name: str | None, values: Mapping[str, Any]) -> SlopeComparison:
        tensor = self.graph.tensor(x)
        if name is None:
            return SlopeComparison(x, skipped="no y depends on it")
        if self.dead:
            return SlopeComparison(x, skipped="every y is dead here")
        if values[name] is None:
            return SlopeComparison(x, skipped="its gradient is dead here")
        if tensor.node in self.cells:
            at = self.point.value(self.cells[tensor.node])
        elif tensor.dtype is not None and tensor.dtype.kind == "resource" and self._fed(tensor):
            at = self.point.feeds[tensor.name]
        elif tensor.dtype is not None and tensor.dtype.is_object:
            return SlopeComparison(x, skipped=f"a {tensor.dtype} cannot be moved a little")
        else:
            (at,) = self._run([x])
        found = compare_with_slopes(
            lambda moved: self._objective({x: moved}),
            at,
            values[name],
            name=x,
            most=self.options.most,
            seed=self.options.seed,
            accuracy=self.accuracy,
        )
        return found if found.agrees else self._excused(x, found)

    def _fed(self, handle: Output) -> bool:
        """True for the handle of a variable that is fed by its value."""
        return isinstance(self.point.feeds.get(handle.name), np.ndarray | np.generic)

    def _excused(self, x: str, found: SlopeComparison) -> SlopeComparison:
        """A difference is none where gradients stop within a loop, on the way from this x."""
        between = _stopped_between(self.graph, self.item, [x]) if self.loose else []
        loose = next((tensor for tensor in between if tensor in self.loose), None)
        if loose is None:
            return found
        return SlopeComparison(x, skipped=f"gradients stop in a loop, at {loose.name}")

    def _objective(self, moved: Mapping[str, Any]) -> float:
        return weighted_objective(
            self.weights, self.point.run(self.item.ys, {**self.held, **moved})
        )

    def _run(self, names: Sequence[str]) -> list[Any]:
        return self.point.run(names) if names else []

    def _weights(self, ys: Sequence[Any]) -> list[Any]:
        """What each y is weighed with: a tensor's value here stays as it is."""
        given = dict.fromkeys(w for w in self.item.grad_ys if isinstance(w, str))
        values = dict(zip(given, self._run(list(given)), strict=True))
        return [
            values[w] if isinstance(w, str) else 1 if w is None or y is None else np.asarray(w)
            for y, w in zip(ys, self.item.grad_ys, strict=True)
        ]

    def _accuracy(self) -> Accuracy:
        narrow = set(self.options.narrow)
        nodes = ancestors(self.graph, [self.graph.tensor(y).node for y in self.item.ys])
        single = any(node.name in narrow for node in nodes)
        found = Accuracy(*SINGLE_PRECISION) if single else Accuracy()
        rtol = self.options.rtol
        return found if rtol is None else Accuracy(found.step, rtol, found.unit)
