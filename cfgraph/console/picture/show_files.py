"""The pictures that `show` writes: a page, or a drawing by Graphviz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.console.dot import dot_lines
from cfgraph.console.graphs import Source, artifact
from cfgraph.console.page import note
from cfgraph.console.picture.html import page_bytes
from cfgraph.console.picture.model import picture
from cfgraph.console.picture.run_file import title_of
from cfgraph.console.picture.svg import svg_bytes
from cfgraph.console.view import Chosen, View, bodies
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles

# Graphviz takes minutes for more
_LARGE: Final = 2000


@dataclass(frozen=True, slots=True)
class Pictures:
    """The files to write, None for what is not wanted; `deadness` fills what SVG draws."""

    html: str | None = None
    svg: str | None = None
    deadness: bool = False

    def write(
        self, source: Source, whole: View, chosen: Sequence[Chosen], start: str | None
    ) -> None:
        """Write them all, or none: the chosen nodes, or with `start` a page that begins there."""
        with StagedFiles() as files:
            made = [(files.open(path), path) for path in self.paths]
            for file, path in made:
                if path == self.svg:
                    file.write(svg_bytes(self._drawing(chosen)))
                else:
                    file.write(page_bytes(page_model(source, whole, chosen, start)))

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return [path for path in (self.svg, self.html) if path]

    def _drawing(self, chosen: Sequence[Chosen]) -> list[str]:
        count = sum(len(some.nodes) for some in chosen)
        if count > _LARGE:
            note(f"note: Graphviz takes long for {count} nodes; --filter leaves some out")
        return list(dot_lines(chosen, self.deadness))

    def artifacts(self) -> list[dict[str, Any]]:
        """The entries of the files in a JSON document."""
        files = (("svg", self.svg), ("html", self.html))
        return [artifact(kind, path) for kind, path in files if path]


def page_model(
    source: Source, whole: View, chosen: Sequence[Chosen], start: str | None = None
) -> dict[str, Any]:
    """What a page tells of a graph: of chosen nodes only where they are in it, else of all."""
    title = title_of(source.path)
    everything = Chosen(whole, list(whole.graph))
    functions = bodies(whole)
    if start is not None:
        (found,) = chosen
        return {**picture(title, everything, functions), "start": found.view.title(found.nodes[0])}
    if [some.view for some in chosen] != [whole]:
        raise UsageError("a page has all functions or none", hint="leave out --filter function:")
    some = chosen[0]
    whole_graph = len(some.nodes) == len(everything.nodes)
    return picture(title, some, functions if whole_graph else [])
