"""`convert-check`: which nodes a converter refuses, and which commands mend it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.cli.json_output import print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, Page, hidden_notes, page
from cfgraph.cli.transform_options import FetchOptions
from cfgraph.console.comparison_inputs import requested_fetches
from cfgraph.console.graph_files import Source, read_graph, saved_model_contents
from cfgraph.console.signatures import signature_names
from cfgraph.errors import CfgraphError
from cfgraph.integrations.converters.refusals import (
    FREEZE,
    FUNCTIONALIZE,
    Converter,
    JudgedNode,
    find_converter,
    judged_nodes,
)
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.passes.functionalize.functionalize import functionalize
from cfgraph.reports import Column, Count, DocumentResult, Record


class ConvertCheckSummary(Record):
    """The numbers of nodes that the converter refuses, and of those that it may refuse."""

    refused: Count
    risky: Count
    unknown: Count


class MendingCommand(Record):
    """A command that mends some nodes, and what the converter refuses of its result."""

    command: str
    #: Of the result of this command and those before it; null if it needs variables.
    remaining: Sequence[JudgedNode] | None


class ConvertCheckResult(DocumentResult, command="convert-check", summary=ConvertCheckSummary):
    """The nodes of a graph that a converter refuses, and the commands that mend it."""

    converter: str
    version: str  #: Of the converter whose ops were measured.
    nodes: Sequence[JudgedNode]
    commands: Sequence[MendingCommand]


@dataclass(frozen=True, slots=True)
class CheckedConversion:
    """The nodes of a graph that may not convert, and the commands that mend it."""

    source: Source
    converter: Converter
    nodes: Sequence[JudgedNode]
    commands: Sequence[MendingCommand] = field(default_factory=tuple)

    def count(self, verdict: str) -> int:
        """The number of nodes with a verdict."""
        return sum(item.verdict == verdict for item in self.nodes)

    @property
    def exit_code(self) -> int:
        """1 if the converter refuses a node."""
        return int(self.count("refused") > 0)

    def document(self) -> tuple[ConvertCheckResult, ConvertCheckSummary]:
        """The JSON document, and its summary."""
        converter = self.converter
        result = ConvertCheckResult(converter.name, converter.version, self.nodes, self.commands)
        counts = [self.count(verdict) for verdict in ("refused", "risky", "unknown")]
        return result, ConvertCheckSummary(*counts)

    def show(self, out: Page, full: bool) -> None:
        """Print the nodes by op and reason, and the commands with what remains."""
        out.heading(self.source.path, f"for {self.converter.name}, as of {self.converter.version}")
        if not self.nodes:
            out.line("nothing is refused", "green")
            return
        _show_nodes(out, self.nodes, full)
        for item in self.commands:
            out.line("")
            out.line(item.command)
            if item.remaining is None:
                continue
            if not item.remaining:
                out.line("  nothing is refused then", "green")
            else:
                out.line("  then remains", "yellow")
                _show_nodes(out, item.remaining, full)


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
    path: str, target: str, fetches: FetchOptions, signature: str | None
) -> CheckedConversion:
    """Judge what the outputs of a graph need. Raises UsageError for unknown names."""
    converter, source = find_converter(target), read_graph(path)
    names = signature_names(source, signature)
    with hidden_notes():
        request = requested_fetches(source.graph, fetches, names)
        if not fetches.is_set:
            request.default()
    outputs = [*(tensor.node for tensor in request.tensors), *request.targets]
    is_saved_model = saved_model_contents(source) is not None
    judged = judged_nodes(source.graph, outputs, converter, frozen=is_saved_model)
    fetched = [tensor.name for tensor in request.tensors]
    commands = tuple(_mending_commands(source, judged, converter, fetched, fetches))
    return CheckedConversion(source, converter, judged, commands)


def _mending_commands(
    source: Source,
    judged: Sequence[JudgedNode],
    converter: Converter,
    fetched: Sequence[str],
    fetches: FetchOptions,
) -> Iterator[MendingCommand]:
    wanted = {item.mended_by for item in judged}
    path, options = source.path, [f"--fetch={name}" for name in fetches.fetch]
    if FREEZE in wanted:
        words = ["cfgraph", FREEZE, path, "--variables", "CHECKPOINT", *options]
        path = "frozen.pb"
        yield MendingCommand(shlex.join([*words, "-o", path]), None)
    if FUNCTIONALIZE not in wanted:
        return
    words = ["cfgraph", FUNCTIONALIZE, path, "--target", "converter", *options]
    command = shlex.join([*words, "-o", "functional.pb"])
    yield MendingCommand(command, _remaining(source.graph, converter, fetched))


def _remaining(
    graph: Graph, converter: Converter, fetched: Sequence[str]
) -> list[JudgedNode] | None:
    """The nodes of the functionalized graph that it refuses; None if that is not valid."""
    copy = copy_graph(graph)
    try:
        functionalize(copy, fetched, target="converter")
    except CfgraphError:
        return None
    outputs = [copy.tensor(name).node for name in fetched]
    return judged_nodes(copy, outputs, converter, frozen=True)


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
