"""Check of gradients in a graph against finite differences at many points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cfgraph.analysis.gradient_paths import stopping_tensors
from cfgraph.analysis.loops.frames import frames
from cfgraph.comparison.finite_differences import (
    SINGLE_PRECISION,
    Accuracy,
    SlopeComparison,
    compare_with_slopes,
    weighted_objective,
    worst_comparisons,
)
from cfgraph.comparison.sample_point import (
    FEED_HINT,
    NORMAL_FLOATS,
    POSITIVE_FLOATS,
    DimensionSizes,
    EvaluationPoint,
    SampleOptions,
    sample_point,
)
from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.derivatives import Derivative
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.io_policy import IoPolicy


@dataclass(frozen=True, slots=True)
class GradientCheckOptions:
    """Points of the comparison: `cases` times random values for all inputs without feeds.

    `state` has values of variables, and `inits` are nodes that run first. At most `most` elements
    of an x are moved individually; `size` replaces unknown sizes. `narrow` names nodes that do not
    compute in 64 bits. `io` decides what the graph may do with files.
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
    io: IoPolicy = field(default_factory=IoPolicy)


_NO_GRADIENT: Final = "it has no gradient"


def check_gradients(
    graph: Graph, derivatives: Sequence[Derivative], options: GradientCheckOptions | None = None
) -> list[dict[str, SlopeComparison]]:
    """Compare the gradients of each order with finite differences; return the worst case per x.

    The graph should compute in double precision (`passes.widen`). Every run starts from the same
    variables; uninitialized ones get random values. Tensors at which gradients stop are held at
    their values. This is not possible in loops, so an x that differs because of it is skipped, as
    is an x whose gradient is None or dead at all points.

    Raises ExecutionError if a run fails or a y is not finite at any tried point, UsageError for an
    input whose type has no generator.
    """
    options = options or GradientCheckOptions()
    if not any(name for derivative in derivatives for name in derivative.names):
        return [{x: SlopeComparison(x, skipped=_NO_GRADIENT) for x in d.xs} for d in derivatives]
    stopped = [_stopped_tensors(graph, derivative) for derivative in derivatives]
    cases: list[list[dict[str, SlopeComparison]]] = []
    point: EvaluationPoint | None = None
    for case in range(options.cases):
        point = _finite_point(graph, derivatives, options, options.seed + case, point)
        checks = [
            _GradientCheck(graph, point, derivative, tensors, options)
            for derivative, tensors in zip(derivatives, stopped, strict=True)
        ]
        cases.append([check.compare() for check in checks])
    return [worst_comparisons(rows) for rows in zip(*cases, strict=True)]


def _stopped_tensors(graph: Graph, derivative: Derivative) -> tuple[list[Output], list[Output]]:
    """Return the tensors at which gradients stop: outside of loops, and in loops."""
    stopped = _stopped_between(graph, derivative, derivative.xs)
    loop_frames = frames(graph)
    root = loop_frames.root
    outside = [tensor for tensor in stopped if loop_frames.of_outputs[tensor.node] is root]
    return outside, [tensor for tensor in stopped if tensor not in outside]


def _stopped_between(graph: Graph, derivative: Derivative, xs: Sequence[str]) -> list[Output]:
    tensors = (list(map(graph.tensor, names)) for names in (xs, derivative.ys, derivative.stops))
    return stopping_tensors(*tensors)


def _finite_point(
    graph: Graph,
    derivatives: Sequence[Derivative],
    options: GradientCheckOptions,
    seed: int,
    previous: EvaluationPoint | None,
) -> EvaluationPoint:
    """Return a point at which all ys are finite, with normal or else positive floats.

    The plans of the `previous` point are reused.
    """
    names = list(dict.fromkeys(y for derivative in derivatives for y in derivative.ys))
    fetched = _fetched_tensors(derivatives)
    required = list(dict.fromkeys(graph.tensor(name).node for name in fetched))
    setting = SampleOptions(
        options.feeds,
        options.inits,
        DimensionSizes(options.size),
        options.max_iterations,
        options.timeout,
        options.state,
        options.io,
    )
    failure: ExecutionError | None = None
    for floats in (NORMAL_FLOATS, POSITIVE_FLOATS):
        point = previous = sample_point(graph, required, setting, seed, floats, previous)
        try:
            values = point.run(names)
        except ExecutionError as error:
            failure = failure or error
            continue
        if all(value is None or np.all(np.isfinite(value)) for value in values):
            return point
    if failure is not None:
        failure.hint = failure.hint or FEED_HINT
        raise failure
    bad = next(n for n, v in zip(names, values, strict=True) if not np.all(np.isfinite(v)))
    tensor = graph.tensor(bad)
    message = f"{tensor.name} is not finite at any of the tried inputs"
    raise ExecutionError(message, node=tensor.node, hint=FEED_HINT)


def _fetched_tensors(derivatives: Sequence[Derivative]) -> Iterator[str]:
    """Yield all tensors whose values the check needs."""
    for derivative in derivatives:
        yield from (*derivative.ys, *derivative.xs)
        yield from (name for name in derivative.names if name is not None)
        yield from (weight for weight in derivative.grad_ys if isinstance(weight, str))


class _GradientCheck:
    """Check of the gradients of one order at one point."""

    def __init__(
        self,
        graph: Graph,
        point: EvaluationPoint,
        derivative: Derivative,
        stopped: tuple[Sequence[Output], Sequence[Output]],
        options: GradientCheckOptions,
    ) -> None:
        self.graph, self.point, self.derivative, self.options = graph, point, derivative, options
        self.cells = point.variables(graph.tensor(x).node for x in derivative.xs)
        self.unheld = set(stopped[1])
        names = [tensor.name for tensor in stopped[0]]
        self.held = {n: v for n, v in zip(names, self._run(names), strict=True) if v is not None}
        ys = self._run(self.derivative.ys)
        self.dead = all(y is None for y in ys)
        self.weights = self._weights(ys)
        self.accuracy = self._accuracy()

    def compare(self) -> dict[str, SlopeComparison]:
        """Compare the gradient of each x."""
        gradients = [name for name in self.derivative.names if name is not None]
        values = dict(zip(gradients, self._run(gradients), strict=True))
        pairs = zip(self.derivative.xs, self.derivative.names, strict=True)
        return {x: self._compare(x, name, values) for x, name in pairs}

    def _compare(self, x: str, name: str | None, values: Mapping[str, Any]) -> SlopeComparison:
        tensor = self.graph.tensor(x)
        if name is None:
            return SlopeComparison(x, skipped=_NO_GRADIENT)
        if self.dead:
            return SlopeComparison(x, skipped="every y is dead")
        if values[name] is None:
            return SlopeComparison(x, skipped="its gradient is dead")
        if tensor.node in self.cells:
            value = self.point.value(self.cells[tensor.node])
        elif (
            tensor.dtype is not None
            and tensor.dtype.kind == "resource"
            and self._is_fed_by_value(tensor)
        ):
            value = self.point.feeds[tensor.name]
        elif tensor.dtype is not None and tensor.dtype.is_object:
            return SlopeComparison(x, skipped=f"{tensor.dtype} values have no finite differences")
        else:
            (value,) = self._run([x])
        comparison = compare_with_slopes(
            lambda moved: self._objective({x: moved}),
            value,
            values[name],
            name=x,
            most=self.options.most,
            seed=self.options.seed,
            accuracy=self.accuracy,
        )
        return comparison if comparison.agrees else self._without_stops(x, comparison)

    def _is_fed_by_value(self, handle: Output) -> bool:
        """Return true for the handle of a variable whose value is fed."""
        return isinstance(self.point.feeds.get(handle.name), np.ndarray | np.generic)

    def _without_stops(self, x: str, comparison: SlopeComparison) -> SlopeComparison:
        """Skip an x with a difference if gradients stop in a loop on its paths."""
        between = _stopped_between(self.graph, self.derivative, [x]) if self.unheld else []
        stopped = next((tensor for tensor in between if tensor in self.unheld), None)
        if stopped is None:
            return comparison
        return SlopeComparison(x, skipped=f"gradients stop in a loop, at {stopped.name}")

    def _objective(self, moved: Mapping[str, Any]) -> float:
        return weighted_objective(
            self.weights, self.point.run(self.derivative.ys, {**self.held, **moved})
        )

    def _run(self, names: Sequence[str]) -> list[Any]:
        return self.point.run(names) if names else []

    def _weights(self, ys: Sequence[Any]) -> list[Any]:
        """Return the upstream gradient of each y; tensors are replaced by their values."""
        tensors = dict.fromkeys(w for w in self.derivative.grad_ys if isinstance(w, str))
        values = dict(zip(tensors, self._run(list(tensors)), strict=True))
        return [
            values[w] if isinstance(w, str) else 1 if w is None or y is None else np.asarray(w)
            for y, w in zip(ys, self.derivative.grad_ys, strict=True)
        ]

    def _accuracy(self) -> Accuracy:
        narrow = set(self.options.narrow)
        nodes = ancestors(self.graph, [self.graph.tensor(y).node for y in self.derivative.ys])
        single = any(node.name in narrow for node in nodes)
        accuracy = Accuracy(*SINGLE_PRECISION) if single else Accuracy()
        rtol = self.options.rtol
        return accuracy if rtol is None else Accuracy(accuracy.step, rtol, accuracy.unit)
