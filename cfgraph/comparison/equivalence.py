"""Equivalence of two graphs by running both at the same points, with the first fault located.

Values and deadness of the fetches are compared, and the variables after the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.analysis.feeds_and_fetches import declared_type, must_be_fed
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.summary import effect_targets, sinks, without_io_nodes
from cfgraph.analysis.tables import StaticTable, required_tables, table_initializers
from cfgraph.comparison.differences import Divergence, RunDiff, ValueMismatch
from cfgraph.comparison.divergence import difference_message, first_divergence
from cfgraph.comparison.independent_runs import independent_runs
from cfgraph.comparison.pairing import RunSide, pair_inputs, pairs_finding
from cfgraph.comparison.random_pairs import pair_streams
from cfgraph.comparison.sample_point import (
    EvaluationPoint,
    SampleOptions,
    finite_point,
    sample_point,
)
from cfgraph.comparison.variable_pairs import (
    OwnValues,
    VariableKey,
    VariableValues,
    borrowed_findings,
    borrowed_table_findings,
    constant_gaps,
    pair_unset,
    pair_variables,
    read_variables,
)
from cfgraph.errors import CfgraphError, RunTimeout, UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import first_names
from cfgraph.ir.node import node_name, split_tensor_name
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ir.traversal import ancestors
from cfgraph.limits import reserve
from cfgraph.ops.opdef.op import is_functional, role_of
from cfgraph.ops.opdef.resources import TABLES
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.trace.events import Observer

DEFAULT_CASES = 4
# outputs that an error lists
_MAX_LISTED: Final = 4


@dataclass(frozen=True, slots=True)
class ComparisonRunOptions:
    """Options of a comparison: fetches, targets, tolerances, and the number of cases, one seed per
    case.

    The default fetches are the outputs of the first graph that also exist in the second; if there
    are none, common nodes with side effects run. `missing` are outputs that the second graph lacks,
    and `dropped` nodes that it may lack if they may be dead.
    `names_of_b` are the names in the second graph of tensors that have other names there, and
    `feeds_of_b` feeds of the second graph alone. The second graph starts from the variables of the
    first, except for those in `state_of_b`. The default tolerances depend on the type. Without
    `locate`, the first wrong node is not looked for, and without `compares_variables` the variables
    may differ after a run.

    With `independent`, neither graph need be written from the other: inputs are paired by type and
    shape if their names differ, an unpaired one is an error, and values that one graph lends to the
    other are reported.
    """

    setting: SampleOptions = field(default_factory=SampleOptions)
    fetches: tuple[str, ...] = ()
    targets: Sequence[str] = ()
    missing: tuple[str, ...] = ()
    dropped: Collection[str] = ()
    notices: tuple[Finding, ...] = ()
    names_of_b: Mapping[str, str] = field(default_factory=dict)
    feeds_of_b: Mapping[str, Any] = field(default_factory=dict)
    cases: int = DEFAULT_CASES
    seed: int = 0
    rtol: float | None = None
    atol: float | None = None
    state_of_b: State | None = None
    locate: bool = True
    independent: bool = False
    compares_variables: bool = True

    def name_of_b(self, name: str) -> str:
        """Return the name in the second graph of a tensor of the first."""
        return self.names_of_b.get(name, name)


def compare_runs(a: Graph, b: Graph, options: ComparisonRunOptions | None = None) -> RunDiff:
    """Run two graphs at the same points and compare the results, up to the first difference.

    If the results of one run differ, and accesses to its variables have no defined order, several
    runs are compared in which they have one.

    Raises UsageError if there is nothing to compare, an input has no generator, or one of an
    independent graph has no counterpart, and all errors of the first graph. A failure of the second
    graph is a difference, except for RunTimeout.
    """
    options = options or ComparisonRunOptions()
    is_named = bool(options.fetches or options.targets)
    options = existing_in_b(a, b, options)
    if not options.fetches and not options.targets:
        if is_named:
            missing = options.missing
            return RunDiff((), missing=missing, notices=options.notices, graphs=(a, b))
        options = replace(options, targets=_common_targets(a, b))
    paired = _paired_inputs(a, b, options) if options.independent else {}
    options = replace(options, names_of_b={**options.names_of_b, **paired})
    options = _with_feeds_of_b(a, options)
    delta = _compare_cases(a, b, options)
    if delta:
        delta = _compare_independent_runs(a, b, options, delta)
    if delta and options.independent:
        delta = _compare_with_streams(a, b, options, delta)
    if not delta and options.independent:
        gaps = constant_gaps(a, b, _required(a, options), options.rtol, options.atol)
        delta = replace(delta, gaps=tuple(gaps))
    notices = (*delta.notices, *options.notices, *pairs_finding("input", paired))
    renamed = {name: other for name, other in options.names_of_b.items() if name != other}
    graphs = a, b
    return replace(delta, missing=options.missing, notices=notices, paired=renamed, graphs=graphs)


def _compare_cases(a: Graph, b: Graph, options: ComparisonRunOptions) -> RunDiff:
    """Compare one run of each graph per case."""
    delta = RunDiff(options.fetches, no_value=options.fetches)
    points: dict[Graph, EvaluationPoint] = {}
    for number in range(options.cases):
        case = _ComparisonCase(a, b, options, options.seed + number, points)
        found = case.compare()
        delta = replace(
            found,
            cases=number + 1,
            lowered=delta.lowered or case.lowered,
            no_value=tuple(name for name in found.no_value if name in delta.no_value),
            notices=tuple(case.notices),
        )
        if delta:
            break
    return delta


def _paired_inputs(a: Graph, b: Graph, options: ComparisonRunOptions) -> dict[str, str]:
    """Return the inputs of the second graph that have other names. Raises UsageError."""
    first = RunSide(a, [*_required(a, options), *_inits(a, options)], options.setting.feeds)
    shared = [name for name in map(options.name_of_b, first.feeds) if has_output(b, name)]
    required_of_b = [*_required(b, options, b=True), *_inits(b, options)]
    second = RunSide(b, required_of_b, [*options.feeds_of_b, *shared])
    return pair_inputs(first, second, options.names_of_b)


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
    lowered, no_value = False, list[str]()
    for fetches, targets in divided.runs:
        delta = _compare_cases(a, b, replace(options, fetches=fetches, targets=targets))
        lowered = lowered or delta.lowered
        no_value += delta.no_value
        if delta:
            break
    else:
        compared = tuple(name for name in options.fetches if name not in divided.races)
        delta = RunDiff(compared, cases=options.cases, no_value=tuple(no_value))
    return replace(delta, lowered=lowered, races=divided.races, notices=joint.notices)


def _compare_with_streams(
    a: Graph, b: Graph, options: ComparisonRunOptions, first: RunDiff
) -> RunDiff:
    """Compare runs that draw the same random numbers, if those of other names differ."""
    fetches = [(name, options.name_of_b(name)) for name in options.fetches]
    inits = [name.removeprefix("^") for name in options.setting.inits]
    paired = pair_streams(a, b, fetches, inits)
    if paired is None:
        return first
    compared = tuple(name for name in options.fetches if name not in paired.unpaired)
    races = {**first.races, **dict.fromkeys(sorted(paired.unpaired), paired.finding())}
    if not compared and not options.targets:
        raise UsageError(f"nothing is compared: {first_race(races)}", code="CFG810")
    delta = _compare_cases(a, paired.graph, replace(options, fetches=compared))
    notices = (*delta.notices, *pairs_finding("random stream", paired.names, "op and seed"))
    return replace(delta, races=races, notices=notices)


def first_race(races: Mapping[str, Finding]) -> str:
    """The message of the first race, and the number of others."""
    messages = list(dict.fromkeys(race.message for race in races.values()))
    return messages[0] + (f" (and {len(messages) - 1} more)" if len(messages) > 1 else "")


def _with_feeds_of_b(a: Graph, options: ComparisonRunOptions) -> ComparisonRunOptions:
    """Feed the first graph, too, what the counterpart of its input in the second is fed."""
    inputs = (node.output().name for node in a if must_be_fed(node))
    pairs = ((name, options.name_of_b(name)) for name in inputs)
    fed = {name: options.feeds_of_b[b] for name, b in pairs if b in options.feeds_of_b}
    setting = options.setting
    return replace(options, setting=replace(setting, feeds={**fed, **setting.feeds}))


def _required(graph: Graph, options: ComparisonRunOptions, *, b: bool = False) -> list[Node]:
    """Return the nodes that must run, of the second graph if `b`."""
    names = dict.fromkeys(map(options.name_of_b, options.fetches) if b else options.fetches)
    nodes = [graph.tensor(name).node for name in names]
    return nodes + [graph[name.removeprefix("^")] for name in options.targets]


def _inits(graph: Graph, options: ComparisonRunOptions) -> list[Node]:
    """Return the initializers that a graph has."""
    names = [name.removeprefix("^") for name in options.setting.inits]
    return [graph[name] for name in names if name in graph]


def existing_in_b(a: Graph, b: Graph, options: ComparisonRunOptions) -> ComparisonRunOptions:
    """Return the options with what both graphs have, and the names that the second one lacks."""
    if options.fetches or options.targets:
        expected = [a.tensor(name).name for name in options.fetches if name not in options.missing]
        required = [*expected, *options.missing]
    else:
        tensors = without_io_nodes(a, sinks(a))
        expected = [tensor.name for tensor in tensors]
        # the index of a Merge that nothing reads is no result
        required = [
            tensor.name
            for tensor in _results(a, tensors, options.dropped)
            if not (tensor.port == 1 and role_of(tensor.node) is Role.MERGE)
        ]
    fetches = [name for name in expected if has_output(b, options.name_of_b(name))]
    targets = [name for name in options.targets if name.removeprefix("^") in b]
    missing = [name for name in required if name not in fetches]
    missing += [f"^{name.removeprefix('^')}" for name in options.targets if name not in targets]
    return replace(options, fetches=tuple(fetches), targets=tuple(targets), missing=tuple(missing))


def _results(graph: Graph, tensors: list[Output], dropped: Collection[str]) -> list[Output]:
    """Return the tensors without those of dropped nodes that may be dead.

    A pass may drop what is live only because a predicate is constant: it is in a conditional.
    """
    if not dropped:
        return tensors
    conditions = deadness(graph, free_constants=True)
    return [t for t in tensors if t.node.name not in dropped or conditions.always_live(t)]


def has_output(graph: Graph, name: str) -> bool:
    """Return true if a graph has a tensor."""
    base, port = split_tensor_name(name)
    node = graph.nodes.get(base)
    count = None if node is None else node.output_count
    return node is not None and (count is None or (port or 0) < count)


def _common_targets(a: Graph, b: Graph) -> tuple[str, ...]:
    """Return the common nodes with side effects. Raises UsageError if there are none."""
    targets = tuple(name for name in effect_targets(a, frames(a)) if name in b)
    if not targets:
        message = "the graphs have no outputs in common"
        hint = "name tensors with --fetch, or nodes with --target"
        if listed := first_names([item.name for item in sinks(a)], _MAX_LISTED):
            message += f": B lacks {listed}"
            hint = "--fetch NAME=NAME_B pairs tensors; `cfgraph show B` lists its outputs"
        raise UsageError(message, hint=hint)
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
        self.fetches_of_b = tuple(map(options.name_of_b, options.fetches))
        self.lowered = False
        self.notices: list[Finding] = []
        self.borrowed: dict[Graph, Sequence[StaticTable]] = {}

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
            error.hint = error.hint or self.size_hint(point)
            return self.difference(point, floats, (), error)
        triples = [*zip(self.options.fetches, values, values_b, strict=True)]
        gaps = (*self.gaps(triples), *self.variable_gaps(point, before, point_b))
        if gaps:
            return self.difference(point, floats, gaps, None)
        no_value = tuple(name for name, first, second in triples if first is second is None)
        return RunDiff(self.options.fetches, no_value=no_value)

    def size_hint(self, point: EvaluationPoint) -> str | None:
        """The options with which random inputs have the sizes that the second graph alone knows."""
        texts = []
        for name, value in point.feeds.items():
            other = self.options.name_of_b(name)
            if name in self.options.setting.feeds or not has_output(self.b, other):
                continue
            shape = declared_type(self.a, self.a.tensor(name))[1]
            expected = declared_type(self.b, self.b.tensor(other))[1]
            if sizes := _fitting_sizes(shape, expected, np.shape(value)):
                texts.append(f"--size {name.removesuffix(':0')}={','.join(map(str, sizes))}")
        return f"add {' '.join(texts)}: random inputs then fit both graphs" if texts else None

    def run(self, point: EvaluationPoint, trace: Observer | None = None) -> list[Any]:
        """Return the fetched values of a point."""
        options = self.options
        fetches = options.fetches if point.graph is self.a else self.fetches_of_b
        return point.run(fetches, targets=options.targets, trace=trace, allow_missing=True)

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
        setting = self.options.setting
        required = _required(self.a, self.options)
        if setting.state is None:
            setting = self.lend(self.a, required, setting, self.options.state_of_b)
        return finite_point(
            lambda floats: self.sample(self.a, required, setting, floats), self.run_first
        )

    def second_point(self, point: EvaluationPoint, floats: Any) -> EvaluationPoint:
        """Return the same point for the second graph."""
        options = self.options
        named = {options.name_of_b(name): value for name, value in point.feeds.items()}
        feeds = {name: value for name, value in named.items() if node_name(name) in self.b}
        inits = [node.name for node in _inits(self.b, options)]
        setting = replace(options.setting, feeds={**feeds, **options.feeds_of_b}, inits=inits)
        required = _required(self.b, options, b=True)
        own = options.state_of_b
        if own is None:
            setting = self.lend(self.b, required, setting, setting.state)
        else:
            setting = replace(setting, state=own)
        point_b = self.sample(self.b, required, setting, floats)
        self.share_variables(point, point_b, required)
        for letter, graph in (("A", self.a), ("B", self.b)):
            self.notices += borrowed_table_findings(letter, self.borrowed.get(graph, ()))
        return point_b

    def lend(
        self, graph: Graph, required: Sequence[Node], setting: SampleOptions, state: State | None
    ) -> SampleOptions:
        """Return the setting of a graph without a state, which starts in that of the other one.

        An independent graph fills the tables that it can fill, and borrows the others.
        """
        if state is None or not self.options.independent:
            return replace(setting, state=state)
        inits = [graph[name.removeprefix("^")] for name in setting.inits]
        left = required_tables(graph, required, inits, ())
        fed = [graph.tensor(name) for name in setting.feeds]
        filling = list(table_initializers(graph, left, fed).values())
        filled = state.filled_tables()
        borrowed = [t for t in left if t.key in filled and t not in filling]
        self.borrowed[graph] = borrowed
        tables = required_tables(graph, required, (), ())
        if len(tables) > len(borrowed):
            state = state.copy()
            for table in tables:
                if table not in borrowed:
                    state.forget(*table.key, TABLES)
        return replace(setting, state=state)

    def share_variables(
        self, point: EvaluationPoint, point_b: EvaluationPoint, required: Sequence[Node]
    ) -> None:
        """Give the second graph the values of the first for variables without one of its own."""
        cells, cells_b = point.cells(), point_b.cells()
        own_b = self.own_variables(point_b, self.options.state_of_b)
        for key, cell in cells.items():
            if key in cells_b and key not in own_b:
                point_b.set(cells_b[key], point.value(cell))
        if not self.options.independent:
            return
        own = self.own_variables(point, self.options.setting.state)
        first = OwnValues("A", read_variables(self.a, _required(self.a, self.options)), own)
        second = OwnValues("B", read_variables(self.b, required), own_b)
        paired = pair_unset(first, second, cells, cells_b)
        for key, key_b in paired.items():
            point_b.set(cells_b[key_b], point.value(cells[key]))
        names = {name: name_b for (_, name), (_, name_b) in paired.items()}
        self.notices = [
            *borrowed_findings(first, second, paired),
            *pairs_finding("variable", names),
        ]

    def own_variables(self, point: EvaluationPoint, state: State | None) -> set[VariableKey]:
        """Return the variables for which a graph has values of its own."""
        stored = state.initialized_variables() if state is not None else ()
        return {*stored, *(point.initialized if self.options.independent else ())}

    def sample(
        self, graph: Graph, required: Sequence[Node], setting: SampleOptions, floats: Any
    ) -> EvaluationPoint:
        """Return a point of a graph."""
        previous = self.points.get(graph)
        point = sample_point(graph, required, setting, self.seed, floats, previous)
        self.points[graph] = point
        return point

    def gaps(self, triples: Iterable[tuple[str, Any, Any]]) -> Iterator[ValueMismatch]:
        """Yield the differences between two values of a name."""
        for name, a, b in triples:
            message = difference_message(a, b, self.options.rtol, self.options.atol)
            if message is not None:
                yield ValueMismatch(name, message, a, b)

    def variable_gaps(
        self, point: EvaluationPoint, after: VariableValues, point_b: EvaluationPoint
    ) -> Iterator[ValueMismatch]:
        """Yield the differences between variables that a run changes, or that the fetches read."""
        if not self.options.compares_variables:
            return
        start, start_b = _initial_values(point), _initial_values(point_b)
        after_b = _variable_values(point_b)
        compared = _changed(start, after) | _changed(start_b, after_b)
        compared |= read_variables(self.a, _required(self.a, self.options))
        compared |= read_variables(self.b, _required(self.b, self.options, b=True))
        pairs = pair_variables(
            *({key: side[key] for key in side if key in compared} for side in (start, start_b))
        )
        taken = set(pairs.values())
        # a variable of only one graph keeps its initial value in the other
        triples = [
            (key, after[key], after_b[pairs[key]] if key in pairs else start[key])
            for key in start
            if key in compared
        ]
        triples += [
            (key, start_b[key], after_b[key])
            for key in start_b
            if key in compared and key not in taken
        ]
        for gap in self.gaps((f"variable {key[1]}", a, b) for key, a, b in triples):
            message = gap.message
            if gap.before is None or gap.after is None:
                message = message.replace("dead", "without a value").replace("live", "with one")
            yield replace(gap, message=message)

    def difference(
        self,
        point: EvaluationPoint,
        floats: Any,
        gaps: tuple[ValueMismatch, ...],
        failure: CfgraphError | None,
    ) -> RunDiff:
        """Return the difference, with the first wrong node."""
        inputs = {**self.options.feeds_of_b, **point.feeds}
        variables = self.random_variables(point)
        first = None
        try:
            point_b = self.second_point(point, floats)
        except CfgraphError:
            pass
        else:
            variables = {**self.random_variables(point_b), **variables}
            if self.options.locate:
                rtol, atol = self.options.rtol, self.options.atol
                common = self.common_nodes(point.graph, point_b.graph)
                first = first_divergence(point, point_b, self.run, common, rtol, atol)
        if self.options.locate and first is None and failure is not None and failure.node in self.b:
            node = self.b[str(failure.node)]
            first = Divergence(node.name, node.op, failure.frame or "/", 0, failure.message)
        return RunDiff(
            self.options.fetches,
            gaps=gaps,
            failure=failure,
            first=first,
            inputs=inputs,
            variables=variables,
            seed=self.seed,
        )

    def common_nodes(self, a: Graph, b: Graph) -> Collection[str]:
        """Return the nodes of both graphs; of independent ones, those that both runs need."""
        if not self.options.independent:
            return a.nodes.keys() & b.nodes.keys()
        needed = ancestors(a, _required(a, self.options))
        needed_of_b = ancestors(b, _required(b, self.options, b=True))
        return {node.name for node in needed} & {node.name for node in needed_of_b}

    def random_variables(self, point: EvaluationPoint) -> VariableValues:
        """Return the values of variables for which neither options nor files have one."""
        state = self.options.setting.state
        stored = state.initialized_variables() if state is not None else ()
        keys = point.sampled.difference(stored)
        return {key: point.value(cell) for key, cell in point.cells().items() if key in keys}


def _fitting_sizes(shape: Shape, expected: Shape, actual: Sequence[int]) -> list[int]:
    """The unknown sizes of a shape as another one has them; empty if that accepts an array."""
    if shape.dims is None or expected.accepts(actual):
        return []
    try:
        known = shape.merge(expected)
    except ShapeError:
        return []
    triples = zip(shape, known, actual, strict=True)
    return [real if size is None else size for own, size, real in triples if own is None]


def _variable_values(point: EvaluationPoint) -> dict[VariableKey, Any]:
    """Return the values of the variables after a run."""
    return {key: cell.value for key, cell in point.cells().items()}


def _changed(start: VariableValues, after: VariableValues) -> set[VariableKey]:
    """Return the variables that a run has changed."""
    return {key for key, value in after.items() if value is not start.get(key)}


def _initial_values(point: EvaluationPoint) -> dict[tuple[str, str], Any]:
    """Return the values of the variables at the start of a run."""
    return {key: point.value(cell) for key, cell in point.cells().items()}
