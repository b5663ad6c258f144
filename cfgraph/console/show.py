"""The `show` command: summary, sections, or one node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.analysis.summary import (
    LibraryFunctionSummary,
    Summary,
    next_command,
    summarize,
)
from cfgraph.analysis.verify.verify import structural_errors, unused_branch_hint
from cfgraph.cli.json_output import Artifact, print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, Page, note, page, report_table, tab_separated
from cfgraph.console.graph_files import (
    Source,
    read_graph,
    saved_model_assets,
    saved_model_contents,
    saved_model_state_of,
    saved_variables_note,
)
from cfgraph.console.views import show_tables as tables
from cfgraph.console.views.modules import module_summaries, modules_table
from cfgraph.console.views.saved_model_summary import (
    SavedModelSummary,
    signature_reports,
    signatures_table,
    summarize_saved_model,
)
from cfgraph.console.views.selection import (
    GraphView,
    NodeSelection,
    filter_hint,
    find_node,
    nodes_to_show,
)
from cfgraph.console.views.show_tables import (
    FRAME_COLUMNS,
    DeviceRow,
    FrameRow,
    NodeRow,
    OpRow,
    contents_table,
    partitions_table,
    routes_table,
    sent_tensors_table,
)
from cfgraph.errors import UsageError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.names import first_names
from cfgraph.ir.traversal import is_partitioned
from cfgraph.ir.units import format_byte_size, format_count
from cfgraph.ops.opdef.op import is_functional, is_stateful, lookup

# late imports: a short text needs no parts of documents, and few graphs have loops, tables, parts

if TYPE_CHECKING:
    from cfgraph.analysis.partitions import Partitions
    from cfgraph.analysis.table_contents import TableContents
    from cfgraph.console.documents import ModuleSummary
    from cfgraph.console.picture.pages import PictureFiles
    from cfgraph.console.views.loop_views import LoopView
    from cfgraph.console.views.show_result import ShowResult


MAX_LISTED: Final = 20
_MAX_SIGNATURE: Final = 88
# prints a table below a title, with a remark after that
_Section = Callable[..., None]


def print_summary(
    out: Page,
    source: Source,
    summary: Summary,
    commands: Sequence[str],
    parts: Partitions | None,
    saved: SavedModelSummary | None,
    modules: Sequence[ModuleSummary] = (),
    found_tables: Sequence[TableContents] = (),
    full: bool = False,
) -> None:
    """Print a summary and the suggested next commands.

    `parts` is set for a partitioned graph, `saved` for a SavedModel, whose signatures replace the
    likely inputs and outputs. `modules` are StableHLO modules, and
    `found_tables` lookup tables.
    """
    section = partial(_print_section, out, full)
    out.heading(source.path, _counts_text(source, summary))
    if saved is not None:
        _print_saved_model(out, section, saved)
    _print_ops(out, summary)
    _print_loops_and_functions(section, summary)
    if modules:
        section("modules", modules_table(modules))
    if found_tables:
        section("tables", contents_table(found_tables), _filling_text(found_tables, saved))
    if parts is not None:
        _print_parts(out, section, parts, full)
    elif any(name for name in summary.devices):
        section("devices", tables.devices_table(summary))
    if saved is None or not saved.contents.signatures:
        _print_endpoints(out, section, summary, full)
    _print_remarks(out, summary)
    out.line()
    out.heading("next")
    for command in commands:
        out.command(command, "green")


def _print_saved_model(out: Page, section: _Section, saved: SavedModelSummary) -> None:
    if saved.contents.signatures:
        section("signatures", signatures_table(saved.contents))
    if saved.variables.variables:
        out.line()
        out.heading("variables", str(saved.variables))


def _print_loops_and_functions(section: _Section, summary: Summary) -> None:
    if summary.frames:
        section("loops", tables.frames_table(summary.frames))
    if summary.functional_loops:
        section("functional loops", tables.functional_loops_table(summary.functional_loops))
    if summary.functions:
        section("functions", tables.functions_table(summary.functions, _MAX_SIGNATURE))


def _filling_text(found: Sequence[TableContents], saved: SavedModelSummary | None) -> str:
    if saved is not None and saved.contents.initializer is not None:
        return "a run fills them first"
    if all(table.filled_by is None for table in found):
        return "each lookup fails, as no node fills them"
    return "empty until --init runs what fills them"


def _print_parts(out: Page, section: _Section, parts: Partitions, full: bool) -> None:
    section("devices", partitions_table(parts))
    section("messages", routes_table(parts.routes))
    if parts.tensors:
        section("sent tensors", sent_tensors_table(parts))
    for device, names in parts.missing.items():
        listed = first_names(names, len(names) if full else MAX_LISTED)
        text = f"the part of {short_device_name(device)} is missing, and must send {listed}"
        out.line()
        out.line(out.wrapped(text), "yellow")


def _print_endpoints(out: Page, section: _Section, summary: Summary, full: bool) -> None:
    for title, endpoints in (("inputs", summary.inputs), ("outputs", summary.outputs)):
        if endpoints:
            section(title, tables.endpoints_table(endpoints))
    if summary.targets:
        out.line()
        out.heading("targets", "run for their side effects")
        hidden = 0 if full else len(summary.targets) - MAX_LISTED
        more = [f"and {hidden} more"] if hidden > 0 else []
        out.items([*summary.targets[: MAX_LISTED if more else None], *more])


def _counts_text(source: Source, summary: Summary) -> str:
    parts = [format_count(summary.nodes, "node"), format_count(summary.edges, "edge")]
    if summary.control_edges:
        parts.append(format_count(summary.control_edges, "control edge"))
    if summary.constant_bytes >= _KILO:
        parts.append(f"{format_byte_size(summary.constant_bytes)} of constants")
    parts.append(f"{source.format}, producer {summary.producer}")
    return ", ".join(parts)


_KILO: Final = 1024


def _print_ops(out: Page, summary: Summary) -> None:
    out.line()
    out.heading("ops", format_count(len(summary.ops), "kind"))
    out.items([f"{op} {count}" for op, count in summary.ops.items()])


def _print_section(out: Page, full: bool, title: str, table: OutputTable, detail: str = "") -> None:
    out.line()
    hidden = 0 if full else len(table.rows) - MAX_LISTED
    rows = table.rows[:MAX_LISTED] if hidden > 0 else table.rows
    out.heading(title, detail)
    out.table(OutputTable(table.columns, rows, table.headings))
    if hidden > 0:
        out.line(f"  and {hidden} more; --full prints them", "dim")


def _print_remarks(out: Page, summary: Summary) -> None:
    if summary.faults:
        out.line()
        out.line(
            f"{format_count(summary.faults, 'fault')} in loops; `cfgraph check` lists them", "red"
        )
    if summary.unrunnable_ops:
        out.line()
        first, *others = summary.unrunnable_ops
        out.items([f"not runnable because of {first}", *others], "yellow")
        if any(lookup(op) is None for op in summary.unrunnable_ops):
            out.line("  --op-def FILE declares ops of a library", "yellow")


FORMATS: Final = ("text", "json", "tsv", "dot")
_MODULES: Final = "modules"
SECTIONS: Final = ("nodes", "ops", "frames", "functions", "devices", _MODULES)


class GraphFileWriter(Protocol):
    """Writer of the file of a graph in the format of another program."""

    def write(self, whole: GraphView, source: str) -> None:
        """Write a graph that was read from `source`."""

    def artifacts(self) -> list[Artifact]:
        """The entries of its files in a JSON document."""


_COLUMNS: Final[Mapping[str, tuple[Any, ...]]] = {
    "nodes": (NodeRow, "name", "op", "live", "outputs", "frame", "device", "inputs"),
    "ops": (OpRow, "op", "nodes", "support"),
    "frames": (FrameRow, "path", *FRAME_COLUMNS),
    "functions": (LibraryFunctionSummary, *tables.FUNCTION_COLUMNS),
    "devices": (DeviceRow, "device", "nodes", "control_loops", "once", "iteration"),
}


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """Content of the output: sections, one node, or by default a summary.

    With `deadness`, nodes show their liveness; with `pictures`, only what is requested explicitly
    is printed in addition to the files.
    """

    sections: tuple[str, ...] = ()
    node: str | None = None
    filters: tuple[str, ...] = ()
    format: str = "text"
    full: bool = False
    color: Color = Color.auto
    deadness: bool = False
    pictures: PictureFiles | None = None
    model_explorer: GraphFileWriter | None = None
    loop: str | None = None


def show(path: str, options: ShowOptions) -> None:
    """Print a graph. Raises UsageError for an unknown node, loop, filter or format."""
    if options.format not in FORMATS:
        raise UsageError(
            f"unknown format {options.format!r}", hint=f"use one of {', '.join(FORMATS)}"
        )
    _ShowCommand(read_graph(path), options).print()


class _ShowCommand:
    """One invocation of `show`; costly analyses are done on first use."""

    def __init__(self, source: Source, options: ShowOptions) -> None:
        self.source = source
        self.graph = source.graph
        self.options = options
        self.whole = GraphView(source.graph)
        self._summary: Summary | None = None
        self._parts: Partitions | None = None
        self._saved: SavedModelSummary | None = None

    @property
    def summary(self) -> Summary:
        """The summary of the graph."""
        if self._summary is None:
            self._summary = summarize(self.graph, self.whole.frames)
        return self._summary

    @property
    def saved(self) -> SavedModelSummary | None:
        """The summary of a SavedModel."""
        if self._saved is None and (contents := saved_model_contents(self.source)):
            self._saved = summarize_saved_model(self.graph, self.source.path, contents)
        return self._saved

    @property
    def parts(self) -> Partitions | None:
        """The parts of a partitioned graph."""
        if self._parts is None and self.whole.is_analyzable and is_partitioned(self.graph):
            from cfgraph.analysis.partitions import device_partitions

            self._parts = device_partitions(self.graph, self.whole.frames)
        return self._parts

    @cached_property
    def loop(self) -> LoopView | None:
        """The loop that is shown alone."""
        name = self.options.loop
        if name is None:
            return None
        from cfgraph.console.signatures import signature_names
        from cfgraph.console.views.loop_views import find_loop

        return find_loop(signature_names(self.source), name)

    @cached_property
    def modules(self) -> list[ModuleSummary]:
        """The StableHLO modules of the graph and its functions, which are read on request."""
        return module_summaries(self.graph, reads=_MODULES in self.options.sections)

    @cached_property
    def tables(self) -> list[TableContents]:
        """The lookup tables of the graph that are filled once."""
        if not self.whole.is_analyzable or not any(map(is_stateful, self.graph)):
            return []
        from cfgraph.analysis.table_contents import FEW_ROWS, MANY_ROWS, table_contents

        limit = MANY_ROWS if self.options.full or self.options.format == "json" else FEW_ROWS
        return table_contents(self.graph, saved_model_assets(self.source), limit)

    def print(self) -> None:
        """Print or write what the options request."""
        options = self.options
        if not self.whole.is_analyzable:
            skipped = "shapes, messages, and liveness are not analyzed"
            note(f"note: the graph is invalid: {skipped}; `cfgraph check` lists the errors")
            if hint := unused_branch_hint(self.graph, structural_errors(self.graph)):
                note(f"hint: {hint}")
        chosen = self.chosen()
        if options.pictures:
            view = self.whole if self.loop is None else self.loop.view
            options.pictures.write(self.source, view, chosen, options.node)
        if options.model_explorer is not None:
            options.model_explorer.write(self.whole, self.source.path)
        written = [entry.path for entry in self.artifacts()]
        if written and options.format == "text" and not options.sections:
            note(f"wrote {' and '.join(written)}")
            return
        if options.format == "dot":
            from cfgraph.console.views.dot import graph_dot

            print("\n".join(graph_dot(chosen, options.deadness)))
        elif options.format == "json":
            result, artifacts = self.result(chosen), self.artifacts()
            print_document(result, inputs=[self.source], artifacts=artifacts)
        elif options.format == "tsv":
            for section in self.sections() or ("nodes",):
                print("\n".join(tab_separated(self.table(section, chosen, tree=False))))
        else:
            self.text(page(options.color), chosen)

    def artifacts(self) -> list[Artifact]:
        """Return the entries of the written files in a JSON document."""
        writers = (self.options.pictures, self.options.model_explorer)
        return [entry for writer in writers if writer for entry in writer.artifacts()]

    def chosen(self) -> list[NodeSelection]:
        """Return the nodes that pass the filters, the named one, or those of the loop."""
        if self.loop is not None:
            return [self.loop.nodes]
        if self.options.node is not None:
            from cfgraph.console.signatures import signature_names

            names = signature_names(self.source)
            return [find_node(self.whole, names.tensor(self.options.node), names.nodes)]
        return nodes_to_show(self.whole, self.options.filters)

    def sections(self) -> tuple[str, ...]:
        """Return the requested sections; a filter or deadness alone implies the nodes."""
        lists_nodes = self.options.filters or self.options.deadness or self.options.loop
        return self.options.sections or (("nodes",) if lists_nodes else ())

    def rows(self, section: str, chosen: list[NodeSelection], tree: bool) -> Sequence[Any]:
        """Return the rows of a section."""
        if section == "nodes":
            return tables.node_rows(chosen, self.options.deadness)
        if section == "ops":
            return tables.op_rows(self.graph, chosen)
        if section == "frames":
            return tables.frame_rows(self.summary.frames, tree)
        if section == "functions":
            return self.summary.functions
        if section == _MODULES:
            return self.modules
        return tables.partition_rows(self.parts) if self.parts else tables.device_rows(self.summary)

    def table(self, section: str, chosen: list[NodeSelection], tree: bool = True) -> OutputTable:
        """Return the table of a section."""
        if section == _MODULES:
            return modules_table(self.modules)
        kind, *names = _COLUMNS[section]
        if section == "nodes" and not self.options.deadness:
            names.remove("live")
        if section == "nodes" and self.loop is not None:
            names.remove("frame")
        if section == "frames" and tree:
            names[0] = "loop"
        if section == "devices" and not self.parts:
            names = names[:2]
        return report_table(kind, self.rows(section, chosen, tree), *names)

    def result(self, chosen: list[NodeSelection]) -> ShowResult:
        """Return the result of the JSON document."""
        from cfgraph.console.views.show_result import (
            PartsReport,
            ShownNodes,
            ShownSections,
            ShownSummary,
            ShowResult,
        )
        from cfgraph.console.views.shown_node import node_report

        options = self.options
        if options.node is not None:
            nodes = [
                node_report(selection.view, node, options.full, options.deadness)
                for selection in chosen
                for node in selection.nodes
            ]
            return ShowResult(node=ShownNodes(nodes))
        if sections := self.sections():
            rows = {name: self.rows(name, chosen, tree=False) for name in sections}
            loop = self.loop
            shown = ShownSections(
                **rows,
                variables=None if loop is None else loop.variables,
                condition=None if loop is None else loop.condition,
            )
            return ShowResult(sections=shown)
        saved, parts = self.saved, self.parts
        return ShowResult(
            ShownSummary(
                self.summary,
                None
                if parts is None
                else PartsReport(parts.parts, parts.routes, parts.tensors, parts.missing),
                self.modules or None,
                self.tables or None,
                None if saved is None else signature_reports(saved.contents),
                None if saved is None else saved.commands,
                self.next_command(),
            )
        )

    def text(self, out: Page, chosen: list[NodeSelection]) -> None:
        """Print the node, the requested sections, or the summary as text."""
        if self.options.node is not None:
            from cfgraph.console.views.shown_node import print_node

            for selection in chosen:
                for node in selection.nodes:
                    print_node(out, selection.view, node, self.options.full, self.options.deadness)
        elif sections := self.sections():
            if self.loop is not None:
                from cfgraph.console.views.loop_views import print_loop

                print_loop(out, self.loop)
            for index, section in enumerate(sections):
                if len(sections) > 1:
                    out.heading(f"{'' if index == 0 else chr(10)}{section}")
                self.section(out, section, chosen)
        else:
            saved = self.saved
            commands = saved.commands if saved and saved.commands else [self.next_command()]
            more = self.modules, self.tables
            print_summary(
                out,
                self.source,
                self.summary,
                commands,
                self.parts,
                saved,
                *more,
                self.options.full,
            )
            if self.source.format == "saved_model":
                note(saved_variables_note(self.source))

    def next_command(self) -> str:
        """Suggest the next command."""
        if self.saved and self.saved.commands:
            return self.saved.commands[-1]
        restored = saved_model_state_of(self.source) is not None
        return next_command(self.graph, self.source.path, self.summary, restored=restored)

    def section(self, out: Page, section: str, chosen: list[NodeSelection]) -> None:
        """Print one section, or why it is empty."""
        table = self.table(section, chosen)
        if table.rows:
            out.table(table)
        else:
            note(f"no {section}" + (" match the filters" if self.options.filters else ""))
            if hint := filter_hint(self.graph, self.options.filters):
                note(f"hint: {hint}")
            if self.options.filters and self.graph.functions:
                note("hint: --filter 'function:*' selects the nodes of functions")
            if section == "frames" and is_functional(self.graph, self.graph):
                note("hint: functional loops have no frame; lower them first (`cfgraph lower`)")
