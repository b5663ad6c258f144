"""The `diff` command: compare two graphs node by node and print the differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from cfgraph.analysis.findings import Finding
from cfgraph.cli.json_output import partial_document, print_document
from cfgraph.cli.name_scopes import CommonScope, common_scope
from cfgraph.cli.options import Color
from cfgraph.cli.output import Page, page
from cfgraph.cli.transform_options import STDIN, ComparedRuns
from cfgraph.comparison.diff import MATCH_MODES, diff, is_default_attr
from cfgraph.comparison.differences import (
    Change,
    ChangedNode,
    GraphDiff,
    NodesDiff,
    RunDiff,
    diff_findings,
)
from cfgraph.console.ci_formats import CI_FORMATS, FindingSubject
from cfgraph.console.documents import (
    ChangedFunctionReport,
    ChangedNodeReport,
    ChangeReport,
    FunctionsReport,
    NamedNode,
    NodesReport,
    RunsReport,
    StructureReport,
)
from cfgraph.console.graph_files import Source, read_graph, saved_model_assets
from cfgraph.errors import UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.text.printer import AttrPrinter
from cfgraph.reports import Count, DocumentResult, Maybe, Record, members

# late imports: few attributes are files

MAX_SHOWN: Final = 20
_MAX_VALUE: Final = 60
_FULL_HINT: Final = "; --full prints them"


class DiffSummary(Record):
    """The numbers of differences between nodes, or between runs."""

    added: Maybe[Count] = None
    removed: Maybe[Count] = None
    changed: Maybe[Count] = None
    functions_added: Maybe[Count] = None
    functions_removed: Maybe[Count] = None
    functions_changed: Maybe[Count] = None
    fetches: Maybe[Count] = None
    cases: Maybe[Count] = None
    differences: Maybe[Count] = None


class ModeComparison(Record):
    """The comparison in a mode of TensorFlow."""

    mode: str
    against: str  #: `cfgraph`, or the mode of --against.
    version: str  #: The version of TensorFlow.
    unsupported: str | None  #: The reason why the mode is not compared.
    runs: RunsReport | None


class DiffResult(DocumentResult, command="diff", summary=DiffSummary):
    """The comparison of nodes or of runs."""

    structure: StructureReport | None = None
    runs: RunsReport | None = None
    #: The comparison in each mode of TensorFlow; only with --with.
    modes: Maybe[Sequence[ModeComparison]] = None


def nodes_summary(delta: GraphDiff) -> DiffSummary:
    """Return the number of differences of each kind."""
    nodes = delta.nodes
    return DiffSummary(
        len(nodes.added),
        len(nodes.removed),
        len(nodes.changed),
        len(delta.functions_added),
        len(delta.functions_removed),
        len(delta.functions_changed),
    )


def print_diff(out: Page, delta: GraphDiff, sources: Sequence[Source], full: bool) -> None:
    """Print removed, added, and changed nodes; of changed nodes only the parts that differ."""
    if not delta:
        count = len(sources[0].graph)
        out.line(f"no differences in {count} node{'s' * (count != 1)}", "green")
        return
    for sign, source in zip("-+", sources, strict=True):
        out.line(f"{sign * 3} {source.path} ({len(source.graph)} nodes)", "bold")
    print_delta(out, delta, full=full)


def print_delta(out: Page, delta: GraphDiff, *, full: bool = False, hint: str = _FULL_HINT) -> None:
    """Print the nodes, functions, and properties that differ; `hint` follows omitted ones."""
    if not delta:
        out.line("no differences", "green")
        return
    printer = _DiffPrinter(out, full, hint=hint)
    printer.nodes(delta.nodes)
    for sign, names in (("-", delta.functions_removed), ("+", delta.functions_added)):
        printer.several(sign, names, lambda name: f"function {name}")
    for function in delta.functions_changed:
        printer.folded([(f"~ function {function.name}", "yellow")])
        inner = _DiffPrinter(out, full, "    ", hint)
        inner.parts(function.changes)
        inner.nodes(function.nodes)
        if not function.changes and not function.nodes:
            out.line("    the body is invalid; see `cfgraph check`", "dim")
    printer.parts(delta.changes)
    out.line(f"{_difference_text(delta)}", "bold")


def _difference_text(delta: GraphDiff) -> str:
    summary = members(nodes_summary(delta))
    counts = [(count, _COUNT_NOUNS[key]) for key, count in summary if count]
    words = [
        f"{count} {singular if count == 1 else plural}" for count, (singular, plural) in counts
    ]
    if delta.nodes.reordered:
        words.append("different node order (--ignore order)")
    if delta.changes:
        words.append("properties of the whole graph")
    return ", ".join(words) or "the same nodes"


_COUNT_NOUNS: Final = {
    "added": ("node added", "nodes added"),
    "removed": ("node removed", "nodes removed"),
    "changed": ("node changed", "nodes changed"),
    "functions_added": ("function added", "functions added"),
    "functions_removed": ("function removed", "functions removed"),
    "functions_changed": ("function changed", "functions changed"),
}
_STYLES: Final = {"-": "red", "+": "green", "~": "yellow"}


class _DiffPrinter:
    def __init__(self, out: Page, full: bool, indent: str = "", hint: str = _FULL_HINT) -> None:
        self.out = out
        self.full = full
        self.indent = indent
        self.hint = hint
        self.values = AttrPrinter()

    def nodes(self, delta: NodesDiff) -> None:
        """Print the nodes that differ."""
        self.several("-", delta.removed, self.node)
        self.several("+", delta.added, self.node)
        for item in self.capped("~", self.shown(delta.changed), len(delta.changed)):
            self.changed(item)
        if delta.reordered and self.indent:
            self.out.line(f"{self.indent}different node order", "dim")

    def several(self, sign: str, items: Sequence[Any], describe: Callable[[Any], str]) -> None:
        """Print one line per item, each preceded by a sign, long names below a common scope."""
        texts = [describe(item) for item in self.shown(items)]
        common = CommonScope("", {}) if self.full else common_scope(texts)
        if common.scope:
            self.folded([(f"{self.indent}{sign} below {common.scope}:", "dim")])
        for text in self.capped(sign, texts, len(items)):
            self.folded([(f"{self.indent}{sign} {common.text(text)}", _STYLES[sign])])

    def shown(self, items: Sequence[Any]) -> Sequence[Any]:
        """The items that are printed."""
        return items if self.full else items[:MAX_SHOWN]

    def capped(self, sign: str, shown: Sequence[Any], count: int) -> Iterator[Any]:
        """Yield the first of some items, then print the number of the rest."""
        yield from shown
        if count > len(shown):
            more = count - len(shown)
            self.out.line(f"{self.indent}{sign} and {more} more{self.hint}", "dim")

    def node(self, node: Node) -> str:
        """Describe a node in one line."""
        inputs = [item.name if item.port else item.node.name for item in node.inputs]
        inputs += [f"^{item.name}" for item in node.controls]
        shown = node.attrs if self.full else significant_attrs(node)
        attrs = ", ".join(f"{key}={self.side(value)}" for key, value in shown.items())
        line = f"{node.name} = {node.op}({', '.join(inputs)})"
        line += f" {{{attrs}}}" if attrs else ""
        return f"{line} on {node.device}" if node.device else line

    def changed(self, item: ChangedNode) -> None:
        """Print a node with the parts that differ."""
        renamed = "" if item.before.name == item.after.name else f" -> {item.after.name}"
        op = f" ({item.after.op})" if item.before.op == item.after.op else ""
        self.folded([(f"{self.indent}~ {item.before.name}{renamed}{op}", "yellow")])
        _DiffPrinter(self.out, self.full, f"{self.indent}    ").parts(item.changes)

    def parts(self, changes: Iterable[Change]) -> None:
        """Print the old and the new side of each change."""
        for change in changes:
            old, new = self.side(change.before), self.side(change.after)
            pieces = [(f"{self.indent}{change.part}: ", "")]
            pieces += [(f"- {old}", "red")] if change.before is not None else []
            pieces += [("  ", "")] if None not in (change.before, change.after) else []
            pieces += [(f"+ {new}", "green")] if change.after is not None else []
            self.folded(pieces)

    def folded(self, pieces: Sequence[tuple[str, str]]) -> None:
        """Print a line of pieces, continued below the text after its sign or indent."""
        self.out.folded_spans(pieces, len(self.indent) + 2)

    def side(self, value: Any) -> str:
        """Format one side of a change."""
        return side_text(value, self.values, self.full)


def print_changes(out: Page, changes: Iterable[Change], indent: str) -> None:
    """Print the changes of a node."""
    _DiffPrinter(out, False, indent).parts(changes)


def significant_attrs(node: Node) -> dict[str, Any]:
    """Return the attributes except annotations, defaults, and types that follow from the inputs."""
    inferred = DType if node.inputs else ()
    return {
        key: value
        for key, value in node.attrs.items()
        if not (
            key.startswith("_") or isinstance(value, inferred) or is_default_attr(node, key, value)
        )
    }


def side_text(value: Any, printer: AttrPrinter | None = None, full: bool = False) -> str:
    """Format one side of a change: a name, or an attribute in the text format.

    Without `full`, long values are truncated.
    """
    if isinstance(value, str):
        return value or "''"
    if not full and isinstance(value, TensorValue) and (value.shape.elements or 0) > _MAX_VALUE:
        return f"{value.dtype}{value.shape}:…"
    text = attr_text(value, printer or AttrPrinter())
    return text if full or len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + "…"


def attr_text(value: Any, printer: AttrPrinter) -> str:
    """Return an attribute in the text format."""
    return "" if value is None else printer.value_text(value)


def structure_report(delta: GraphDiff) -> StructureReport:
    """Return the differences as a member of a document."""
    printer = AttrPrinter()
    functions = [
        ChangedFunctionReport(
            item.name, change_reports(item.changes, printer), _nodes_report(item.nodes, printer)
        )
        for item in delta.functions_changed
    ]
    return StructureReport(
        not delta,
        _nodes_report(delta.nodes, printer),
        FunctionsReport(delta.functions_added, delta.functions_removed, functions),
        change_reports(delta.changes, printer),
    )


def _nodes_report(delta: NodesDiff, printer: AttrPrinter) -> NodesReport:
    added, removed = (
        [NamedNode(node.name, node.op) for node in nodes] for nodes in (delta.added, delta.removed)
    )
    changed = [
        ChangedNodeReport(
            item.before.name,
            item.after.name,
            item.after.op,
            change_reports(item.changes, printer),
        )
        for item in delta.changed
    ]
    return NodesReport(added, removed, changed, delta.renamed, delta.reordered)


def change_reports(
    changes: Iterable[Change], printer: AttrPrinter | None = None
) -> list[ChangeReport]:
    """Return the changes of a node as members of a document."""
    text = partial(_attr_side, printer=printer or AttrPrinter())
    return [
        ChangeReport(change.part, text(change.before), text(change.after)) for change in changes
    ]


def _attr_side(value: Any, printer: AttrPrinter) -> str | None:
    return value if value is None or isinstance(value, str) else attr_text(value, printer)


FORMATS: Final = ("text", "json", *CI_FORMATS)
SourcePair = tuple[Source, Source]
# writes a page of two graphs, with a formatter of values
WritePage = Callable[[SourcePair, GraphDiff, Callable[[Any], str]], None]


class NodeDataWriter(Protocol):
    """Writer of a file with the differences of each node."""

    def write_nodes(self, sources: SourcePair, delta: GraphDiff) -> None:
        """Write the kinds of differences between nodes."""

    def write_runs(self, sources: SourcePair, delta: RunDiff) -> None:
        """Write the first node that differs in a run, and the fetches that do."""


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """Options of `diff`: how nodes are matched, run inputs, and output format."""

    by: str = "name"
    ignore: tuple[str, ...] = ()
    run: bool = False
    runs: ComparedRuns = field(default_factory=ComparedRuns)
    format: str = "text"
    full: bool = False
    color: Color = Color.auto
    write_page: WritePage | None = None
    node_data: NodeDataWriter | None = None


CompareSources = Callable[[SourcePair, DiffOptions], int]


def diff_files(a: str, b: str, options: DiffOptions, compare: CompareSources) -> int:
    """Read two graphs and `compare` them; returns the exit code, 1 if they differ.

    Raises UsageError for options that exclude each other.
    """
    require_diff_options(options)
    if a == b == STDIN:
        raise UsageError("standard input can be read only once")
    sources = read_graph(a), read_graph(b)
    return compare(sources, options)


def missing_side(no_mode_options: bool) -> UsageError:
    """Return the error for a graph without another one, or for options of modes without --with."""
    if no_mode_options:
        return UsageError(
            "a second graph is missing", hint="name it, or add --run --with tensorflow"
        )
    message = "--against and --run-timeout apply to a comparison with TensorFlow"
    return UsageError(message, hint="add --with tensorflow")


def require_diff_options(options: DiffOptions) -> None:
    """Raise UsageError for options that exclude each other."""
    if options.format not in FORMATS:
        raise UsageError(
            f"unknown format {options.format!r}", hint=f"use one of {', '.join(FORMATS)}"
        )
    if options.run and (options.by != MATCH_MODES[0] or options.ignore):
        message = "--by and --ignore apply to the comparison of nodes, not to --run"
        raise UsageError(message, hint="use --by and --ignore without --run")
    if options.node_data and options.by != MATCH_MODES[0]:
        message = "--node-data shows differences by name, not by structure"
        raise UsageError(message, hint="remove --by structure, or --node-data")
    if options.run and options.write_page:
        message = "--html shows the comparison of nodes, not that of --run"
        raise UsageError(message, hint="use --html without --run")
    if options.runs.is_set and not options.run:
        message = "feeds, fetches and other run options require --run"
        raise UsageError(message, hint="add --run")


def _asset_changes(sources: SourcePair) -> Iterator[Change]:
    """The files of two SavedModels that differ, by the nodes that are fed with their paths."""
    before, after = map(saved_model_assets, sources)
    for node in sorted(before.keys() & after.keys()):
        old, new = (_content_text(Path(paths[node])) for paths in (before, after))
        if old != new:
            yield Change(f"asset of {node}", old, new)


def _content_text(path: Path) -> str:
    """The name, size, and digest of a file."""
    if not path.is_file():
        return f"{path.name}, missing"
    data = path.read_bytes()
    import hashlib

    return f"{path.name}, {len(data)} B, sha256 {hashlib.sha256(data).hexdigest()[:12]}"


def compare_nodes(sources: SourcePair, options: DiffOptions) -> int:
    """Compare two graphs node by node."""
    delta = diff(sources[0].graph, sources[1].graph, by=options.by, ignore=options.ignore)
    delta = replace(delta, changes=(*delta.changes, *_asset_changes(sources)))
    if options.write_page:
        options.write_page(sources, delta, side_text)
    if options.node_data:
        options.node_data.write_nodes(sources, delta)
    return print_diff_result(
        sources,
        options,
        Comparison(
            differs=bool(delta),
            findings=diff_findings(delta, side_text),
            document=lambda: (DiffResult(structure_report(delta)), nodes_summary(delta)),
            text=lambda: print_diff(page(options.color), delta, sources, options.full),
        ),
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison: findings, result and summary of the document, and a printer of the text."""

    differs: bool
    findings: Sequence[Finding]
    document: Callable[[], tuple[DiffResult, DiffSummary]]
    text: Callable[[], None]


def print_diff_result(sources: SourcePair, options: DiffOptions, result: Comparison) -> int:
    """Print in the requested format; returns the exit code.

    CI formats attribute the findings to the second graph.
    """
    code = int(result.differs)
    if options.format in CI_FORMATS:
        subject = FindingSubject(sources[1].path, result.findings)
        print(CI_FORMATS[options.format]("diff", [subject], "error"), end="")
    elif options.format == "json":
        document, summary = result.document()
        print_document(
            document,
            inputs=sources,
            summary=summary,
            findings=result.findings,
            artifacts=partial_document().get("artifacts", []),
            exit_code=code,
        )
    else:
        result.text()
    return code
