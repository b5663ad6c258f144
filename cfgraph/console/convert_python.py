"""Python files of `convert --to py`: their text, and the line in one that computes a node."""

from __future__ import annotations

import io
import sys
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.analysis.feeds_and_fetches import fed_tensor, is_input, must_be_fed
from cfgraph.analysis.verify.verify import require_analyzable
from cfgraph.console.graph_files import STDIN
from cfgraph.console.signatures import SignatureNames
from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.file_io import StagedFiles, read_file
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.role import FORWARDING_ROLES, LOOP_COND, SWITCH
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import back_edge_of, is_identity, role_of
from cfgraph.passes.cluster.encapsulate import cluster_calls, inline_clusters
from cfgraph.passes.lower.plan import constant_value
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.compiled.decompile import PythonSource, decompile, node_comment
from cfgraph.runtime.compiled.program import NotCompiled
from cfgraph.runtime.compiled.script import archive_path
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.prepare import prepare
from cfgraph.runtime.run_config import RunConfig
from cfgraph.runtime.run_names import InlinedClusters

_FORWARDING: Final = FORWARDING_ROLES | {LOOP_COND}


@dataclass(frozen=True, slots=True)
class PythonOptions:
    """Names of the tensors that the Python function returns and takes, and of its targets."""

    fetches: Sequence[str] = ()
    feeds: Sequence[str] = ()
    targets: Sequence[str] = ()

    @property
    def is_set(self) -> bool:
        """True if any of the options was used."""
        return bool(self.fetches or self.feeds or self.targets)


_NO_NAMES: Final = SignatureNames()


def python_source(
    graph: Graph, options: PythonOptions, names: SignatureNames = _NO_NAMES
) -> PythonSource:
    """The Python source of a graph, whose tensors may have the `names` of a signature.

    Raises UsageError for unknown names, Unsupported for a graph that generated code cannot
    represent, and the errors of preparing a run.
    """
    calls = cluster_calls(graph)
    if calls:
        require_analyzable(graph)
        callers = [node.name for node in calls]
        graph = copy_graph(graph)
        inline_clusters(graph, [graph[name] for name in callers])
    fetches = Fetches(graph, names.outputs)
    for name in options.fetches:
        fetches.fetch(name)
    for name in options.targets:
        fetches.target(name)
    nothing_named = not options.fetches and not options.targets
    if nothing_named:
        fetches.default()
    tensors, targets = tuple(fetches.tensors), tuple(fetches.targets)
    named = [fed_tensor(graph, names.inputs.get(name, name)) for name in options.feeds]
    feeds = _feeds(graph, [*(tensor.node for tensor in tensors), *targets], named)
    defaults = {
        tensor.name: default
        for tensor in feeds
        if tensor not in named and (default := _default_value(tensor)) is not None
    }
    spec = RunSpec(graph, tensors, targets, feeds)
    # what the graph may do with files is decided when the Python file runs
    config = RunConfig(io=IoPolicy(allow_all=True))
    spec, plans = prepare(spec, InlinedClusters(graph, {}), config, ClusterRunner(None))
    labels = {tensor: name for name, tensor in (*names.inputs.items(), *names.outputs.items())}
    try:
        return decompile(spec, plans, defaults=defaults, labels=labels, allow_dead=nothing_named)
    except NotCompiled as error:
        message = f"the graph has no form in Python: {error.reason}"
        hint = "`cfgraph run` runs it on the token executor"
        raise Unsupported(message, node=error.node, hint=hint, code="CFG714") from None


def _feeds(graph: Graph, roots: Iterable[Node], named: Sequence[Output]) -> tuple[Output, ...]:
    """The named tensors, and the inputs that a run needs in addition."""
    needed = ancestors(graph, [*roots], frozenset(named))
    inputs = [
        node.output()
        for node in needed
        if must_be_fed(node) or (is_input(node) and _default_value(node.output()) is not None)
    ]
    order = {node: index for index, node in enumerate(graph)}
    feeds = dict.fromkeys([*named, *inputs])
    return tuple(sorted(feeds, key=lambda tensor: (order[tensor.node], tensor.port)))


def _default_value(tensor: Output) -> Any:
    """The constant that an input has if it is not fed, or None."""
    node = tensor.node
    if not is_input(node) or len(node.inputs) != 1:
        return None
    value = constant_value(node.inputs[0])
    return value[()] if value is not None and value.ndim == 0 and value.dtype != object else value


def write_python(source: PythonSource, output: str | None) -> list[str]:
    """Write the source, and its arrays next to it; returns the paths of the files.

    Without an `output`, the source is written to standard output. Raises UsageError for a source
    with arrays without a file.
    """
    if output in (None, STDIN):
        if source.arrays:
            message = "arrays of the graph are written next to the Python file"
            raise UsageError(message, hint="write the graph to a file: -o FILE.py")
        sys.stdout.write(source.text)
        return []
    assert output is not None
    paths = [output]
    with StagedFiles() as files:
        files.write(output, source.text.encode())
        if source.arrays:
            paths.append(str(archive_path(output)))
            files.write(paths[1], _npz(source.arrays))
    return paths


def _npz(arrays: Mapping[str, Any]) -> bytes:
    """The .npz file of arrays, whose keys may be names of parameters of `np.savez`."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return stream.getvalue()


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
