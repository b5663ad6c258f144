"""`convert --to py`: the Python file of a graph, and the arrays next to it."""

from __future__ import annotations

import io
import shlex
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np

from cfgraph.analysis.feeds_and_fetches import fed_tensor, is_input, must_be_fed
from cfgraph.analysis.summary import initializers
from cfgraph.analysis.verify.verify import require_analyzable
from cfgraph.cli.json_output import print_document
from cfgraph.cli.output import note
from cfgraph.cli.transform_options import STDIN
from cfgraph.console.graph_files import (
    Source,
    artifact,
    saved_model_state_of,
)
from cfgraph.console.node_names import stdin_is_terminal
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.transforms.convert import ConvertResult, PythonOptions
from cfgraph.errors import CfgraphError, Unsupported, UsageError
from cfgraph.integrations.python_export.decompile import PreparedRun, PythonSource, decompile
from cfgraph.integrations.python_export.script import archive_path
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.cluster.encapsulate import cluster_calls, inline_clusters
from cfgraph.passes.lower.plan import constant_value
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.preparation.prepare import prepare
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.program import NotCompiled


def convert_to_python(
    source: Source, output: str | None, python: PythonOptions, json: bool
) -> None:
    """Write a graph as a Python file; a note tells how its variables get their values."""
    saved = saved_model_state_of(source)
    names = signature_names(source, python.signature, short=stdin_is_terminal())
    written = python_source(source.graph, python, names, restored=saved is not None)
    paths = write_python(written, output)
    file = shlex.quote(paths[0] if paths else "FILE.py")
    if saved is not None:
        state = "values of variables" if saved.saver else "contents of tables"
        values = f"python {file} --variables {shlex.quote(source.path)}"
        note(f"note: the file has no {state}; to restore them: {values}")
    elif written.initializers:
        inits = "".join(f" --init {shlex.quote(name)}" for name in written.initializers)
        note(f"note: to initialize the variables first: python {file}{inits}")
    if json:
        kinds = ("python", "arrays")
        artifacts = [artifact(kind, path) for kind, path in zip(kinds, paths, strict=False)]
        print_document(ConvertResult(), inputs=[source], artifacts=artifacts)


_NO_NAMES: Final = SignatureNames()


def python_source(
    graph: Graph,
    options: PythonOptions,
    names: SignatureNames = _NO_NAMES,
    *,
    restored: bool = False,
) -> PythonSource:
    """The Python source of a graph, whose tensors may have the `names` of a signature.

    It has the initializers that are named, or those of the variables that the run needs, unless
    these are `restored`. Raises UsageError for unknown names, Unsupported for a graph that
    generated code cannot represent, and the errors of preparing a run.
    """
    calls = cluster_calls(graph)
    if calls:
        require_analyzable(graph)
        callers = [node.name for node in calls]
        graph = copy_graph(graph)
        inline_clusters(graph, [graph[name] for name in callers])
    fetches = Fetches(graph, names.outputs)
    for name in options.fetches:
        fetches.fetch(names.outputs.get(name, name))
    for name in options.targets:
        fetches.target(names.outputs.get(name, name))
    nothing_named = not options.fetches and not options.targets
    if nothing_named:
        fetches.default()
    tensors, targets = tuple(fetches.tensors), tuple(fetches.targets)
    named = [fed_tensor(graph, names.inputs.get(name, name)) for name in _names(options.feeds)]
    roots = [*(tensor.node for tensor in tensors), *targets]
    prepared = _prepared_run(RunSpec(graph, tensors, targets, _feeds(graph, roots, named)))
    named_inits = [graph[name.removeprefix("^")] for name in options.inits]
    inits = {node.name: _initializing_run(graph, node, named) for node in named_inits}
    more = {} if restored or inits else _needed_initializers(graph, roots, named)
    labels = {tensor: name for name, tensor in (*names.inputs.items(), *names.outputs.items())}
    fed = {x.name for spec, _ in (prepared, *inits.values(), *more.values()) for x in spec.feeds}
    fed.difference_update(tensor.name for tensor in named)
    defaults = {
        name: default for name in fed if (default := _default_value(graph.tensor(name))) is not None
    }
    write = partial(
        decompile, *prepared, defaults=defaults, labels=labels, allow_dead=nothing_named
    )
    try:
        if more:
            with suppress(NotCompiled):
                return write(initializers=more)
        return write(initializers=inits)
    except NotCompiled as error:
        message = f"the graph has no form in Python: {error.reason}"
        hint = "`cfgraph run` runs it on the token executor"
        raise Unsupported(message, node=error.node, hint=hint, code="CFG714") from None


def _names(feeds: Iterable[str]) -> Iterator[str]:
    """The names of feeds. Raises UsageError for one with a value, which the file takes."""
    for feed in feeds:
        name, sign, _ = feed.partition("=")
        if sign:
            message = f"--feed {shlex.quote(feed)} has a value, expected a name"
            hint = f"convert with --feed {name}, and run: python FILE.py --feed {shlex.quote(feed)}"
            raise UsageError(message, hint=hint)
        yield name


def _needed_initializers(
    graph: Graph, roots: Sequence[Node], named: Sequence[Output]
) -> dict[str, PreparedRun]:
    """The initializers of the variables that nodes need, if all of them can run."""
    try:
        nodes = initializers(graph, ancestors(graph, roots))
        return {node.name: _initializing_run(graph, node, named) for node in nodes}
    except CfgraphError:
        return {}


def _initializing_run(graph: Graph, node: Node, named: Sequence[Output]) -> PreparedRun:
    needed = set(ancestors(graph, [node]))
    feeds = _feeds(graph, [node], [tensor for tensor in named if tensor.node in needed])
    return _prepared_run(RunSpec(graph, (), (node,), feeds))


def _prepared_run(spec: RunSpec) -> PreparedRun:
    # what the graph may do with files is decided when the Python file runs
    config = RunConfig(io=IoPolicy(allow_all=True))
    return prepare(spec, config, ClusterRunner(None))


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
