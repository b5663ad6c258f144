"""Names of nodes on a command line: the end of a name stands for the only node that has it.

The end begins at a scope, and may be written `…/END` or `OUTER/…/END`, as it is printed. Of several
nodes with it, only those count that the outputs of the signature need. An end that no node has may
be that of a node that only lowering makes, such as a Merge. Names in Python, in configuration
files, rules, and pipelines are complete.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from cfgraph.analysis.inner_nodes import InnerNode, find_inner_node, inner_nodes
from cfgraph.analysis.loops.frames import frames
from cfgraph.cli.configuration import is_configured
from cfgraph.cli.json_output import add_member
from cfgraph.cli.name_scopes import ELLIPSIS
from cfgraph.cli.output import note
from cfgraph.errors import CfgraphError, RunTimeout, UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import first_names
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import is_functional

# late imports: only a name that the graph lacks needs the passes
_ASCII_ELLIPSIS: Final = "..."
# candidates that an error lists
_MAX_LISTED: Final = 8


def stdin_is_terminal() -> bool:
    """True if a person types the names of a command."""
    return sys.stdin is not None and sys.stdin.isatty()


def is_loop(graph: Graph, subject: str) -> bool:
    """True if a subject names a loop, not a node."""
    if subject.removeprefix("^").partition(":")[0] in graph:
        return False
    named = any(frame.has_name(subject) for frame in frames(graph).all[1:])
    return named or subject.startswith("/")


def lowered_form(graph: Graph) -> Graph | None:
    """The graph as a run lowers it, or None if it calls no function or cannot be lowered."""
    from cfgraph.runtime.preparation.run_passes import lowered_graph

    if not is_functional(graph, graph):
        return None
    try:
        return lowered_graph(graph)
    except RunTimeout:
        raise
    except CfgraphError:
        return None


class NodeNames:
    """The nodes of a graph and its functions by the ends of their names.

    `outputs` are the nodes of the outputs of a signature. Without `short`, an end is an error that
    has the complete name.
    """

    def __init__(self, graph: Graph, outputs: Sequence[Node] = (), *, short: bool = True) -> None:
        self.graph = graph
        self._outputs = outputs
        self._short = short
        self._noted = set[str]()
        self._lowered: tuple[int, Graph | None] | None = None

    @property
    def lowered(self) -> Graph | None:
        """The graph as a run lowers it, as above; made once unless the graph is edited."""
        if self._lowered is None or self._lowered[0] != self.graph.edits:
            self._lowered = self.graph.edits, lowered_form(self.graph)
        return self._lowered[1]

    def outside_functions(self, text: str) -> str | None:
        """The name of a node of the graph, or of a tensor, whose end is `text`; None if none is.

        Raises UsageError for the end of several names.
        """
        return self._complete(text, None) or self.in_run(text)

    def in_run(self, text: str) -> str | None:
        """The name in a run of a node or a tensor, also of a function, as above."""
        return self._complete(text, lambda node: node.name)

    def in_function(self, text: str) -> str | None:
        """The name of a node or a tensor, FUNCTION/NODE for one of a function, as above."""
        return self._complete(text, lambda node: node.qualified_name)

    def loop(self, text: str) -> str | None:
        """The path of the only loop with an end, unless it is the path or name of one; else None.

        Raises UsageError for the end of several paths.
        """
        paths = [frame.path for frame in frames(self.graph).all[1:] if not frame.has_name(text)]
        start, end = _start_and_end(text.removeprefix("/"))
        return self._only_loop(text, [path for path in paths if _has_end(path, start, end)])

    def loop_in_scope(self, text: str) -> str | None:
        """The path of the only loop whose frame lies directly in a scope, as above; else None."""
        start, end = _start_and_end(text)
        paths = [frame.path for frame in frames(self.graph).all[1:]]
        found = [path for path in paths if _has_end(path.rpartition("/")[0], start, end)]
        return self._only_loop(text, found)

    def _only_loop(self, text: str, paths: Sequence[str]) -> str | None:
        if len(paths) > 1:
            raise _ambiguous_error(text, paths)
        for path in paths:
            self._note(text, path)
            return path
        return None

    def first_call(self, function: str, node: str) -> str | None:
        """The name in a run of a node of a function, where it is called first; None if never.

        Calls that the outputs of the signature need come first. The graph has no `function` name.
        """
        if not function:
            return node
        needed = ancestors(self.graph, self._outputs)
        for nodes in (needed, self.graph):
            for inner in inner_nodes(self.graph, nodes):
                if inner.function == function and inner.body.name == node:
                    return inner.name
        return None

    def _complete(self, text: str, title: Callable[[InnerNode], str] | None) -> str | None:
        base, colon, port = text.removeprefix("^").rpartition(":")
        if not port.isdigit():
            base, colon, port = text.removeprefix("^"), "", ""
        if not base or base in self.graph.nodes or is_configured(text):
            return None
        from cfgraph.runtime.fetches import is_glob

        if is_glob(base):
            return None
        if title is not None and (found := find_inner_node(self.graph, base)) is not None:
            full = title(found)
        else:
            full = self._only_match(base, title) or ""
        if not full or full == base:
            return None
        name = f"{'^' * text.startswith('^')}{full}{colon}{port}"
        self._note(text, name)
        return name

    def _note(self, text: str, name: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            note(f"note: {text} is {name}")
            add_member("names", (text, name))

    def _only_match(self, base: str, title: Callable[[InnerNode], str] | None) -> str | None:
        if base.partition("/")[0] in self.graph.functions:
            return None
        start, end = _start_and_end(base)
        graph, outputs = self.graph, self._outputs
        names = self._matches(start, end, graph, title)
        # a pass, which needs complete names, could not change such a node
        lowered = self.lowered if title and self._short and not names else None
        if lowered is not None:
            graph, outputs, title = lowered, [lowered[x.name] for x in outputs], None
            names = self._matches(start, end, graph, title)
        if len(names) > 1:
            needed = ancestors(graph, outputs) if outputs else graph
            names = self._matches(start, end, needed, title, needed=True) or names
        if len(names) > 1:
            raise _ambiguous_error(base, names, is_short=self._short)
        if names and not self._short:
            message = f"no node {base!r} in the graph"
            raise UsageError(message, hint=f"write the complete name, {names[0]!r}")
        return names[0] if names else None

    def _matches(
        self,
        start: str,
        end: str,
        nodes: Iterable[Node],
        title: Callable[[InnerNode], str] | None,
        *,
        needed: bool = False,
    ) -> list[str]:
        def matches() -> Iterator[str]:
            for node in nodes:
                if node.name == start + end or _has_end(node.name, start, end):
                    yield node.name
            for inner in inner_nodes(self.graph, nodes, needed=needed) if title else ():
                if title and _has_end(inner.name, start, end):
                    yield title(inner)

        return list(dict.fromkeys(matches()))


def _start_and_end(text: str) -> tuple[str, str]:
    """The scopes before the ellipsis of a text, and the end of the name."""
    start, _, end = text.replace(_ASCII_ELLIPSIS, ELLIPSIS).rpartition(f"{ELLIPSIS}/")
    return start, end


def _has_end(name: str, start: str, end: str) -> bool:
    return name.endswith(f"/{end}") and (not start or f"/{start}" in f"/{name}")


def _ambiguous_error(text: str, names: Sequence[str], *, is_short: bool = True) -> UsageError:
    message = f"{text!r} is the end of {len(names)} names"
    advice = "write more of one" if is_short else "write one of the complete names"
    return UsageError(message, hint=f"{advice}: {first_names(names, _MAX_LISTED)}")
