"""The `extract` command: cut a graph at tensors, with the values of a run if requested."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from cfgraph.analysis.feeds_and_fetches import format_type, require_feeds
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.verify.verify import structural_errors
from cfgraph.cli.option_groups import extended_group
from cfgraph.cli.options import split_names
from cfgraph.cli.output import Page, report_table
from cfgraph.cli.pass_options import ExtractOptions
from cfgraph.cli.transform_options import ComparedRuns, RunInputs
from cfgraph.console.comparison_inputs import PreparedInputs, prepare_inputs
from cfgraph.console.documents import RunsReport, Warnings
from cfgraph.console.feeds_in_functions import with_inner_feeds
from cfgraph.console.graph_files import Source, json_bytes, require_single_stdin
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.transform import PassResult
from cfgraph.console.values import value_text
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.node import node_name
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.passes.extract import Extraction, ExtractionPlan, extract
from cfgraph.passes.faulty_nodes import defer_faults, require_conditional_faults
from cfgraph.reports import Column, Count, DocumentResult, Record
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.stack_position import iteration_path

_ITERATIONS = re.compile(r"\d{1,18}(,\d{1,18})*")
_MAX_SHOWN = 40


class CutOptions(ExtractOptions):
    """Resolved tensors, with values of cut ones in `iterations` of the loops of the outputs."""

    values: Mapping[str, Any] = field(default_factory=dict)
    iterations: tuple[int, ...] = ()


def _resolved(options: ExtractOptions, names: SignatureNames) -> ExtractOptions:
    """Replace names of a signature by those of its tensors."""
    outputs = names.output_tensors(split_names(options.outputs))
    inputs = [names.inputs.get(name, name) for name in split_names(options.inputs)]
    return options.replace(outputs=outputs, inputs=inputs)


def _needs_run(options: ExtractOptions, runs: RunInputs) -> bool:
    """True if the graph is run first."""
    lists = (runs.feed, runs.feeds, runs.init)
    return any(lists) or options.iteration is not None or runs.variables is not None


def _iterations_of(options: ExtractOptions, frame: Frame) -> dict[Frame, int]:
    """Return the iteration of a loop, and of each loop that contains it.

    Raises UsageError for outputs outside of loops, and for more numbers than loops.
    """
    text = options.iteration or "0"
    chain: list[Frame] = []
    current: Frame | None = frame
    while current is not None and current.parent is not None:
        chain.append(current)
        current = current.parent
    if not _ITERATIONS.fullmatch(text):
        message = f"invalid --iteration {text!r}"
        raise UsageError(message, hint="write N, or one number per nested loop: OUTER,INNER")
    numbers = [int(number) for number in reversed(text.split(","))]
    if options.iteration is not None and len(numbers) > len(chain):
        loops = ("in no loop", "in one loop", f"in {len(chain)} nested loops")[min(len(chain), 2)]
        message = f"--iteration {text}, but the outputs are {loops}"
        hint = "write one number per loop that contains the outputs"
        if not chain:
            hint = "name outputs inside of the loop; run `cfgraph lower` for functional loops"
        raise UsageError(message, hint=hint)
    return dict(zip(chain, numbers + [0] * len(chain), strict=False))


@dataclass
class CutValues:
    """An observer that collects the values of tensors in one iteration of their loops."""

    frames: Frames
    iterations: Mapping[Frame, int]
    wanted: Mapping[str, Sequence[Output]]
    values: dict[Output, Any] = field(default_factory=dict)
    dead: set[Output] = field(default_factory=set)
    started: int = 0

    def event(self, event: TraceEvent) -> None:
        """Store the outputs of a wanted node in the wanted iteration."""
        tensors = self.wanted.get(event.node)
        if not tensors or not event.is_token:
            return
        node = tensors[0].node
        if role_of(node) is Role.EXIT:
            # it is live in the last iteration of its own loop
            outer = self._path(self.frames.of_outputs[node])
            if event.dead or not event.frame.startswith(outer.rstrip("/") + "/"):
                return
        else:
            frame = self.frames.of[node]
            path = self._path(frame)
            is_inner = frame is next(iter(self.iterations), None)
            if is_inner and event.frame.rpartition("[")[0] == path.rpartition("[")[0]:
                self.started = max(self.started, event.iteration + 1)
            if event.frame != path:
                return
        for tensor in tensors:
            value = event.outputs[tensor.port] if not event.dead else None
            if value is None:
                self.dead.add(tensor)
            else:
                self.values[tensor] = value

    def _path(self, frame: Frame) -> str:
        """The path of a frame with iterations, as in events."""
        return iteration_path((loop.name, self.iterations.get(loop, 0)) for loop in frame.loops)


def captured_values(
    plan: ExtractionPlan, iterations: Mapping[Frame, int], inputs: PreparedInputs
) -> dict[str, Any]:
    """Run a graph and return the values of the cut tensors. Raises UsageError for one without."""
    graph, feeds = inputs.graph, inputs.feeds
    wanted: dict[str, list[Output]] = {}
    for tensor in plan.cut:
        if tensor.name not in feeds:
            wanted.setdefault(tensor.node.name, []).append(tensor)
    observer = CutValues(plan.frames, iterations, wanted)
    if wanted:
        fed = set(map(graph.tensor, feeds))
        require_feeds(graph, [], [graph[name] for name in wanted], fed)
        session, limit = inputs.session(inputs.initial_state()), inputs.max_iterations
        session.run([], feeds, [*wanted], trace=observer, max_iterations=limit)
    values = {tensor.name: value for tensor, value in observer.values.items()}
    values |= {tensor.name: feeds[tensor.name] for tensor in plan.cut if tensor.name in feeds}
    missing = [tensor for tensor in plan.cut if tensor.name not in values]
    if missing:
        raise _missing_value_error(missing[0], plan.frame, iterations, observer)
    return values


def _require_outside_functions(fed: Iterable[str]) -> None:
    """Raise UsageError for a feed at which the part cannot be cut."""
    for name in fed:
        message = f"{name} is inside a function, which the part calls"
        hint = "name the inputs of the part, or cut the graph that `cfgraph lower` writes"
        raise UsageError(message, hint=hint)


def _missing_value_error(
    tensor: Output, frame: Frame, iterations: Mapping[Frame, int], observer: CutValues
) -> UsageError:
    where = f" in iteration {iterations[frame]} of {frame.path}" if frame in iterations else ""
    if tensor in observer.dead:
        message = f"{tensor.name} is dead{where}"
        hint = "name inputs before the conditional, or feed other values"
    else:
        message = f"{tensor.name} has no value{where}"
        hint = f"the loop started {observer.started} iterations" if where else "feed other values"
    return UsageError(message, node=tensor.node, hint=hint)


class CutInput(Record):
    """A tensor at which a graph is cut."""

    input: str  #: The tensor at which the graph is cut.
    tensor: Annotated[str, Column(title="is now", optional=True)]  #: The tensor that replaces it.
    type: str
    constant: bool  #: True for a Const with a value of the run, false for a Placeholder.
    value: Annotated[str | None, Column(optional=True)]  #: The beginning of the value of a Const.


class ExtractSummary(Record):
    """The numbers of nodes before and after."""

    before: Count  #: Nodes of the graph.
    after: Count  #: Nodes of the extracted graph.


class ExtractResult(DocumentResult, command="extract", summary=ExtractSummary):
    """The frame and iteration of the outputs, the inputs, and the loops that are kept whole."""

    frame: str  #: The loop that the outputs are in; / outside of loops.
    #: Of the loop of the outputs, after those of the loops that contain it (OUTER,INNER); null
    #: without a run and outside of loops.
    iteration: str | None
    inputs: Sequence[CutInput]
    outputs: Sequence[str]
    loops: Sequence[str]  #: Loops that are kept whole.
    warnings: Warnings


@dataclass(slots=True)
class ExtractedGraph(PassResult[ExtractOptions, Extraction]):
    """A part of a graph, with the values of a run if requested."""

    before: int
    cut: CutOptions

    @classmethod
    def require_used(cls, options: ExtractOptions, runs: ComparedRuns) -> None:
        """Accept inputs: they are those of the run whose values are extracted."""

    @classmethod
    def prepare(
        cls,
        source: Source,
        options: ExtractOptions,
        names: SignatureNames,
        runs: ComparedRuns,
    ) -> ExtractOptions:
        """Run the graph if requested, for the values at the cut."""
        options, graph = _resolved(options, names), source.graph
        require_single_stdin(source, runs.inputs.feed)
        if not _needs_run(options, runs.inputs):
            return options
        needed = [graph[node_name(name)] for name in options.outputs]
        if structural_errors(graph):
            # they would mislead the analyses of the cut; `apply` cuts the original
            graph = copy_graph(graph)
            defer_faults(graph, graph)
            source = replace(source, graph=graph)
            needed = [graph[node.name] for node in needed]
            require_conditional_faults(graph, needed)
        source, names, replaced = with_inner_feeds(source, names, runs.inputs)
        needed = [source.graph[node.name] for node in needed]
        inputs = prepare_inputs(runs.inputs, source, names, needed)
        plan = ExtractionPlan(graph, options.outputs, options.inputs)
        if not plan.cut:
            _require_outside_functions(replaced.values())
            plan = ExtractionPlan(graph, options.outputs, [*inputs.feeds])
        iterations = _iterations_of(options, plan.frame)
        values = captured_values(plan, iterations, inputs)
        numbers = tuple(reversed(iterations.values()))
        cut = [tensor.name for tensor in plan.cut]
        return extended_group(CutOptions, options, inputs=cut, values=values, iterations=numbers)

    @classmethod
    def apply(cls, graph: Graph, options: ExtractOptions, names: SignatureNames) -> Self:
        """Extract the subgraph. Raises UsageError for a cut that breaks a loop or a conditional."""
        options, before = _resolved(options, names), len(graph)
        cut = options if isinstance(options, CutOptions) else extended_group(CutOptions, options)
        report = extract(
            graph,
            outputs=cut.outputs,
            inputs=cut.inputs,
            values=cut.values,
            iterations=cut.iterations,
        )
        return cls(graph, options, report, before, cut)

    def inputs(self) -> Iterator[CutInput]:
        """Yield the inputs of the part."""
        graph, values = self.graph, self.cut.values
        tensors = {old: graph.tensor(new) for old, new in self.report.inputs.items()}
        shapes = infer_shapes(graph, sent=tensors.values())
        for old, tensor in tensors.items():
            text = value_text(values[old], full=False) if old in values else None
            shown = text if text is None or len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
            type_text = format_type(tensor.dtype, shapes[tensor])
            yield CutInput(old, tensor.name, type_text, old in values, shown)

    def summary(self) -> ExtractSummary:
        """The numbers of nodes before and after."""
        return ExtractSummary(self.before, len(self.graph))

    def result(self, verify: RunsReport | None) -> ExtractResult:
        """The frame and iteration of the outputs, the inputs, and the loops that are kept whole."""
        inputs, iteration = [*self.inputs()], ",".join(map(str, self.cut.iterations)) or None
        return ExtractResult.from_attributes(self.report, iteration=iteration, inputs=inputs)

    def companion_data(self) -> bytes:
        """A map of the cut tensors."""
        return json_bytes(self.report.inputs)

    def show(self, out: Page) -> None:
        """Print the inputs, the loops that are kept whole, and the outputs."""
        report, inputs = self.report, [*self.inputs()]
        frame = f", one iteration of {report.frame}" if report.frame != "/" else ""
        out.heading("extracted", f"{len(self.graph)} of {self.before} nodes{frame}")
        if inputs:
            renamed = ["tensor"] * any(item.input != item.tensor for item in inputs)
            out.table(report_table(CutInput, inputs, "input", *renamed, "type", "value"))
        if report.loops:
            out.line(out.wrapped(f"loops kept whole: {', '.join(report.loops)}"))
        out.line(out.wrapped(f"outputs: {', '.join(report.outputs)}"))
