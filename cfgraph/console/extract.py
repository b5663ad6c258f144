"""The `extract` command: cut a graph at tensors, with the values of a run if requested."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.analysis.feeds_and_fetches import format_type, require_feeds
from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.console.comparison_inputs import VariableSource
from cfgraph.console.graph_files import (
    OutputOptions,
    Source,
    json_bytes,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    require_single_stdin,
    write_graph_and_companion,
)
from cfgraph.console.json_output import print_document
from cfgraph.console.output import Column, OutputTable, note, page
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.values import value_text
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.options import split_names
from cfgraph.passes.extract import Extraction, ExtractionPlan, extract
from cfgraph.runtime.engine.propagate import DEFAULT_MAX_ITERATIONS
from cfgraph.runtime.feeds.parse_feeds import read_feeds
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.stack_position import iteration_path

_ITERATIONS = re.compile(r"\d{1,18}(,\d{1,18})*")
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class ExtractOptions:
    """Tensors between which the graph is extracted; fields are named as options of the command."""

    outputs: Sequence[str] = ()
    inputs: Sequence[str] = ()

    def apply(self, graph: Graph, names: SignatureNames) -> Extraction:
        """Extract the subgraph."""
        outputs, inputs = self.resolve(names)
        return extract(graph, outputs=outputs, inputs=inputs)

    def resolve(self, names: SignatureNames) -> tuple[list[str], list[str]]:
        """Return the names of the outputs and of the inputs; a signature may name them."""
        outputs = split_names(self.outputs)
        inputs = split_names(self.inputs)
        return (
            [names.outputs.get(name, name) for name in outputs],
            [names.inputs.get(name, name) for name in inputs],
        )


@dataclass(frozen=True, slots=True)
class ExtractRunOptions:
    """The run whose values replace the inputs."""

    feeds: Sequence[str] = ()
    archives: Sequence[str] = ()
    iteration: str | None = None
    inits: Sequence[str] = ()
    signature: str | None = None
    variables: str | None = None
    allow_io: bool = False
    max_iterations: int | None = None

    @property
    def runs(self) -> bool:
        """True if the graph is run first."""
        lists = (self.feeds, self.archives, self.inits)
        return any(lists) or self.iteration is not None or self.variables is not None

    def iterations(self, frame: Frame) -> dict[Frame, int]:
        """Return the iteration of a loop, and of each loop that contains it.

        Raises UsageError for outputs outside of loops, and for more numbers than loops.
        """
        text = self.iteration or "0"
        chain: list[Frame] = []
        current: Frame | None = frame
        while current is not None and current.parent is not None:
            chain.append(current)
            current = current.parent
        if not _ITERATIONS.fullmatch(text):
            message = f"invalid --iteration {text!r}"
            raise UsageError(message, hint="write N, or one number per nested loop: OUTER,INNER")
        numbers = [int(number) for number in reversed(text.split(","))]
        if self.iteration is not None and len(numbers) > len(chain):
            loops = ("in no loop", "in one loop", f"in {len(chain)} nested loops")[
                min(len(chain), 2)
            ]
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
    source: Source, plan: ExtractionPlan, run: ExtractRunOptions, feeds: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a graph and return the values of the cut tensors. Raises UsageError for one without."""
    graph = source.graph
    fed = {graph.tensor(name): value for name, value in feeds.items()}
    iterations = run.iterations(plan.frame)
    wanted: dict[str, list[Output]] = {}
    for tensor in plan.cut:
        if tensor not in fed:
            wanted.setdefault(tensor.node.name, []).append(tensor)
    observer = CutValues(plan.frames, iterations, wanted)
    nodes = [graph[name] for name in wanted]
    inits = [graph[name].name for name in run.inits]
    if nodes:
        require_feeds(graph, [], nodes, set(fed))
        variables = VariableSource(run.variables, allow_io=run.allow_io)
        session = Session(
            graph,
            state=variables.state(source, [*nodes, *(graph[name] for name in inits)]),
            soft_placement=True,
            allow_io=variables.io_policy(source),
            blas_threads="auto",
        )
        limit = DEFAULT_MAX_ITERATIONS if run.max_iterations is None else run.max_iterations
        for name in inits:
            session.run([], feeds, [name], max_iterations=limit)
        targets = [node.name for node in nodes]
        session.run([], feeds, targets, trace=observer, max_iterations=limit)
    values = {**observer.values, **{tensor: fed[tensor] for tensor in plan.cut if tensor in fed}}
    missing = [tensor for tensor in plan.cut if tensor not in values]
    if missing:
        raise _missing_value_error(missing[0], plan.frame, iterations, observer)
    return {tensor.name: value for tensor, value in values.items()}


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


def extract_file(
    path: str, request: ExtractOptions, run: ExtractRunOptions, outputs: OutputOptions
) -> int:
    """Read a graph, extract a part, and write it. Returns the exit code, 0.

    Raises UsageError for a cut that breaks a loop or a conditional.
    """
    outputs.require_separate_json()
    require_distinct_paths(outputs.output, outputs.companion, "names")
    source = read_graph(path, quiet=outputs.quiet)
    require_single_stdin(source, run.feeds)
    entry, graph = source.to_json(), source.graph
    names = signature_names(source, run.signature, run.variables)
    wanted, cut = request.resolve(names)
    values: dict[str, Any] = {}
    iteration: str | None = None
    if run.runs:
        feeds = read_feeds(graph, run.feeds, run.archives, names=names.inputs)
        plan = ExtractionPlan(graph, wanted, cut)
        if not plan.cut:
            plan = ExtractionPlan(graph, wanted, [graph.tensor(name).name for name in feeds])
        values = captured_values(source, plan, run, feeds)
        numbers = [*run.iterations(plan.frame).values()]
        iteration = ",".join(map(str, reversed(numbers))) or None
        cut = [tensor.name for tensor in plan.cut]
    report = extract(graph, outputs=wanted, inputs=cut, values=values)
    written = write_graph_and_companion(graph, outputs, json_bytes(report.inputs))
    for warning in report.warnings:
        note(f"warning: {warning}", outputs.quiet)
    table = _inputs_table(graph, report, values)
    if not outputs.quiet:
        _print_extraction(entry["nodes"], graph, report, table)
    if outputs.json:
        print_document(
            "extract",
            inputs=[entry],
            summary={"before": entry["nodes"], "after": len(graph)},
            result={
                "frame": report.frame,
                "iteration": iteration,
                "inputs": table.to_json(),
                "outputs": report.outputs,
                "loops": report.loops,
                "warnings": report.warnings,
            },
            artifacts=output_artifacts(written, "names", outputs.companion),
        )
    return 0


def _inputs_table(graph: Graph, report: Extraction, values: Mapping[str, Any]) -> OutputTable:
    shapes = infer_shapes(graph)
    columns = [
        Column("input"),
        Column("tensor", "is now", optional=True),
        Column("type"),
        Column("constant", optional=True),
        Column("value", optional=True),
    ]
    rows = []
    for old, new in report.inputs.items():
        tensor = graph.tensor(new)
        text = value_text(values[old], full=False) if old in values else None
        shown = text if text is None or len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        rows.append((old, new, format_type(tensor.dtype, shapes[tensor]), old in values, shown))
    return OutputTable(columns, [*rows])


def _print_extraction(before: int, graph: Graph, report: Extraction, inputs: OutputTable) -> None:
    out = page(stream=sys.stderr)
    frame = f", one iteration of {report.frame}" if report.frame != "/" else ""
    out.heading("extracted", f"{len(graph)} of {before} nodes{frame}")
    if inputs.rows:
        columns = {"constant"} | ({"tensor"} if all(a == b for a, b, *_ in inputs.rows) else set())
        hidden = [n for n, column in enumerate(inputs.columns) if column.key in columns]
        out.table(inputs.without(hidden))
    if report.loops:
        out.line(f"loops kept whole: {', '.join(report.loops)}")
    out.line(f"outputs: {', '.join(report.outputs)}")
