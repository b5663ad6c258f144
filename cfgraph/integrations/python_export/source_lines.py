"""Lines of Python files that `convert --to py` has written, by node."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from typing import Final

from cfgraph.console.explanations.answers import SourceLine
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.integrations.python_export.definitions import node_comment
from cfgraph.ir.file_io import read_file
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.role import FORWARDING_ROLES, LOOP_COND, SWITCH
from cfgraph.ops.opdef.op import back_edge_of, is_identity, role_of
from cfgraph.passes.cluster.encapsulate import cluster_calls

_FORWARDING: Final = FORWARDING_ROLES | {LOOP_COND}


def find_source_line(path: str, graph: Graph, node: Node) -> SourceLine:
    """Find the first line that computes a node, or the node whose value it forwards.

    Raises InvalidInput for a file that is no Python, UsageError for one of another graph, and for a
    node without a line.
    """
    text = read_file(path).decode(errors="replace")
    comments = _comments(path, text)
    _require_file_of_graph(path, text, graph)
    for known in _sources(node):
        comment = node_comment(known)
        for line, (code, nodes) in comments.items():
            if comment in nodes:
                return SourceLine(path, line, code, known.name)
    message = f"no line of {path} computes the node"
    hint = "convert the graph again, with a fetch that needs the node: --to py --fetch NAME"
    raise UsageError(message, node=node, hint=hint)


def _require_file_of_graph(path: str, text: str, graph: Graph) -> None:
    """Raise UsageError if the graph lacks a tensor that the function of a file takes or returns."""
    tensors = _tensors(text)
    hint = "write the file: cfgraph convert GRAPH -o FILE.py"
    if tensors is None:
        raise UsageError("this is no file of `convert --to py`", path=path, hint=hint)
    # a cluster contains nodes that the graph does not list
    for name, dtype in () if cluster_calls(graph) else tensors.items():
        known = graph.nodes.get(split_tensor_name(name)[0])
        actual = None if known is None else known.output(split_tensor_name(name)[1] or 0).dtype
        if known is None:
            message = f"the file is of another graph, which has {name}"
            raise UsageError(message, path=path, hint=hint)
        if dtype is not None and actual is not None and str(actual.base) != dtype:
            message = f"the file is of another graph, in which {name} is {dtype}, not {actual}"
            raise UsageError(message, path=path, hint=hint)


def _tensors(text: str) -> dict[str, str | None] | None:
    """The tensors that a written file takes and returns, with dtypes; None for another file."""
    try:
        tree = ast.parse(text)
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        return None
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Script":
            try:
                values = {item.arg: ast.literal_eval(item.value) for item in call.keywords}
                taken = {feed[0]: None for feed in values["feeds"].values()}
                return taken | {fetch[0]: fetch[1] for fetch in values["fetches"]}
            except (AttributeError, IndexError, KeyError, TypeError, ValueError):
                return None
    return None


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
        if "\0" in text:  # found by the tokenizer since Python 3.12
            raise SyntaxError("source code cannot contain null bytes")
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                code = token.line[: token.start[1]].strip()
                nodes = token.string.removeprefix("# ").split(", ")
                comments[token.start[0]] = code, nodes
    except (SyntaxError, tokenize.TokenError) as error:
        message = f"the file is not valid Python: {error.args[0]}"
        raise InvalidInput(message, path=path) from None
    return comments
