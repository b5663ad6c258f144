"""Pictures written by `show`: an HTML page, or an SVG drawing by Graphviz."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.console.dot import graph_dot
from cfgraph.console.graph_files import Source, artifact
from cfgraph.console.output import note
from cfgraph.console.picture.model import page_bytes, picture_model
from cfgraph.console.picture.run_page import page_title
from cfgraph.console.selection import GraphView, NodeSelection, function_bodies
from cfgraph.errors import ExecutionError, Unsupported, UsageError
from cfgraph.ir.file_io import StagedFiles

GRAPHVIZ_PROGRAM: Final = "dot"


def svg_bytes(lines: Iterable[str]) -> bytes:
    """Draw a digraph as SVG.

    Raises Unsupported if Graphviz is not installed, ExecutionError if it fails.
    """
    program = shutil.which(GRAPHVIZ_PROGRAM)
    if program is None:
        message = f"Graphviz is not installed: program {GRAPHVIZ_PROGRAM!r} not found"
        raise Unsupported(message, hint="install graphviz, or use --html, which does not need it")
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    done = subprocess.run([program, "-Tsvg"], input=text, capture_output=True, check=False)
    if done.returncode:
        detail = done.stderr.decode("utf-8", "replace").strip() or f"code {done.returncode}"
        raise ExecutionError(
            f"Graphviz failed: {detail}", hint="use --html, which does not need Graphviz"
        )
    return done.stdout


# Graphviz takes minutes for more nodes
_MANY_NODES: Final = 2000


@dataclass(frozen=True, slots=True)
class PictureFiles:
    """Picture files to write; with `deadness` the SVG is colored by liveness."""

    html: str | None = None
    svg: str | None = None
    deadness: bool = False

    def write(
        self, source: Source, whole: GraphView, chosen: Sequence[NodeSelection], start: str | None
    ) -> None:
        """Write all files or none; `start` is the node that an HTML page opens with."""
        with StagedFiles() as files:
            opened = [(files.open(path), path) for path in self.paths]
            for file, path in opened:
                if path == self.svg:
                    file.write(svg_bytes(self._drawing(chosen)))
                else:
                    file.write(page_bytes(page_model(source, whole, chosen, start)))

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return [path for path in (self.svg, self.html) if path]

    def _drawing(self, chosen: Sequence[NodeSelection]) -> list[str]:
        count = sum(len(selection.nodes) for selection in chosen)
        if count > _MANY_NODES:
            note(f"note: Graphviz is slow for {count} nodes; select fewer with --filter")
        return list(graph_dot(chosen, self.deadness))

    def artifacts(self) -> list[dict[str, Any]]:
        """Return the entries of the files in a JSON document."""
        files = (("svg", self.svg), ("html", self.html))
        return [artifact(kind, path) for kind, path in files if path]


def page_model(
    source: Source, whole: GraphView, chosen: Sequence[NodeSelection], start: str | None = None
) -> dict[str, Any]:
    """Describe a graph for a page: the selected nodes, or all with a start node."""
    title = page_title(source.path)
    everything = NodeSelection(whole, list(whole.graph))
    functions = function_bodies(whole)
    if start is not None:
        (selected,) = chosen
        return {
            **picture_model(title, everything, functions),
            "start": selected.view.title(selected.nodes[0]),
        }
    if [selection.view for selection in chosen] != [whole]:
        raise UsageError(
            "an HTML page cannot select single functions", hint="remove --filter function:"
        )
    selection = chosen[0]
    whole_graph = len(selection.nodes) == len(everything.nodes)
    return picture_model(title, selection, functions if whole_graph else [])
