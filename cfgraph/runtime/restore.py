"""Variables restored from a SavedModel or a checkpoint.

Of the graph that restores a SavedModel, only the part that restores the requested variables runs:

    RestoreV2 [w, b, slot] ─▶ Assign w, Assign b, Assign slot     ──▶     RestoreV2 [w] ─▶ Assign w
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.analysis.verify.verify import require_valid_nodes
from cfgraph.errors import CfgraphError, InvalidInput, UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.file_io import read_file
from cfgraph.ir.files import VARIABLES_PREFIX, SavedVariables, decode_graph, saved_variables
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.serde.checkpoint import Checkpoint
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.families.checkpoints import RestoreV2
from cfgraph.ops.families.resource_variables import VarHandleOp
from cfgraph.ops.families.variables import Variable, VariableV1
from cfgraph.ops.opdef.op import is_a
from cfgraph.passes.lower.plan import constant_value
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.io_policy import NO_IO, IoPolicy
from cfgraph.runtime.prepare import lower_run
from cfgraph.runtime.session import Session

_INDEX_SUFFIX: Final = ".index"


def checkpoint_prefix(path: str | os.PathLike[str]) -> str | None:
    """The prefix of a checkpoint's files, from the prefix itself, its index file, or its folder.

    None if there is no checkpoint, or if a folder has several.
    """
    index = Path(path)
    prefix = str(index).removesuffix(_INDEX_SUFFIX)
    if Path(prefix + _INDEX_SUFFIX).is_file():
        return prefix
    saved = [str(output) for output in index.glob(f"*{_INDEX_SUFFIX}")] if index.is_dir() else []
    return saved[0].removesuffix(_INDEX_SUFFIX) if len(saved) == 1 else None


def checkpoint_state(
    graph: Graph,
    prefix: str,
    keys: Collection[tuple[str, str]] | None,
    io: IoPolicy = NO_IO,
) -> State:
    """The variables of a graph whose names a checkpoint contains, optionally only those in `keys`.

    Raises InvalidInput for a damaged checkpoint, and for a different dtype or shape; Unsupported
    for a link to a file elsewhere.
    """
    readable = io.with_roots(Path(prefix).parent)
    checkpoint, state = Checkpoint(prefix, readable.require_readable), State()
    for node in graph:
        if not is_variable(node):
            continue
        container, name = variable_key(node)
        if name in checkpoint.entries and (keys is None or (container, name) in keys):
            value = _checked_value(node, checkpoint.read(name), prefix)
            state.get_or_make(container, name, partial(_restored_variable, node, value))
    return state


def _restored_variable(node: Node, value: Any) -> Variable:
    container, name = variable_key(node)
    return Variable(
        node.attr("dtype"),
        node.attr("shape"),
        name,
        container=container,
        resource=is_a(node, VarHandleOp),
        value=value if value.ndim or value.dtype.hasobject else value[()],
    )


def _checked_value(node: Node, value: Any, prefix: str) -> Any:
    dtype, shape = node.attr("dtype"), node.attr("shape")
    has_shape = not is_a(node, VariableV1) or shape.rank
    if value.dtype != dtype.numpy or (has_shape and not shape.accepts(value.shape)):
        message = f"{variable_key(node)[1]!r} is {value.dtype}{list(value.shape)} in the checkpoint"
        raise InvalidInput(
            f"{message}, expected {dtype}{shape}", node=node, path=prefix, code="CFG038"
        )
    return value


VariableKeys = Collection[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RestoreSubgraph:
    """The subgraph to run, its targets, and the tensor that is fed the checkpoint's prefix."""

    graph: Graph
    prefix: str
    targets: tuple[str, ...]


def required_variables(graph: Graph, nodes: Collection[Node]) -> set[tuple[str, str]] | None:
    """The keys of the variables that `nodes` need, or None if a function has variables.

    Raises InvalidInput for errors on these nodes and on those that they need.
    """
    for function in graph.functions.values():
        if any(map(is_variable, function.definition.nodes)):
            return None
    variables = [node for node in ancestors(graph, nodes) if is_variable(node)]
    require_valid_nodes(graph, variables)
    return {variable_key(node) for node in variables}


def restore_subgraph(
    graph: Graph, restore: str, prefix: str, keys: VariableKeys
) -> RestoreSubgraph:
    """The part of the node `restore` that restores the variables of these keys.

    Other resources that it writes are also written.
    """
    fed = graph.tensor(prefix)
    run = lower_run(RunSpec(graph, (), (graph[restore],), (fed,)))
    lowered, (target,), (output,) = run.graph, run.targets, run.feeds
    writers = [node.name for node in _variable_writers(lowered, ancestors(lowered, [target]), keys)]
    nodes = ancestors(lowered, [*(lowered[name] for name in writers), output.node])
    subgraph = copy_graph(lowered, nodes)
    for node in nodes:
        if is_a(node, RestoreV2):
            _read_only_used(subgraph, subgraph[node.name])
    return RestoreSubgraph(subgraph, output.name, tuple(writers))


def _variable_writers(graph: Graph, nodes: Collection[Node], keys: VariableKeys) -> Iterator[Node]:
    """The nodes that write a resource other than a variable of another key."""
    effects = EffectAnalysis()
    for access in effects.accesses(nodes):
        written = graph[access.name]
        if access.writes and not (is_variable(written) and variable_key(written) not in keys):
            yield access.node


def _read_only_used(graph: Graph, node: Node) -> None:
    """Restrict a RestoreV2 to the tensors that have consumers."""
    prefix, names, slices = node.inputs
    lists = [constant_value(names), constant_value(slices)]
    dtypes = node.attr("dtypes")
    read = sorted({use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0})
    if not read or any(output is None or output.size != len(dtypes) for output in lists):
        return
    constants = [_subset_constant(graph, output, read) for output in lists]
    reader = graph.add(
        node.op, prefix, *constants, name=node.name, dtypes=tuple(dtypes[port] for port in read)
    )
    for index, port in enumerate(read):
        graph.replace_uses(node.output(port), reader.output(index))


def _subset_constant(graph: Graph, texts: Any, places: list[int]) -> Output:
    value = TensorValue(texts.reshape(-1)[places])
    return graph.add("Const", dtype=value.dtype, value=value).output()


def restore(
    path: str | os.PathLike[str], graph: Graph | None = None, *, allow_io: bool = False
) -> State:
    """Restore the variables of a SavedModel as the state for a `Session` of its graph.

    The state also fits a lowered graph and one with gradients. With a `graph`, only its variables
    are restored, and the path may also be a checkpoint, which names them. Raises InvalidInput for a
    missing file or one that is not a SavedModel, UsageError for a SavedModel without variables, and
    with a graph for a path that is neither, ExecutionError for damaged files, and, unless
    `allow_io`, Unsupported for a file outside of the folder that a link or the graph names.
    """
    io = IoPolicy.parse(allow_io)
    if graph is None:
        return saved_model_state(*_saved_model(path), io=io)
    return restore_for_graph(graph, path, required_variables(graph, tuple(graph)), io)


def restore_for_graph(
    graph: Graph,
    path: str | os.PathLike[str],
    keys: VariableKeys | None,
    io: IoPolicy = NO_IO,
) -> State:
    """Restore a graph's variables, optionally only those in `keys`, from a SavedModel or a
    checkpoint.

    Raises the same errors as `restore`.
    """
    prefix = checkpoint_prefix(path)
    if prefix is None:
        try:
            saved = _saved_model(path)
        except CfgraphError as error:
            if not Path(path).exists():
                raise
            message = "found neither a SavedModel with variables nor a checkpoint"
            hint = "name the folder of a SavedModel, or the prefix of a checkpoint's files"
            raise UsageError(message, path=error.path, hint=hint) from error
        return saved_model_state(*saved, keys, io)
    model_folder = Path(prefix).parent.parent
    if (
        str(model_folder / VARIABLES_PREFIX) == prefix
        and (model_folder / "saved_model.pb").exists()
    ):
        return saved_model_state(*_saved_model(model_folder), keys, io)
    return checkpoint_state(graph, prefix, keys, io)


def _saved_model(path: str | os.PathLike[str]) -> tuple[Graph, SavedVariables]:
    """The graph of a SavedModel, and the location of its variables."""
    data = read_file(path)
    saved = saved_variables(path, data)
    if saved is None:
        raise UsageError("found no variables of a SavedModel", path=str(path))
    return decode_graph(data).graph, saved


def saved_model_state(
    graph: Graph,
    saved: SavedVariables,
    keys: VariableKeys | None = None,
    io: IoPolicy = NO_IO,
) -> State:
    """The saved values of a graph's variables, optionally only those in `keys`.

    Raises InvalidInput if the SavedModel names a node that the graph lacks, and the errors of a
    run.
    """
    saver = saved.saver
    for name in saver:
        if split_tensor_name(name)[0] not in graph:
            message = (
                f"the SavedModel restores variables by {name!r}, which its graph does not have"
            )
            raise InvalidInput(message, path=saved.path, code="CFG038")
    if keys is None:
        subgraph = RestoreSubgraph(graph, saver.prefix, (saver.restore,))
    else:
        subgraph = restore_subgraph(graph, saver.restore, saver.prefix, keys)
    readable = io.with_roots(Path(saved.prefix).parent)
    if os.path.isdir(saved.path):
        readable = readable.with_roots(saved.path)
    session = Session(subgraph.graph, soft_placement=True, allow_io=readable)
    if subgraph.targets:
        session.run([], {subgraph.prefix: saved.prefix}, subgraph.targets)
    return session.state
