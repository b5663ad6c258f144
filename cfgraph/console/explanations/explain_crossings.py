"""The `explain` command for an invalid graph: edges between different frames, at a node or loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frame_crossings import FrameCrossing, crossings_into
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.verify import structural_errors
from cfgraph.cli.output import Page
from cfgraph.console.explanations.answers import CrossingReport, CrossingsReport
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import first_names

# the code of a node whose inputs are in different frames
MIXED_FRAMES: Final = "CFG201"
# with that of loops that close in another frame, which is a consequence
FRAME_CODES: Final = (MIXED_FRAMES, "CFG207")
# nodes whose inputs are looked at, each of which may search the graph
_MAX_NODES: Final = 100
_MAX_EXITS: Final = 4


def _crossing_report(edge: FrameCrossing) -> CrossingReport:
    ready, frames = edge.path.ready, (edge.source_frame.path, edge.reader_frame.path)
    instead = None if ready is None else ready.name
    return CrossingReport(edge.name, edge.reader.name, *frames, instead, edge.advice())


@dataclass(frozen=True, slots=True)
class CrossingsExplanation:
    """The edges between different frames at a node or a loop."""

    subject: str
    edges: tuple[FrameCrossing, ...]

    def report(self) -> CrossingsReport:
        """Return the member `crossings` of the document."""
        return CrossingsReport(self.subject, [*map(_crossing_report, self.edges)])

    def print(self, out: Page) -> None:
        """Print the explanation as text."""
        count = len(self.edges)
        edges = f"{count} edge{'s' * (count != 1)}"
        out.heading(self.subject, f"{edges} between different frames; the graph is invalid")
        out.facts(row for edge in self.edges for row in _edge_rows(edge))
        out.line(f"  `cfgraph explain {MIXED_FRAMES}` describes frames", "dim")


def _edge_rows(edge: FrameCrossing) -> Iterator[tuple[str, str, str]]:
    ends = f"from {_frame_text(edge.source_frame)} to {_frame_text(edge.reader_frame)}"
    yield "edge", f"{edge.name} → {edge.reader.name}", f"{ends}, without {edge.missing}"
    path = edge.path
    yield "", "", edge.advice()
    if path.near and path.reached == edge.source and path.ready is None:
        exits = first_names([f"{node.name}:0" for node in path.near], _MAX_EXITS)
        yield "", exits, f"Exits of {path.leaves[0].path}"


def _frame_text(frame: Frame) -> str:
    return "the root frame" if frame.parent is None else f"the loop {frame.path}"


def explain_crossings(graph: Graph, subject: str) -> CrossingsExplanation:
    """Find the edges between frames at a node, named directly or by a tensor, or at a loop.

    Raises UsageError for an unknown name.
    """
    errors = [error for error in structural_errors(graph) if error.code == MIXED_FRAMES]
    readers = [graph[error.node] for error in errors if error.node and error.node in graph]
    graph_frames = frames(graph)
    loops = [frame for frame in graph_frames.all[1:] if subject in (frame.path, frame.name)]
    name = subject.removeprefix("^")
    node = None
    if not loops or name.partition(":")[0] in graph:
        node = graph.tensor(name).node if ":" in name else graph[name]
    edges = _crossings(graph_frames, readers, node, loops)
    return CrossingsExplanation(subject, tuple(edges))


def _crossings(
    graph_frames: Frames, readers: list[Node], node: Node | None, loops: list[Frame]
) -> Iterator[FrameCrossing]:
    if node is not None:
        read_by = {use.node for use in node.uses}
        readers = [reader for reader in readers if reader is node or reader in read_by]
    for reader in readers[:_MAX_NODES]:
        for edge in crossings_into(graph_frames, reader):
            ends = (edge.source_frame, edge.reader_frame)
            if any(loop in ends for loop in loops) if node is None else _touches(edge, node):
                yield edge


def _touches(edge: FrameCrossing, node: Node) -> bool:
    return node in (edge.reader, edge.source.node)
