"""The variables of a SavedModel, brought in by the node of its graph that restores them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from cfgraph.errors import CfgraphError, InvalidInput, UsageError
from cfgraph.ir.file_io import read_file
from cfgraph.ir.files import VARIABLES_PREFIX, SavedVariables, decode_graph, saved_variables
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import split_tensor_name
from cfgraph.runtime.checkpoint_state import checkpoint_prefix, named_state
from cfgraph.runtime.restore_needed import RestoringPart, restoring_part, variables_needed
from cfgraph.runtime.session import Session
from cfgraph.runtime.state import State

Keys = Collection[tuple[str, str]]


def restore(path: str | os.PathLike[str], graph: Graph | None = None) -> State:
    """The variables of a SavedModel, as the state that a `Session` of its graph begins with.

    A later session takes it too, of a graph that was lowered or got gradients. With a `graph`, only
    its variables; the path may also be that of a checkpoint then, which has them by their names.
    Raises InvalidInput where there is no file, or no SavedModel, UsageError where it has no
    variables, and with a graph where there is neither, ExecutionError where their files are broken.
    """
    if graph is None:
        return restored_state(*_saved_model(path))
    return restored_for(graph, path, variables_needed(graph, tuple(graph)))


def restored_for(graph: Graph, path: str | os.PathLike[str], keys: Keys | None) -> State:
    """The variables of a graph, all or those of some keys, from a SavedModel or a checkpoint.

    Raises as `restore` does.
    """
    prefix = checkpoint_prefix(path)
    if prefix is None:
        try:
            found = _saved_model(path)
        except CfgraphError as error:
            if not Path(path).exists():
                raise
            message = "there is no SavedModel with variables, and no checkpoint"
            hint = "name the folder of a SavedModel, or the prefix of a checkpoint's files"
            raise UsageError(message, path=error.path, hint=hint) from error
        return restored_state(*found, keys)
    around = Path(prefix).parent.parent
    if str(around / VARIABLES_PREFIX) == prefix and (around / "saved_model.pb").exists():
        return restored_state(*_saved_model(around), keys)
    return named_state(graph, prefix, keys)


def _saved_model(path: str | os.PathLike[str]) -> tuple[Graph, SavedVariables]:
    """The graph of a SavedModel, and where its variables are."""
    data = read_file(path)
    found = saved_variables(path, data)
    if found is None:
        raise UsageError("there are no variables of a SavedModel", path=str(path))
    return decode_graph(data).graph, found


def restored_state(graph: Graph, saved: SavedVariables, keys: Keys | None = None) -> State:
    """The variables of a graph with their saved values: all, or those of some keys.

    Raises InvalidInput where the SavedModel names no node of the graph, and what a run raises.
    """
    saver = saved.saver
    for name in saver:
        if split_tensor_name(name)[0] not in graph:
            message = f"its variables are to be restored by {name!r}, which its graph does not have"
            raise InvalidInput(message, path=saved.path, code="CFG038")
    if keys is None:
        part = RestoringPart(graph, saver.prefix, (saver.restore,))
    else:
        part = restoring_part(graph, saver.restore, saver.prefix, keys)
    session = Session(part.graph, soft_placement=True)
    if part.targets:
        session.run([], {part.prefix: saved.prefix}, part.targets)
    return session.state
