"""Data of `diff` per node: kinds of differences, or the first node that differs in a run."""

from __future__ import annotations

from typing import Final

from cfgraph.cli.json_output import add_member
from cfgraph.comparison.differences import GraphDiff, RunDiff
from cfgraph.console.comparisons.diff import SourcePair
from cfgraph.console.graph_files import artifact
from cfgraph.integrations.model_explorer.identifiers import graph_members
from cfgraph.integrations.model_explorer.node_data import FIRST_DIFFERENCE, NodeDataFile, Values
from cfgraph.ir.node import node_name

# the graphs that a file may be about: by default the second one, which has the faults
_SIDES: Final = ("b", "a")


class DiffData:
    """The requested file of a comparison."""

    def __init__(self, text: str, quiet: bool) -> None:
        self.file = NodeDataFile(text, _SIDES)
        self.quiet = quiet

    def write_nodes(self, sources: SourcePair, delta: GraphDiff) -> None:
        """Write the kinds of differences between nodes."""
        nodes = delta.nodes
        only = nodes.removed if self.file.kind == "a" else nodes.added
        values = {node.name: f"only in {self.file.kind.upper()}" for node in only}
        values |= {item.before.name: "changed" for item in nodes.changed}
        self._write(sources, values)

    def write_runs(self, sources: SourcePair, delta: RunDiff) -> None:
        """Write the first node that differs in a run, and the fetches that do."""
        values = {node_name(gap.what): "different" for gap in delta.gaps}
        if delta.first is not None:
            values[delta.first.node] = FIRST_DIFFERENCE
        self._write(sources, values)

    def _write(self, sources: SourcePair, values: Values) -> None:
        source = sources[0 if self.file.kind == "a" else 1]
        title = f"differences from {sources[1 if self.file.kind == 'a' else 0].path}"
        self.file.write(graph_members(source.graph), values, title, self.quiet)
        add_member("artifacts", artifact("node_data", self.file.path))
