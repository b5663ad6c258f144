"""Initial state of a SavedModel, and variables restored from a checkpoint.

Of the graph that restores a SavedModel, only the part that restores the requested variables runs:

    RestoreV2 [w, b, slot] ─▶ Assign w, Assign b, Assign slot     ──▶     RestoreV2 [w] ─▶ Assign w

Then the initializer of the SavedModel fills its tables, with the paths of the asset files fed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.analysis.verify.verify import require_valid_nodes
from cfgraph.errors import CfgraphError, InvalidInput, UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.file_io import StagedFiles, require_path
from cfgraph.ir.files import decode_graph
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.serde.checkpoint import Checkpoint, write_checkpoint
from cfgraph.ir.serde.file_contents import read_graph_file
from cfgraph.ir.serde.saved_model import VARIABLES_PREFIX, StateSources, read_contents, saved_state
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.families.checkpoints import RestoreV2
from cfgraph.ops.families.lookup_tables import TableHandle
from cfgraph.ops.families.resource_variables import AssignVariableOp, ReadVariableOp, VarHandleOp
from cfgraph.ops.families.variables import Variable, VariableV1
from cfgraph.ops.opdef.op import is_a
from cfgraph.passes.lower.plan import constant_value
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.conversion import fit_to_tensor
from cfgraph.runtime.io_policy import NO_IO, IoPolicy
from cfgraph.runtime.preparation.prepare import lower_run
from cfgraph.runtime.preparation.run_config import require_state
from cfgraph.runtime.session import Session

# late imports: only an error tells archives from other files

# writes what initializers assign, for those who expect values
SAVE_VARIABLES: Final = "cfgraph run GRAPH --target INIT --save-variables ck"
_INDEX_SUFFIX: Final = ".index"


def checkpoint_prefix(path: str | os.PathLike[str]) -> str | None:
    """The prefix of a checkpoint's files, from the prefix itself, its index file, or its folder.

    None if there is no checkpoint, or if a folder has several.
    """
    index = Path(path)
    prefix = str(index).removesuffix(_INDEX_SUFFIX)
    if Path(prefix + _INDEX_SUFFIX).is_file():
        return prefix
    indices = [str(file) for file in index.glob(f"*{_INDEX_SUFFIX}")] if index.is_dir() else []
    return indices[0].removesuffix(_INDEX_SUFFIX) if len(indices) == 1 else None


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


def state_with_values(
    graph: Graph, state: State | None, values: Mapping[tuple[str, str], Any]
) -> State:
    """Return the state with the values of variables that have none in it."""
    state = State() if state is None else state
    for node in graph:
        key = variable_key(node) if is_variable(node) else ("", "")
        if key in values and key not in state.initialized_variables():
            value = fit_to_tensor(values[key], node.attr("dtype"))
            state.forget(*key)
            state.get_or_make(*key, partial(_restored_variable, node, value))
    return state


def save_variables(
    state: State, prefix: str | os.PathLike[str], files: StagedFiles | None = None
) -> list[str]:
    """Write the variables of a state as a checkpoint, by name; return the paths of its files.

    `restore` and `--variables` read it, and so does TensorFlow. Variables without a value are
    omitted. With `files` they become visible together with other files. Raises UsageError for a
    path that cannot be written, and for two variables of one name in different containers.
    """
    require_state(state)
    require_path(prefix)
    tensors: dict[str, Any] = {}
    for (_, name), variable in state.variables():
        if name in tensors:
            message = f"two containers have a variable {name!r}, a checkpoint can have one"
            raise UsageError(message)
        if variable.initialized:
            tensors[name] = variable.value
    if files is not None:
        return write_checkpoint(files, os.fspath(prefix), tensors)
    with StagedFiles() as staged:
        return write_checkpoint(staged, os.fspath(prefix), tensors)


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


@dataclass(frozen=True, slots=True)
class RequiredState:
    """The keys of the variables that nodes need, or None for all; `tables` if they need tables."""

    variables: VariableKeys | None
    tables: bool

    @property
    def is_empty(self) -> bool:
        """True if the nodes need no state."""
        return not self.tables and self.variables is not None and not self.variables


def required_state(graph: Graph, nodes: Collection[Node]) -> RequiredState:
    """The state that `nodes` need; all variables if a function has variables.

    Raises InvalidInput for errors on these nodes and on those that they need.
    """
    bodies = [node for item in graph.functions.values() for node in item.definition.nodes]
    needed = ancestors(graph, nodes)
    tables = any(is_a(node, TableHandle) for node in needed)
    tables = tables or any(is_a(node, TableHandle) for node in bodies)
    if any(map(is_variable, bodies)):
        return RequiredState(None, tables)
    variables = [node for node in needed if is_variable(node)]
    require_valid_nodes(graph, variables)
    return RequiredState({variable_key(node) for node in variables}, tables)


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
    if not read or any(value is None or value.size != len(dtypes) for value in lists):
        return
    constants = [_subset_constant(graph, value, read) for value in lists]
    reader = graph.add(
        node.op, prefix, *constants, name=node.name, dtypes=tuple(dtypes[port] for port in read)
    )
    for index, port in enumerate(read):
        graph.replace_uses(node.output(port), reader.output(index))


def _subset_constant(graph: Graph, texts: Any, indices: list[int]) -> Output:
    value = TensorValue(texts.reshape(-1)[indices])
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
    require_path(path)
    io = IoPolicy.parse(allow_io)
    if graph is None:
        return saved_model_state(*_saved_model(path), io=io)
    return restore_for_graph(graph, path, required_state(graph, tuple(graph)), io)


def restore_for_graph(
    graph: Graph, path: str | os.PathLike[str], required: RequiredState, io: IoPolicy = NO_IO
) -> State:
    """Restore the state that a graph requires from a SavedModel or a checkpoint.

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
            from tarfile import is_tarfile
            from zipfile import is_zipfile

            if is_zipfile(path) or (Path(path).is_file() and is_tarfile(path)):
                hint = f"unpack the archive, and {hint}"
            raise UsageError(message, path=error.path, hint=hint) from error
        return saved_model_state(*saved, required, io)
    model_folder = Path(prefix).parent.parent
    if (
        str(model_folder / VARIABLES_PREFIX) == prefix
        and (model_folder / "saved_model.pb").exists()
    ):
        return saved_model_state(*_saved_model(model_folder), required, io)
    return checkpoint_state(graph, prefix, required.variables, io)


def _saved_model(path: str | os.PathLike[str]) -> tuple[Graph, StateSources]:
    """The graph of a SavedModel, and the sources of its state."""
    data = read_graph_file(path)
    saved = saved_state(path, read_contents(data))
    if saved is None:
        raise UsageError("found no variables of a SavedModel", path=str(path))
    return decode_graph(data).graph, saved


_WHOLE_STATE: Final = RequiredState(None, True)


def saved_model_state(
    graph: Graph, saved: StateSources, required: RequiredState = _WHOLE_STATE, io: IoPolicy = NO_IO
) -> State:
    """The initial state of a SavedModel's graph, or the required part of it.

    Raises InvalidInput if the SavedModel names a node that the graph lacks, and the errors of a
    run.
    """
    if saved.owns_folder:
        io = io.with_roots(saved.folder)
    state = State() if saved.saver is None else _restored(graph, saved, required.variables, io)
    missing = set() if required.variables is None else {*required.variables}.difference(state)
    if saved.initializer is not None and (required.tables or missing):
        _run_initializer(graph, saved, saved.initializer, state, io)
    return state


def _restored(graph: Graph, saved: StateSources, keys: VariableKeys | None, io: IoPolicy) -> State:
    """The saved values of a graph's variables, optionally only those in `keys`."""
    assert saved.saver is not None
    _require_nodes(graph, saved, "restores variables by", saved.saver)
    restore, prefix = saved.saver
    originals = _copied_variables(graph)
    if keys is None:
        subgraph = RestoreSubgraph(graph, prefix, (restore,))
    else:
        restored = {*keys, *(copy for copy, key in originals.items() if key in keys)}
        subgraph = restore_subgraph(graph, restore, prefix, restored)
    readable = io.with_roots(Path(saved.prefix).parent)
    session = Session(subgraph.graph, soft_placement=True, allow_io=readable)
    if subgraph.targets:
        session.run([], {subgraph.prefix: saved.prefix}, subgraph.targets)
    _restore_originals(graph, session.state, originals, keys, saved.prefix)
    return session.state


def _copied_variables(graph: Graph) -> dict[tuple[str, str], tuple[str, str]]:
    """The original of each variable whose initial value is that of another variable.

    `tf.saved_model.save` of a Keras model saves copies of the variables that its functions read.
    """
    originals: dict[tuple[str, str], tuple[str, str]] = {}
    for node in graph:
        if not is_a(node, AssignVariableOp):
            continue
        target, read = (source.node for source in node.inputs[:2])
        if not (is_a(target, VarHandleOp) and is_a(read, ReadVariableOp)):
            continue
        original = read.inputs[0].node
        if is_a(original, VarHandleOp):
            originals[variable_key(target)] = variable_key(original)
    return originals


def _restore_originals(
    graph: Graph,
    state: State,
    originals: dict[tuple[str, str], tuple[str, str]],
    keys: VariableKeys | None,
    prefix: str,
) -> None:
    """Restore the originals that have no saved value from their copies."""
    values = dict(state.variables())
    nodes = {variable_key(node): node for node in graph if is_a(node, VarHandleOp)}
    for copy, original in originals.items():
        if copy not in values:
            continue
        if original not in values and (keys is None or original in keys):
            node = nodes[original]
            value = _checked_value(node, np.asarray(values[copy].value), prefix)
            state.get_or_make(*original, partial(_restored_variable, node, value))
        if keys is not None and copy not in keys:
            state.forget(*copy)


def _run_initializer(
    graph: Graph, saved: StateSources, initializer: str, state: State, io: IoPolicy
) -> None:
    """Run the initializer of a SavedModel, which may read its assets."""
    assets = Path(saved.folder, "assets")
    _require_nodes(graph, saved, "initializes its tables by", [initializer])
    _require_nodes(graph, saved, "passes an asset to", [asset.tensor for asset in saved.assets])
    target = graph[split_tensor_name(initializer.removeprefix("^"))[0]]
    feeds = {asset.tensor: str(assets / asset.filename) for asset in saved.assets}
    session = Session(graph, state=state, soft_placement=True, allow_io=io.with_roots(assets))
    session.run([], feeds, [target.name])


def _require_nodes(graph: Graph, saved: StateSources, verb: str, names: Iterable[str]) -> None:
    """Raise InvalidInput if the graph of a SavedModel lacks a node that the SavedModel names."""
    for name in names:
        if split_tensor_name(name.removeprefix("^"))[0] not in graph:
            message = f"the SavedModel {verb} {name!r}, which its graph does not have"
            raise InvalidInput(message, path=saved.path, code="CFG038")
