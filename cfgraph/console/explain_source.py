"""The lines of a file written by `convert --to py` that compute a node."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import read_file
from cfgraph.ir.graph import Node
from cfgraph.ir.role import FORWARDING_ROLES, LOOP_COND, SWITCH
from cfgraph.ops.opdef.op import back_edge_of, is_identity, role_of
from cfgraph.runtime.compiled.decompile import node_comment

_FORWARDING: Final = FORWARDING_ROLES | {LOOP_COND}


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a Python file, and the node in its comment."""

    path: str
    line: int
    text: str
    node: str

    def to_json(self) -> dict[str, Any]:
        """Return the member `source` of a node in the document."""
        return {"path": self.path, "line": self.line, "text": self.text, "node": self.node}


def find_source_line(path: str, node: Node) -> SourceLine:
    """Find the first line that computes a node, or the node whose value it forwards.

    Raises InvalidInput for a file that is no Python, UsageError for a node without a line.
    """
    text = read_file(path).decode(errors="replace")
    comments = _comments(path, text)
    for known in _sources(node):
        comment = node_comment(known)
        for line, (code, nodes) in comments.items():
            if comment in nodes:
                return SourceLine(path, line, code, known.name)
    message = f"no line of {path} computes the node"
    hint = "convert the graph again, with a fetch that needs the node: --to py --fetch NAME"
    raise UsageError(message, node=node, hint=hint)


def _sources(node: Node) -> Iterator[Node]:
    """The node, and the nodes whose values it forwards; the line of a Switch is a test."""
    seen: set[Node] = set()
    while node not in seen:
        seen.add(node)
        if len(seen) == 1 or role_of(node) is not SWITCH:
            yield node
        if node.inputs and (role_of(node) in _FORWARDING or is_identity(node)):
            node = back_edge_of(node) or node.inputs[0].node


def _comments(path: str, text: str) -> dict[int, tuple[str, list[str]]]:
    """The code of each line with a comment, and the nodes in the comment."""
    comments = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                code = token.line[: token.start[1]].strip()
                nodes = token.string.removeprefix("# ").split(", ")
                comments[token.start[0]] = code, nodes
    except (SyntaxError, tokenize.TokenError) as error:
        message = f"the file is not valid Python: {error.args[0]}"
        raise InvalidInput(message, path=path) from None
    return comments
