"""StableHLO modules in the nodes of a graph, for `show`, `explain`, and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from cfgraph.analysis.verify.context import NodeTypes
from cfgraph.cli.output import OutputTable, Page
from cfgraph.console.documents import ModulePart, ModuleReport, ModuleSummary
from cfgraph.console.views.selection import GraphView, NodeSelection
from cfgraph.errors import CfgraphError, ExecutionError, ProcessLost, RunTimeout
from cfgraph.extensions import MODULES, extension
from cfgraph.ir.attrs import Func
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.units import format_byte_size
from cfgraph.ops.families.stablehlo import XlaCallModule
from cfgraph.ops.opdef.op import lookup
from cfgraph.reports import Column

# lines of a module that `explain` prints without --full
_MAX_LINES: Final = 40
# characters of types in a table; the document has all
_MAX_TYPES: Final = 72
# the attribute in pictures that names the body of a node
_MAIN: Final = "module_main"


def is_module(node: Node | BodyNode) -> bool:
    """True for a node that calls a StableHLO module."""
    return lookup(node.op) is XlaCallModule


def module_bytes(node: Node | BodyNode) -> bytes:
    """The module that a node calls; empty if its attribute is no text."""
    data = node.attrs.get("module")
    return data if isinstance(data, bytes) else b""


def module_summaries(graph: Graph, *, reads: bool) -> list[ModuleSummary]:
    """The modules of a graph and of its functions; their parts only if it `reads` the modules."""
    if not reads:
        return [ModuleSummary(name, reason=_unread(data)) for name, data in _modules(graph)]
    reader = _ModuleReader()
    return [reader.summary(name, data) for name, data in _modules(graph)]


def _unread(data: bytes) -> str:
    return f"{format_byte_size(len(data))}, not read; --modules reads it"


class ModuleFunction(Protocol):
    """A function of a module, or a region of an operation, whose node is the `caller`."""

    name: str
    graph: Graph
    types: Mapping[Node, tuple[Any, ...]]
    results: tuple[Output, ...]
    caller: Node | None

    @property
    def signature(self) -> str:
        """The types of arguments and results."""

    @property
    def operations(self) -> int:
        """The number of operations."""

    def controls(self) -> Iterator[Node]:
        """The loops and conditionals."""


class _ModuleReader:
    """Reader of the modules of a graph by one process, after whose loss no other is read."""

    def __init__(self) -> None:
        self._is_lost = False

    def bodies(self, data: bytes, prefix: str = "") -> tuple[ModuleFunction, ...]:
        """The functions and regions of a module. Raises CfgraphError for one that is not read."""
        if self._is_lost:
            raise ExecutionError("an earlier module has ended the process that reads them")
        bodies: tuple[ModuleFunction, ...]
        try:
            bodies = extension(MODULES, "bodies")(data, prefix)
            return bodies
        except ProcessLost:
            self._is_lost = True
            raise

    def summary(self, name: str, data: bytes) -> ModuleSummary:
        """The parts of a module, or the reason why they are unknown."""
        try:
            bodies = self.bodies(data)
        except RunTimeout:
            raise
        except CfgraphError as error:
            hint = f"; {error.hint}" if error.hint else ""
            return ModuleSummary(name, reason=f"{error.message}{hint}")
        return ModuleSummary(name, tuple(part for body in bodies for part in _parts(body)))


def _modules(graph: Graph) -> Iterator[tuple[str, bytes]]:
    for node in graph:
        if is_module(node):
            yield node.name, module_bytes(node)
    for name, function in sorted(graph.functions.items()):
        for body_node in function.definition.nodes:
            if is_module(body_node):
                yield f"{name}/{body_node.name}", module_bytes(body_node)


def _parts(body: ModuleFunction) -> Iterator[ModulePart]:
    if body.caller is None:
        yield ModulePart(body.name, "function", body.signature, body.operations)
    for node in body.controls():
        types = ", ".join(map(str, body.types[node]))
        yield ModulePart(f"{body.name}/{node.name}", node.op, types)


def modules_table(modules: Sequence[ModuleSummary], *, names_nodes: bool = True) -> OutputTable:
    """Return one row per function, loop, and conditional of the modules."""
    columns = [
        Column("part", style="cyan"),
        Column("kind"),
        Column("operations", right=True),
        Column("types"),
        Column("node", style="dim", optional=True),
    ]
    rows: list[Any] = []
    for module in modules:
        node = module.node if names_nodes else None
        rows += [
            (part.name, part.kind, part.operations, _clipped(part.types), node)
            for part in module.parts
        ]
        if module.reason:
            rows.append(("", "unknown", None, module.reason, node))
    return OutputTable(columns, rows)


def _clipped(types: str) -> str:
    return types if len(types) <= _MAX_TYPES else f"{types[: _MAX_TYPES - 1]}…"


@dataclass(frozen=True, slots=True)
class ModuleExplanation:
    """The parts and the text of the module of a node."""

    summary: ModuleSummary
    lines: tuple[str, ...]
    full: bool

    @classmethod
    def of_node(cls, name: str, node: Node, full: bool) -> ModuleExplanation:
        """The explanation of a node; without jax, it has the reason alone."""
        data = module_bytes(node)
        summary = _ModuleReader().summary(name, data)
        lines = () if summary.reason else tuple(extension(MODULES, "text")(data).splitlines())
        return cls(summary, lines, full)

    @property
    def shown(self) -> tuple[str, ...]:
        """The lines to show."""
        return self.lines if self.full else self.lines[:_MAX_LINES]

    def report(self) -> ModuleReport:
        """The member `module` of the document."""
        return ModuleReport(self.summary, "\n".join(self.shown), len(self.lines))

    def print(self, out: Page) -> None:
        """Print the table of parts, and the text."""
        out.heading(f"{self.summary.node}  module", "StableHLO, compiled by XLA")
        out.table(modules_table([self.summary], names_nodes=False))
        out.line()
        for line in self.shown:
            out.line(line)
        if hidden := len(self.lines) - len(self.shown):
            out.line(f"… and {hidden} more lines; --full prints them", "dim")


def module_selections(
    selections: Sequence[NodeSelection],
) -> tuple[list[NodeSelection], list[str]]:
    """The bodies of the modules of nodes, which then name them in an attribute.

    Returns notes on modules that cannot be read.
    """
    bodies: list[NodeSelection] = []
    notes: list[str] = []
    reader = _ModuleReader()
    for selection in selections:
        for node in filter(is_module, selection.nodes):
            title = selection.view.title(node)
            try:
                parts = reader.bodies(module_bytes(node), f"{title}/")
            except RunTimeout:
                raise
            except CfgraphError as error:
                notes.append(f"the module of {title} is not drawn: {error.message}")
                continue
            if not parts:
                notes.append(f"the module of {title} has no function with a body")
                continue
            selection.view.graph.set_attr(node, _MAIN, Func(parts[0].name))
            bodies += [_selection(part, selection.view) for part in parts]
    return bodies, notes


def copied_selection(selection: NodeSelection) -> NodeSelection:
    """The same nodes in a copy of their graph, of which the original is the caller."""
    view = selection.view
    graph = copy_graph(view.graph)
    arguments = {graph[node.name]: types for node, types in view.arguments.items()}
    results = [item and graph[item.node.name].output(item.port) for item in view.results]
    whole = view.caller or view.graph
    copied = replace(view, graph=graph, arguments=arguments, results=results, caller=whole)
    return NodeSelection(copied, [graph[node.name] for node in selection.nodes])


def _selection(body: ModuleFunction, caller: GraphView) -> NodeSelection:
    types = {
        node: NodeTypes((), tuple(item.dtype for item in outputs))
        for node, outputs in body.types.items()
    }
    feeds = {
        node.output(port).name: item.shape
        for node, outputs in body.types.items()
        for port, item in enumerate(outputs)
    }
    whole = caller.caller or caller.graph
    view = GraphView(body.graph, body.name, types, whole, body.results, feeds)
    return NodeSelection(view, list(body.graph))
