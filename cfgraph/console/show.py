"""Show what is in a graph: a summary, or tables of its nodes, ops, loops, functions, devices."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from cfgraph.analysis.partitions import Partitions, device_partitions
from cfgraph.analysis.summary import Summary, next_command, summarize
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.console import show_tables as tables
from cfgraph.console.answer import print_document
from cfgraph.console.devices import parts_json, parts_table
from cfgraph.console.dot import dot_lines
from cfgraph.console.graphs import Source, read_graph
from cfgraph.console.page import Page, note, page
from cfgraph.console.saved_model import variables_note, variables_of
from cfgraph.console.show_node import node_json, print_node
from cfgraph.console.show_summary import print_summary
from cfgraph.console.tables import Table, tab_separated
from cfgraph.console.view import Chosen, View, choose, find, near_misses
from cfgraph.errors import UsageError
from cfgraph.ops.functional import is_functional
from cfgraph.options import Color

if TYPE_CHECKING:  # they are dear to load
    from cfgraph.console.picture.show_files import Pictures

FORMATS: Final = ("text", "json", "tsv", "dot")
SECTIONS: Final = ("nodes", "ops", "frames", "functions", "devices")


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """What to show: some sections, one node, or, without either, a summary.

    With `deadness` also when each node runs; with `pictures` files, and of the rest only what is
    asked for.
    """

    sections: tuple[str, ...] = ()
    node: str | None = None
    filters: tuple[str, ...] = ()
    format: str = "text"
    full: bool = False
    color: Color = Color.auto
    deadness: bool = False
    pictures: Pictures | None = None


def show(path: str, options: ShowOptions) -> None:
    """Print what is in a graph. Raises UsageError for an unknown node, filter or format."""
    if options.format not in FORMATS:
        raise UsageError(f"unknown format {options.format!r}", hint=f"one of {', '.join(FORMATS)}")
    _Show(read_graph(path), options).print()


class _Show:
    """One `show`; what is costly is found out when it is asked for."""

    def __init__(self, source: Source, options: ShowOptions) -> None:
        self.source = source
        self.graph = source.graph
        self.options = options
        self.whole = View(source.graph)
        self._summary: Summary | None = None
        self._parts: Partitions | None = None

    @property
    def summary(self) -> Summary:
        """The summary, made once."""
        if self._summary is None:
            self._summary = summarize(self.graph, self.whole.found)
        return self._summary

    @property
    def parts(self) -> Partitions | None:
        """The parts of a partitioned graph, found once."""
        if self._parts is None and is_partitioned(self.graph):
            self._parts = device_partitions(self.graph, self.whole.found)
        return self._parts

    def print(self) -> None:
        """Print what the options say."""
        options = self.options
        chosen = self.chosen()
        if options.pictures:
            options.pictures.write(self.source, self.whole, chosen, options.node)
            if options.format == "text" and not options.sections:
                note(f"wrote {' and '.join(options.pictures.paths)}")
                return
        if options.format == "dot":
            print("\n".join(dot_lines(chosen, options.deadness)))
        elif options.format == "json":
            result = self.result(chosen)
            print_document(
                "show",
                inputs=[self.source.to_json()],
                result=result,
                artifacts=options.pictures.artifacts() if options.pictures else [],
            )
        elif options.format == "tsv":
            for section in self.sections() or ("nodes",):
                print("\n".join(tab_separated(self.table(section, chosen, tree=False))))
        else:
            self.text(page(options.color), chosen)

    def chosen(self) -> list[Chosen]:
        """The nodes that the filters leave, or the one that is named."""
        if self.options.node is not None:
            return [find(self.whole, self.options.node)]
        return choose(self.whole, self.options.filters)

    def sections(self) -> tuple[str, ...]:
        """The sections that are asked for; a filter or deadness alone asks for the nodes."""
        asked = self.options.filters or self.options.deadness
        return self.options.sections or (("nodes",) if asked else ())

    def table(self, section: str, chosen: list[Chosen], tree: bool = True) -> Table:
        """The table of a section."""
        if section == "nodes":
            return tables.nodes_table(chosen, self.options.deadness)
        if section == "ops":
            return tables.ops_table(self.graph, chosen)
        if section == "frames":
            return tables.frames_table(self.summary.frames, tree)
        if section == "functions":
            return tables.functions_table(self.summary.functions)
        return parts_table(self.parts) if self.parts else tables.devices_table(self.summary)

    def result(self, chosen: list[Chosen]) -> dict[str, Any]:
        """The `result` member of the JSON document."""
        if self.options.node is not None:
            return {
                "nodes": [
                    node_json(some.view, node, self.options.full, self.options.deadness)
                    for some in chosen
                    for node in some.nodes
                ]
            }
        if sections := self.sections():
            return {name: self.table(name, chosen, tree=False).to_json() for name in sections}
        found = asdict(self.summary)
        for name in ("ops", "devices"):
            found[name] = dict(found[name])
        if self.parts:
            found["parts"] = parts_json(self.parts)
        return {**found, "next": self.next_command()}

    def text(self, out: Page, chosen: list[Chosen]) -> None:
        """Print as text."""
        if self.options.node is not None:
            for some in chosen:
                for node in some.nodes:
                    print_node(out, some.view, node, self.options.full, self.options.deadness)
        elif sections := self.sections():
            for place, section in enumerate(sections):
                if len(sections) > 1:
                    out.heading(f"{'' if place == 0 else chr(10)}{section}")
                self.section(out, section, chosen)
        else:
            command = self.next_command()
            print_summary(out, self.source, self.summary, command, self.parts)
            if self.source.format == "saved_model":
                note(variables_note(self.source))

    def next_command(self) -> str:
        """What to type next."""
        restored = variables_of(self.source) is not None
        return next_command(self.graph, self.source.path, self.summary, restored=restored)

    def section(self, out: Page, section: str, chosen: list[Chosen]) -> None:
        """Print one section, or say that there is nothing in it."""
        table = self.table(section, chosen)
        if table.rows:
            out.table(table)
        else:
            note(f"no {section}" + (" pass the filters" if self.options.filters else ""))
            if hint := near_misses(self.graph, self.options.filters):
                note(f"hint: {hint}")
            if self.options.filters and self.graph.functions:
                note("hint: --filter 'function:*' looks at the nodes of functions")
            if section == "frames" and is_functional(self.graph, self.graph):
                note("hint: a functional loop has none; `cfgraph lower` turns it into one")
