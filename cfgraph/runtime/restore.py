"""The variables of a SavedModel, brought in by the node of its graph that restores them."""

from __future__ import annotations

import os

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_bytes import read_file
from cfgraph.ir.files import decode
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import split_tensor_name
from cfgraph.ir.saved_model import SavedVariables, saved_variables
from cfgraph.runtime.session import Session
from cfgraph.runtime.state import State


def restore(path: str | os.PathLike[str]) -> State:
    """The variables of a SavedModel, as the state that a `Session` of its graph begins with.

    A later session takes it too, of a graph that was lowered or got gradients. Raises InvalidInput
    where there is no SavedModel, UsageError where it has no variables, ExecutionError where their
    files are broken.
    """
    data = read_file(path)
    found = saved_variables(path, data)
    if found is None:
        raise UsageError("there are no variables of a SavedModel", path=str(path))
    return restored_state(decode(data).graph, found)


def restored_state(graph: Graph, saved: SavedVariables) -> State:
    """The variables of a graph with their saved values.

    Raises InvalidInput where the SavedModel names no node of the graph, and what a run raises.
    """
    for name in saved.saver:
        if split_tensor_name(name)[0] not in graph:
            message = f"its variables are to be restored by {name!r}, which its graph does not have"
            raise InvalidInput(message, path=saved.path, code="CFG038")
    session = Session(graph, soft_placement=True)
    session.run([], {saved.saver.prefix: saved.prefix}, [saved.saver.restore])
    return session.state
