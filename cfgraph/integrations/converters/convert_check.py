"""`convert-check`: nodes that a converter refuses, commands that mend it, and what it says."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal

from cfgraph.analysis.resource_handles import is_variable
from cfgraph.cli.json_output import print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, Page, hidden_notes, page
from cfgraph.cli.transform_options import ComparedRuns
from cfgraph.comparison.differences import RunDiff, ValueMismatch
from cfgraph.comparison.equivalence import ComparisonRunOptions, compare_runs
from cfgraph.console.comparison_inputs import requested_fetches
from cfgraph.console.comparisons.diff_run import run_side_text
from cfgraph.console.comparisons.run_options import comparison_options
from cfgraph.console.graph_files import Source, read_graph, saved_model_contents
from cfgraph.console.signatures import signature_names
from cfgraph.errors import CfgraphError, RunTimeout, Unsupported, UsageError, install_hint
from cfgraph.integrations.converters.command_lines import (
    find_signature,
    fixed_shapes_export,
    graph_command,
    loads_signature,
    saved_model_command,
)
from cfgraph.integrations.converters.refusals import (
    DYNAMIC_LIST,
    FREEZE,
    FUNCTIONALIZE,
    LOOKUP_TABLE,
    Converter,
    JudgedNode,
    find_converter,
    judged_nodes,
)
from cfgraph.integrations.tensorflow.mode_comparison import ModeUnsupported, compare_modes
from cfgraph.integrations.tensorflow.modes import CONVERTER_MODES, SAVED_MODEL_ONNX
from cfgraph.integrations.tensorflow.processes import DEFAULT_SECONDS, ModePool
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.serde.saved_model import SavedSignature
from cfgraph.ir.traversal import ancestors
from cfgraph.limits import check_deadline
from cfgraph.passes.freeze.freeze import freeze
from cfgraph.passes.functionalize.functionalize import functionalize
from cfgraph.reports import Column, Count, DocumentResult, Maybe, Record

# that a conversion imports
MODULES: Final = {"lite": ["tensorflow"], "onnx": ["tensorflow", "tf2onnx", "onnxruntime"]}

_TEXTS: Final = {
    "agrees": "the converted model agrees",
    "differs": "the converted model differs",
    "refused": "not converted",
    "failed": "failed",
    "not compared": "not compared",
}

Result = Literal["agrees", "differs", "refused", "failed", "not compared"]


class Conversion(Record):
    """The result of a converter for a graph, and of the run of its model."""

    result: Annotated[
        Result,
        "`refused` by the converter, or the process or the runtime of the model `failed`.",
    ]
    message: str | None
    fetches: Sequence[str]  #: The tensors whose values were compared.
    distance: Maybe[float]  #: The largest between two numbers that agree.

    @property
    def text(self) -> str:
        """The result in one line."""
        text = f"{_TEXTS[self.result]}: {self.message or ', '.join(self.fetches)}"
        return text if self.distance is None else f"{text}; by at most {self.distance:.2g} apart"


@dataclass(frozen=True, slots=True)
class ConverterRuns:
    """Runs of a converter, in a process that may die, on the inputs of one run of a source."""

    target: str
    source: Source
    options: ComparisonRunOptions
    pool: ModePool
    as_saved_model: bool = False  #: The converter reads the source itself from its folder.

    def convert(self, graph: Graph) -> Conversion:
        """Convert a graph with the names of the source, and compare the values of its outputs."""
        missing = [name for name in MODULES[self.target] if find_spec(name) is None]
        if missing:
            message = f"{' and '.join(missing)} not installed: {install_hint('converters')}"
            return Conversion("not compared", message, (), None)
        try:
            return self._compared(_without_variables(graph, self.options))
        except RunTimeout:
            raise
        except ModeUnsupported as error:
            return Conversion("refused", error.message, (), None)
        except CfgraphError as error:
            check_deadline()
            return _not_compared(error)

    def _compared(self, graph: Graph) -> Conversion:
        options, delta = self.options, RunDiff(())
        if graph is not self.source.graph:
            delta = compare_runs(self.source.graph, graph, options)
        mode = CONVERTER_MODES[self.target]
        if self.as_saved_model and self.target == "onnx":
            mode = SAVED_MODEL_ONNX
        delta = delta or compare_modes(self.pool, graph, mode, options=options)
        if delta.failure is not None:
            return Conversion("failed", delta.failure.message, (), None)
        if delta.gaps:
            text = "; ".join(map(_gap_text, delta.gaps))
            return Conversion("differs", text, delta.fetches, None)
        return Conversion("agrees", None, delta.fetches, delta.distance)


def _not_compared(error: CfgraphError) -> Conversion:
    return Conversion("not compared", error.message, (), None)


def _gap_text(gap: ValueMismatch) -> str:
    first, second = map(run_side_text, (gap.before, gap.after))
    return f"{gap.what}: {gap.message}: {first} in the run, {second} in the model"


def _without_variables(graph: Graph, options: ComparisonRunOptions) -> Graph:
    """The graph, or one with constants for the variables that its run starts from.

    A converter does that for a SavedModel. Raises Unsupported if a variable remains.
    """
    if _first_variable(graph, options.fetches) is None:
        return graph
    frozen = copy_graph(graph)
    freeze(frozen, options.setting.state, outputs=options.fetches)
    node = _first_variable(frozen, options.fetches)
    if node is not None:
        raise Unsupported(f"{node.name} is a variable without a constant value", node=node)
    return frozen


def _first_variable(graph: Graph, fetches: Sequence[str]) -> Node | None:
    roots = [graph.tensor(name).node for name in fetches]
    return next((node for node in ancestors(graph, roots) if is_variable(node)), None)


class ConvertCheckSummary(Record):
    """The numbers of nodes that the converter refuses, and of those that it may refuse."""

    refused: Count
    risky: Count
    unknown: Count


class MendingCommand(Record):
    """A command that mends some nodes, and what the converter refuses of its result."""

    command: str
    written: str  #: The file of its result.
    #: Of the result of this command and those before it; null if it needs variables.
    remaining: Sequence[JudgedNode] | None
    conversion: Maybe[Conversion]  #: Of the result, if the graph itself does not convert.


Verdict = Literal["converts", "converts after commands", "does not convert", "unknown"]


class ConvertCheckResult(DocumentResult, command="convert-check", summary=ConvertCheckSummary):
    """The nodes of a graph that a converter refuses, and the commands that mend it."""

    converter: str
    version: str  #: Of the converter whose ops were measured.
    verdict: Annotated[
        Verdict, "Without a run that decides, by the nodes; `unknown` if no list has them."
    ]
    reason: str  #: Of the verdict, with what to do.
    nodes: Sequence[JudgedNode]
    commands: Sequence[MendingCommand]
    #: That write the model of the converter to a file; none if it does not convert.
    model_commands: Sequence[str]
    conversion: Maybe[Conversion]  #: Absent with --no-run.


@dataclass(frozen=True, slots=True)
class CheckedConversion:
    """The nodes of a graph that may not convert, and the commands that mend it."""

    source: Source
    converter: Converter
    nodes: Sequence[JudgedNode]
    commands: Sequence[MendingCommand] = field(default_factory=tuple)
    conversion: Conversion | None = None
    fetched: Sequence[str] = ()
    signature: SavedSignature | None = None

    def count(self, verdict: str) -> int:
        """The number of nodes with a verdict."""
        return sum(item.verdict == verdict for item in self.nodes)

    @property
    def fails(self) -> bool:
        """True if the converter was run, and its model does not compute the values of the graph."""
        return _fails(self.conversion)

    def conclusion(self) -> tuple[Verdict, str]:
        """The verdict on the graph and on the results of the commands, and its reason."""
        verdict: Verdict = "converts"
        nodes, conversion = self.nodes, self.conversion
        if _is_refused(nodes, conversion) and self.commands:
            verdict, last = "converts after commands", self.commands[-1]
            if last.remaining is None:
                reason = "a command needs values of variables (--variables PATH) or fails"
                return "unknown", reason
            nodes, conversion = last.remaining, last.conversion
        if _is_refused(nodes, conversion):
            return "does not convert", self.mending_hint(nodes, conversion)
        if conversion is not None and conversion.result == "agrees":
            return verdict, "its model computes the values of the graph"
        cause = conversion.message if conversion is not None else "the converter was not run"
        is_known = not any(item.verdict == "unknown" for item in nodes)
        return verdict if is_known else "unknown", f"by the list of ops alone: {cause}"

    def mending_hint(self, nodes: Sequence[JudgedNode], conversion: Conversion | None) -> str:
        """The refused nodes by op that no command mends, and what a person can do."""
        refused = [item for item in nodes if item.verdict == "refused"]
        if not refused:
            return f"no command mends this: {conversion.message if conversion else 'unknown'}"
        plural = "s" * (len(refused) != 1)
        text = f"no command mends {len(refused)} refused node{plural}: {_ops(refused)}"
        lists = [item for item in refused if item.reason == DYNAMIC_LIST]
        if lists:
            export = fixed_shapes_export(self.source.graph, self.signature)
            return f"{text}; an export with fixed shapes mends {_ops(lists)}: {export}"
        words = shlex.join(["cfgraph", "extract", self.source.path])
        command = f"{words} --inputs T --outputs T -o part.pb"
        return f"{text}; to leave out those next to inputs or outputs: {command}"

    @property
    def is_loaded(self) -> bool:
        """True if the converter reads the SavedModel itself."""
        return loads_signature(self.source, self.signature, self.fetched)

    def model_commands(self) -> list[str]:
        """The command lines that write the converted model after those that mend the graph."""
        verdict, _ = self.conclusion()
        name, path = self.converter.target, self.source.path
        if verdict == "does not convert" or not self.fetched:
            return []
        if self.commands and self.commands[-1].written and verdict != "converts":
            last = self.commands[-1].written
            return [graph_command(name, last, self.source.graph, self.fetched)]
        if self.signature is not None and self.is_loaded:
            return [saved_model_command(name, path, self.signature)]
        command = graph_command(name, "model.pb", self.source.graph, self.fetched)
        if saved_model_contents(self.source) is not None:
            words = ["cfgraph", FREEZE, path, *_fetch_options(self.fetched), "-o", "model.pb"]
            return [shlex.join(words), command]
        if self.source.format != "pb":
            return [shlex.join(["cfgraph", "convert", path, "-o", "model.pb"]), command]
        return [graph_command(name, path, self.source.graph, self.fetched)]

    @property
    def exit_code(self) -> int:
        """1 if a node is refused, or the converted model does not agree.

        It may agree for some inputs alone.
        """
        return int(self.fails or self.count("refused") > 0)

    def document(self) -> tuple[ConvertCheckResult, ConvertCheckSummary]:
        """The JSON document, and its summary."""
        converter = self.converter
        result = ConvertCheckResult(
            converter.name,
            converter.version,
            *self.conclusion(),
            self.nodes,
            self.commands,
            self.model_commands(),
            self.conversion,
        )
        counts = [self.count(verdict) for verdict in ("refused", "risky", "unknown")]
        return result, ConvertCheckSummary(*counts)

    def show(self, out: Page, full: bool) -> None:
        """Print the nodes by op and reason, and the commands with what remains."""
        out.heading(self.source.path, f"for {self.converter.name}, as of {self.converter.version}")
        if self.nodes:
            _show_nodes(out, self.nodes, full)
        else:
            out.line("nothing is refused", "green")
        _show_conversion(out, self.conversion)
        for item in self.commands:
            out.line("")
            out.line(item.command)
            if item.remaining:
                out.line("  then remains", "yellow")
                _show_nodes(out, item.remaining, full)
            elif item.remaining is not None:
                out.line("  nothing is refused then", "green")
            _show_conversion(out, item.conversion, "  ")
        verdict, reason = self.conclusion()
        out.line("")
        style = {"does not convert": "red", "unknown": "yellow"}.get(verdict, "green")
        out.line(out.wrapped(f"verdict: {verdict}; {reason}"), style)
        if commands := self.model_commands():
            out.line("")
            out.line("to write the converted model:")
            for command in commands:
                out.line(f"  {command}")


def _ops(nodes: Sequence[JudgedNode]) -> str:
    return ", ".join(dict.fromkeys(item.op for item in nodes))


def _is_refused(nodes: Sequence[JudgedNode], conversion: Conversion | None) -> bool:
    return _fails(conversion) or any(item.verdict == "refused" for item in nodes)


def _fails(conversion: Conversion | None) -> bool:
    return conversion is not None and conversion.result in ("differs", "refused", "failed")


def _show_conversion(out: Page, conversion: Conversion | None, indent: str = "") -> None:
    """Print the result of a conversion, if there was one."""
    if conversion is not None:
        style = {"agrees": "green", "not compared": "dim"}.get(conversion.result, "red")
        out.line(out.wrapped(f"{indent}{conversion.text}"), style)


def _show_nodes(out: Page, nodes: Sequence[JudgedNode], full: bool) -> None:
    """Print one row per reason; with `full`, one per node."""
    groups: dict[tuple[str, str, str], list[JudgedNode]] = {}
    for item in nodes:
        key = item.node if full else ""
        groups.setdefault((item.verdict, item.reason, key), []).append(item)
    columns = [Column("verdict"), Column("nodes", right=True), Column("reason")]
    columns += [Column("ops", style="cyan"), Column("such as", spare=True)]
    rows: list[Sequence[Any]] = [
        (verdict, len(items), reason, [*dict.fromkeys(item.op for item in items)], items[0].node)
        for (verdict, reason, _), items in groups.items()
    ]
    out.table(OutputTable(columns, rows))


def check_conversion(
    path: str, target: str, runs: ComparedRuns, *, run: bool, seconds: float | None = None
) -> CheckedConversion:
    """Judge what the outputs of a graph need, and `run` the converter.

    Raises UsageError for unknown names.
    """
    converter, source, fetches = find_converter(target), read_graph(path), runs.fetches
    names = signature_names(source, runs.inputs.signature, runs.inputs.variables)
    with hidden_notes():
        request = requested_fetches(source.graph, fetches, names)
        if not fetches.is_set:
            request.default()
    outputs = [*(tensor.node for tensor in request.tensors), *request.targets]
    is_saved_model = saved_model_contents(source) is not None
    judged = judged_nodes(source.graph, outputs, converter, frozen=is_saved_model)
    fetched = [tensor.name for tensor in request.tensors]
    signature = find_signature(source, runs.inputs.signature)
    checked = CheckedConversion(source, converter, judged, fetched=fetched, signature=signature)
    try:
        options = comparison_options(runs, source, by_signature=True)
    except UsageError:
        raise
    except CfgraphError as error:
        options, run = ComparisonRunOptions(), False
        checked = replace(checked, conversion=_not_compared(error))
    options = replace(options, locate=False)
    with ModePool(seconds=DEFAULT_SECONDS if seconds is None else seconds) as pool:
        trial = ConverterRuns(target, source, options, pool) if run else None
        if trial is not None:
            first = replace(trial, as_saved_model=checked.is_loaded)
            checked = replace(checked, conversion=first.convert(source.graph))
        mending = _Mending(checked, fetched, runs, options, trial)
        commands = tuple(mending.commands())
    return replace(checked, commands=commands)


@dataclass(frozen=True, slots=True)
class _Mending:
    """The commands that mend a graph, tried as far as its variables have values."""

    checked: CheckedConversion
    fetched: Sequence[str]
    runs: ComparedRuns
    options: ComparisonRunOptions
    trial: ConverterRuns | None

    def commands(self) -> list[MendingCommand]:
        """The commands that mend the nodes, in their order, with what remains.

        Control flow that is not refused may still be the reason why a model fails.
        """
        source, wanted = self.checked.source, {item.mended_by for item in self.checked.nodes}
        tables = self._mends_tables()
        guess = not wanted - {None} and not tables
        if guess and not (self.checked.fails and source.graph.functions):
            return []
        has_variables = _first_variable(source.graph, self.fetched) is not None
        functional = guess or FUNCTIONALIZE in wanted
        steps = [FREEZE] if FREEZE in wanted or has_variables or tables else []
        found = list(self._steps([*steps, FUNCTIONALIZE] if functional else steps, tables))
        conversion = found[-1].conversion
        agrees = conversion is not None and conversion.result == "agrees"
        return found if agrees or not guess else []

    def _steps(self, passes: Sequence[str], tables: bool) -> Iterator[MendingCommand]:
        graph: Graph | None = copy_graph(self.checked.source.graph)
        path, fetches = self.checked.source.path, _fetch_options(self.runs.fetches.fetch)
        if FREEZE in passes:
            fetches = _fetch_options(self.fetched)
            words = [FREEZE, path, *self._variables(), *["--constant-tables"] * tables, *fetches]
            graph, path = self._frozen(graph, tables) if graph else None, "frozen.pb"
            yield self._command(words, path, graph, passes[-1] == FREEZE)
        if FUNCTIONALIZE in passes:
            words = [FUNCTIONALIZE, path, "--target", "converter", *fetches]
            graph = self._functional(graph) if graph else None
            yield self._command(words, "functional.pb", graph, True)

    def _variables(self) -> list[str]:
        """The option of `freeze` with values, which a SavedModel has itself."""
        path = self.runs.inputs.variables
        if path is None and saved_model_contents(self.checked.source) is not None:
            return []
        has_variables = _first_variable(self.checked.source.graph, self.fetched) is not None
        return ["--variables", path or "CHECKPOINT"] if path or has_variables else []

    def _mends_tables(self) -> bool:
        """True if constants in place of tables leave no refused op that the graph has not."""
        nodes = self.checked.nodes
        if all(item.reason != LOOKUP_TABLE for item in nodes):
            return False
        graph = self._frozen(copy_graph(self.checked.source.graph), True)
        remaining = self._judged(graph) if graph else nodes
        before, after = (
            {x.op for x in items if x.verdict == "refused"} for items in (nodes, remaining)
        )
        return after <= before and len(remaining) < len(nodes)

    def _judged(self, graph: Graph) -> list[JudgedNode]:
        outputs = [graph.tensor(name).node for name in self.fetched]
        is_frozen = saved_model_contents(self.checked.source) is not None
        return judged_nodes(graph, outputs, self.checked.converter, frozen=is_frozen)

    def _command(
        self, words: Sequence[str], path: str, graph: Graph | None, is_last: bool
    ) -> MendingCommand:
        """A command with what is refused of its result, which the last one tries to convert."""
        command = shlex.join(["cfgraph", *words, "-o", path])
        if graph is None:
            return MendingCommand(command, path, None, None)
        is_tried = self.trial is not None and is_last and self.checked.exit_code
        conversion = self.trial.convert(graph) if self.trial and is_tried else None
        return MendingCommand(command, path, self._judged(graph), conversion)

    def _frozen(self, graph: Graph, tables: bool) -> Graph | None:
        """The frozen graph, or None if a variable has no value."""
        state = self.options.setting.state
        if not state and not tables:
            return None
        try:
            freeze(graph, state, outputs=self.fetched, constant_tables=tables)
        except CfgraphError:
            return None
        return graph

    def _functional(self, graph: Graph) -> Graph | None:
        try:
            functionalize(graph, self.fetched, target="converter")
        except CfgraphError:
            return None
        return graph


def _fetch_options(names: Sequence[str]) -> list[str]:
    return [f"--fetch={name}" for name in names]


def report_conversion(checked: CheckedConversion, color: Color, full: bool, json: bool) -> int:
    """Print what was found; returns the exit code."""
    if json:
        result, summary = checked.document()
        print_document(
            result,
            inputs=[checked.source.to_json()],
            summary=summary,
            exit_code=checked.exit_code,
        )
    else:
        checked.show(page(color), full)
    return checked.exit_code
