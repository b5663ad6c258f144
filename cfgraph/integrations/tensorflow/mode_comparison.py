"""Comparison of cfgraph with a mode of TensorFlow, or of two modes, by the values they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.summary import effect_targets, node_outputs, sinks, without_io_nodes
from cfgraph.comparison.differences import Divergence, RunDiff, ValueMismatch
from cfgraph.comparison.divergence import difference_message
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.sample_point import (
    EvaluationPoint,
    finite_point,
    sample_point,
)
from cfgraph.errors import CfgraphError, ExecutionError, Unsupported, UsageError
from cfgraph.integrations.tensorflow.mode_runs import ModeValues, run_mode
from cfgraph.integrations.tensorflow.modes import Mode
from cfgraph.integrations.tensorflow.processes import ModeFailure, ModePool
from cfgraph.ir.function_graph import OutputPorts
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.traversal import ancestors, dependents, topological_order
from cfgraph.limits import check_deadline
from cfgraph.ops.families.variables import Variable, VariableV2
from cfgraph.ops.opdef.op import is_a
from cfgraph.ops.opdef.random_streams import draws
from cfgraph.runtime.feeds.parse_feeds import is_same_array
from cfgraph.runtime.restore import SAVE_VARIABLES

# graphs of more nodes are bisected for the first node that differs
_MAX_SCANNED: Final = 48
# that may follow from each other
_MAX_TIES: Final = 8
_DEAD: Final = "live in A, dead in B, which returns an empty array"


class ModeFailed(ExecutionError):
    """A failure of TensorFlow; `signature` is equal for failures of the same kind."""

    kind: str = ""
    signature: tuple[str, ...] = ()


class ModeUnsupported(Unsupported):
    """A graph that a mode cannot run, or a converter not convert."""


def compare_modes(
    pool: ModePool,
    graph: Graph,
    mode: Mode,
    against: Mode | None = None,
    options: ComparisonRunOptions | None = None,
    without: Sequence[str] = (),
) -> RunDiff:
    """Compare a mode with cfgraph, or with the mode `against`, up to the first difference.

    Raises UsageError if there is nothing to compare or an input has no generator, and all errors of
    the first side. A failure of the mode is a difference. `without` are optimizers of Grappler
    that are disabled.
    """
    options = options or ComparisonRunOptions()
    fetches = options.fetches
    if not fetches and not options.targets:
        fetches = tuple(item.name for item in without_io_nodes(graph, sinks(graph)))
        if not fetches:
            options = replace(options, targets=tuple(effect_targets(graph, frames(graph))))
    fetches = tuple(graph.tensor(name).name for name in fetches if _has_value(graph, name))
    if not fetches and not options.targets:
        message = "the graph has no output with a value to compare"
        raise UsageError(message, hint="name tensors with --fetch, or nodes with --target")
    drawn = () if against is not None else _drawn_from_streams(graph, fetches)
    fetches = tuple(name for name in fetches if name not in drawn)
    if drawn and not fetches and not options.targets:
        raise Unsupported(_random_message(drawn[0]), node=graph.tensor(drawn[0]).node)
    options = replace(options, fetches=fetches)
    delta = RunDiff(fetches, notices=tuple(map(_random_finding, drawn)))
    previous: EvaluationPoint | None = None
    for number in range(options.cases):
        case = _ModeCase(
            pool, graph, mode, against, options, options.seed + number, previous, without
        )
        found = case.compare()
        notices = (*map(_missing_finding, case.missing), *delta.notices, *found.notices)
        distances = [item.distance for item in (delta, found) if item.distance is not None]
        delta = replace(
            found,
            cases=number + 1,
            targets=tuple(options.targets),
            notices=tuple(dict.fromkeys(notices)),
            distance=max(distances, default=None),
        )
        if delta:
            break
        previous = case.point
    return delta


def _drawn_from_streams(graph: Graph, fetches: Sequence[str]) -> tuple[str, ...]:
    """Return the fetches that depend on stateful random ops, which draw other numbers elsewhere."""
    nodes = {name: graph.tensor(name).node for name in fetches}
    drawing = [node for node in ancestors(graph, nodes.values()) if draws(node, graph.functions)]
    random = dependents(graph, drawing) if drawing else ()
    return tuple(name for name, node in nodes.items() if node in random)


def _random_message(name: str) -> str:
    return f"{name} depends on random numbers, which are others in TensorFlow"


def _random_finding(name: str) -> Finding:
    """Report a fetch whose values no two implementations have in common."""
    message = f"not compared: {_random_message(name)}"
    return Finding("CFG811", "note", message, split_tensor_name(name)[0])


def _missing_finding(name: str) -> Finding:
    """Report a fetch that TensorFlow, too, would wait for."""
    node = split_tensor_name(name)[0]
    return Finding("CFG707", "note", f"not compared: {name} has no value in cfgraph", node)


def _has_value(graph: Graph, name: str) -> bool:
    dtype = graph.tensor(name).dtype
    return dtype is not None and not dtype.is_handle and dtype.kind != "variant"


class _ModeCase:
    """Comparison of two sides at one point."""

    def __init__(
        self,
        pool: ModePool,
        graph: Graph,
        mode: Mode,
        against: Mode | None,
        options: ComparisonRunOptions,
        seed: int,
        previous: EvaluationPoint | None,
        without: Sequence[str] = (),
    ) -> None:
        self.without = without
        self.pool, self.graph, self.mode, self.against = pool, graph, mode, against
        self.options, self.seed = options, seed
        self.ports = OutputPorts(graph.functions)
        self.point, self.expected = self.first_point(previous)

    def first_point(self, previous: EvaluationPoint | None) -> tuple[EvaluationPoint, list[Any]]:
        """Return a point at which cfgraph runs the graph, with finite values if possible."""
        options = self.options
        roots = [self.graph.tensor(name).node for name in options.fetches]
        roots += [self.graph[name.removeprefix("^")] for name in options.targets]
        _reject_references(self.graph, roots)
        point, values, _ = finite_point(
            lambda floats: sample_point(
                self.graph, roots, options.setting, self.seed, floats, previous
            ),
            lambda point: point.run(options.fetches, targets=options.targets, allow_missing=True),
        )
        self.inputs = {**point.feeds, **_variable_values(point, roots)}
        pairs = zip(options.fetches, values, strict=True)
        self.missing = [name for name, value in pairs if value is None and point.lacks_value(name)]
        if self.missing and len(self.missing) == len(options.fetches):
            point.run(self.missing)  # which raises the error of one of them
        return point, values

    def compare(self) -> RunDiff:
        """Run both sides and compare."""
        pairs = zip(self.options.fetches, self.expected, strict=True)
        expected = ModeValues({name: value for name, value in pairs if name not in self.missing})
        fetches, targets = tuple(expected.values), self.options.targets
        if self.against is not None:
            expected = self.run(self.against, fetches, targets)
            if expected.failure is not None:
                raise _mode_error(self.against, expected.failure)
        actual = self.run(self.mode, fetches, targets)
        inputs = self.inputs
        if actual.failure is not None:
            error = _mode_error(self.mode, actual.failure)
            return RunDiff(fetches, failure=error, inputs=inputs)
        ties = [(gap, self.tie(gap.what)) for gap in self.gaps(expected, actual)]
        gaps = tuple(gap for gap, tie in ties if tie is None)
        notices = tuple(tie for _, tie in ties if tie is not None)
        if not gaps:
            return RunDiff(fetches, notices=notices, distance=_distance(expected, actual))
        first = self.first_divergence(gaps[0].what) if self.options.locate else None
        return RunDiff(fetches, gaps=gaps, first=first, inputs=inputs, notices=notices)

    def run(
        self,
        mode: Mode,
        fetches: Sequence[str],
        targets: Sequence[str] = (),
        replaced: Mapping[str, Any] | None = None,
    ) -> ModeValues:
        """Run a mode at the point, with some tensors replaced."""
        feeds = {**self.inputs, **(replaced or {})}
        return run_mode(self.pool, mode, self.graph, fetches, feeds, targets, self.without)

    def tie(self, name: str) -> Finding | None:
        """Report the difference of a tensor if it is one of rounding, else return None.

        Each node that differs then computes what cfgraph does from its inputs in the mode, and
        these agree within the tolerance: a comparison of almost equal values may go either way.
        """
        tensors = self.tensors_before(name)
        actual = self.run(self.mode, tensors)
        replaced: dict[str, Any] = {}
        first: Finding | None = None
        for _ in range(_MAX_TIES):
            expected = self.expected_values(tensors, replaced)
            gaps = self.gaps(expected, actual)
            if not gaps:  # nothing is known if cfgraph fails with these values
                return first if expected.values else None
            found = self.tie_at(gaps[0], expected, actual)
            if found is None:
                return None
            first = first or found
            replaced[gaps[0].what] = gaps[0].after
        return None

    def tie_at(
        self, gap: ValueMismatch, expected: ModeValues, actual: ModeValues
    ) -> Finding | None:
        """Report a node that differs if the inputs of the mode explain its value."""
        node = self.graph.tensor(gap.what).node
        names = [tensor.name for tensor in node.inputs if tensor.name in actual.values]
        rounded = {
            name: actual.values[name]
            for name in names
            if not is_same_array(*map(np.asarray, (expected.values[name], actual.values[name])))
        }
        if not rounded or np.shape(gap.before) != np.shape(gap.after):
            return None
        try:
            (value,) = self.point.run([gap.what], rounded)
        except CfgraphError:
            check_deadline()
            return None
        if difference_message(value, gap.after, self.options.rtol, self.options.atol) is not None:
            return None
        distance = max(_ulps(expected.values[name], value) for name, value in rounded.items())
        message = (
            f"{gap.what}: {gap.message}, since the inputs of {node.op} agree within the tolerance "
            f"and differ by {distance:.0f} ulp: a difference of rounding, and no wrong node"
        )
        return Finding("CFG809", "note", message, node.name)

    def gaps(self, expected: ModeValues, actual: ModeValues) -> list[ValueMismatch]:
        """Return the tensors that differ."""
        gaps = []
        for name, value in expected.values.items():
            if name in actual.values:
                after = actual.values[name]
                is_dead = value is None or name in expected.dead
                if is_dead and name in (actual.dead | actual.empty):
                    continue
                message = difference_message(value, after, self.options.rtol, self.options.atol)
                if message is not None and name in actual.dead:
                    message = _DEAD
                if message is not None:
                    gaps.append(ValueMismatch(name, message, value, after))
        return gaps

    def first_divergence(self, name: str) -> Divergence | None:
        """Return the first node before a wrong tensor, outside of loops, whose value differs.

        All of them are fetched in one run; if the fault disappears then, the graph is cut at one
        tensor after the other.
        """
        tensors = self.tensors_before(name)
        expected = self.expected_values(tensors)
        together = self.run(self.mode, list(expected.values))
        gaps = self.gaps(expected, together)
        if gaps:
            return self.divergence(gaps[0])
        return self.first_cut(tensors, expected)

    def tensors_before(self, name: str) -> list[str]:
        """Return the tensors that a tensor depends on, in topological order, then itself."""
        graph_frames = frames(self.graph)
        fed = {self.graph.tensor(item) for item in self.inputs}
        node = self.graph.tensor(name).node
        order = topological_order(ancestors(self.graph, [node], fed)).nodes
        return [
            tensor.name
            for item in order
            if graph_frames.of_outputs[item] is graph_frames.root
            for tensor in node_outputs(item, self.ports)
            if _has_value(self.graph, tensor.name) and tensor not in fed
        ]

    def expected_values(
        self, tensors: Sequence[str], replaced: Mapping[str, Any] | None = None
    ) -> ModeValues:
        """Return the values of the first side, none if it cannot fetch them all."""
        if self.against is not None:
            return self.run(self.against, tensors, replaced=replaced)
        try:
            return ModeValues(dict(zip(tensors, self.point.run(tensors, replaced), strict=True)))
        except CfgraphError:
            check_deadline()
            return ModeValues()

    def first_cut(self, tensors: Sequence[str], expected: ModeValues) -> Divergence | None:
        """Return the first tensor that differs if it alone is fetched."""
        names = [name for name in tensors if name in expected.values]
        low, high = 0, len(names)
        while high - low > _MAX_SCANNED:
            middle = (low + high) // 2
            if self.cut_gap(names[middle], expected):
                high = middle + 1
            else:
                low = middle + 1
        gaps = (self.cut_gap(name, expected) for name in names[low:high])
        return next((self.divergence(gap) for gap in gaps if gap), None)

    def cut_gap(self, name: str, expected: ModeValues) -> ValueMismatch | None:
        """Return the difference of a tensor in a run that fetches it alone."""
        check_deadline()
        gaps = self.gaps(expected, self.run(self.mode, [name]))
        return gaps[0] if gaps else None

    def divergence(self, gap: ValueMismatch) -> Divergence:
        """Describe the first node that differs."""
        tensor = self.graph.tensor(gap.what)
        node = tensor.node
        return Divergence(
            node.name, node.op, "/", 0, gap.message, tensor.port, gap.before, gap.after
        )


def _distance(expected: ModeValues, actual: ModeValues) -> float | None:
    """Return the largest finite distance of the numbers of two sides, or None without numbers."""
    pairs = [(value, actual.values.get(name)) for name, value in expected.values.items()]
    arrays = [(np.asarray(a), np.asarray(b)) for a, b in pairs if a is not None and b is not None]
    numbers = [(a, b) for a, b in arrays if a.dtype.kind in "iufc" and a.shape == b.shape]
    with np.errstate(all="ignore"):
        wide = [np.abs(a.astype(np.complex128) - b.astype(np.complex128)) for a, b in numbers]
    largest = [float(np.max(np.where(np.isfinite(gap), gap, 0), initial=0)) for gap in wide]
    return max(largest, default=None)


def _ulps(a: Any, b: Any) -> float:
    """Return the largest distance of two arrays, in units of the last place."""
    wide = np.maximum(np.abs(a), np.abs(b))
    with np.errstate(all="ignore"):
        gaps = np.abs(np.subtract(a, b)) / np.spacing(wide)
    return float(np.max(np.where(np.isfinite(gaps), gaps, 0), initial=0))


_FREEZE_HINT: Final = (
    f"make the variables constants first: {SAVE_VARIABLES}, "
    "then cfgraph freeze GRAPH --variables ck -o frozen.pb"
)


def _reject_references(graph: Graph, roots: Sequence[Node]) -> None:
    """Raise Unsupported for a variable of references, which no mode accepts from outside."""
    node = next((node for node in ancestors(graph, roots) if is_a(node, VariableV2)), None)
    if node is not None:
        message = f"{node.name} is a variable of references, and modes are compared without them"
        raise Unsupported(message, node=node, hint=_FREEZE_HINT)


def _variable_values(point: EvaluationPoint, roots: Sequence[Node]) -> dict[str, Any]:
    """Return the values of variables at the start, by the handles that a mode receives for them.

    Raises Unsupported for two handles of a variable, and for one without a value.
    """
    found: dict[Variable, tuple[str, Any]] = {}
    for node, cell in point.variables(roots).items():
        value = point.value(cell)
        if cell in found or value is None:
            reason = "has no value" if value is None else "has several handles"
            message = f"the variable {node.name} {reason}, and modes need one for each"
            raise Unsupported(message, node=node, hint=_FREEZE_HINT)
        found[cell] = node.output().name, value
    return dict(found.values())


def _mode_error(mode: Mode, failure: ModeFailure) -> ModeFailed:
    """Return a failure of TensorFlow as an error.

    Raises Unsupported if the mode cannot run the graph.
    """
    reason = f"{failure.error}: {failure.reason}" if failure.error else failure.reason
    if failure.kind == "unsupported":
        causes = (text for pattern, text in _CAUSES.items() if pattern in failure.message)
        cause = "".join(f"; {text}" for text in causes)
        raise ModeUnsupported(f"{mode.title} cannot run the graph: {reason}{cause}")
    message = f"{mode.title} {_FAILURE_VERBS[failure.kind]} {reason}"
    error = ModeFailed(message, hint="\n".join(failure.log) or None)
    error.kind, error.signature = failure.kind, failure.signature
    return error


# why the graph of a function does not run where the function does
_CAUSES: Final = {
    "requires a fixed tensor list size": "lists of a gradient have a size only in the graph of a "
    "function that is traced with jit_compile=True: write that one",
    "Graph does not contain node": "the converter removes a fetched node: fetch others",
}
_FAILURE_VERBS: Final = {
    "error": "reports",
    "signal": "is ended by",
    "exit": "ends with",
    "timeout": "hangs:",
    "garbage": "answers with garbage:",
    "memory": "runs",
}
