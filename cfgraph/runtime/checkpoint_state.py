"""Variables from a checkpoint that keeps them by their names, as one without a SavedModel does."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, Final

from cfgraph.analysis.trainable_inputs import is_variable, variable_key
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.serde.checkpoint import Checkpoint
from cfgraph.ops.op import is_a
from cfgraph.ops.resource_variables import VarHandleOp
from cfgraph.ops.variables import Variable, Variable_
from cfgraph.runtime.state import State

_INDEX: Final = ".index"


def checkpoint_prefix(path: str | os.PathLike[str]) -> str | None:
    """The prefix of a checkpoint's files: the path, that of its index, or the one in a folder.

    None where there is no checkpoint, and where a folder holds several.
    """
    place = Path(path)
    prefix = str(place).removesuffix(_INDEX)
    if Path(prefix + _INDEX).is_file():
        return prefix
    found = [str(item) for item in place.glob(f"*{_INDEX}")] if place.is_dir() else []
    return found[0].removesuffix(_INDEX) if len(found) == 1 else None


def named_state(graph: Graph, prefix: str, keys: Collection[tuple[str, str]] | None) -> State:
    """The variables of a graph, all or those of some keys, that a checkpoint has by their names.

    Raises InvalidInput where the checkpoint is broken or has another type or shape for one.
    """
    checkpoint, state = Checkpoint(prefix), State()
    for node in graph:
        if not is_variable(node):
            continue
        container, name = variable_key(node)
        if name in checkpoint.entries and (keys is None or (container, name) in keys):
            value = _fitting(node, checkpoint.read(name), prefix)
            state.get_or_make(container, name, partial(_variable, node, value))
    return state


def _variable(node: Node, value: Any) -> Variable:
    container, name = variable_key(node)
    return Variable(
        node.attr("dtype"),
        node.attr("shape"),
        name,
        container=container,
        resource=is_a(node, VarHandleOp),
        value=value if value.ndim or value.dtype.hasobject else value[()],
    )


def _fitting(node: Node, value: Any, prefix: str) -> Any:
    dtype, shape = node.attr("dtype"), node.attr("shape")
    told = not is_a(node, Variable_) or shape.rank
    if value.dtype != dtype.numpy or (told and not shape.accepts(value.shape)):
        message = f"{variable_key(node)[1]!r} is {value.dtype}{list(value.shape)} in the checkpoint"
        raise InvalidInput(f"{message}, not {dtype}{shape}", node=node, path=prefix, code="CFG038")
    return value
