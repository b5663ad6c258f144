"""Runs of a graph in a mode of TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfgraph.analysis.resource_handles import is_variable
from cfgraph.errors import Unsupported
from cfgraph.integrations.tensorflow.modes import Mode
from cfgraph.integrations.tensorflow.processes import ModeFailure, ModePool
from cfgraph.ir.dtypes import resource
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import copy_graph, remove_uncalled_functions
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.lower.lower import drop_dangling_colocation
from cfgraph.processes.messages import ProcessMessage
from cfgraph.runtime.feeds.conversion import feed_type


@dataclass(frozen=True, slots=True)
class ModeValues:
    """Fetched values by name, or the failure of the run.

    A dead tensor is an empty array. `dead` are those that are dead for sure, `empty` those that
    may be.
    """

    values: dict[str, Any] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    failure: ModeFailure | None = None


def run_mode(
    pool: ModePool,
    mode: Mode,
    graph: Graph,
    fetches: Sequence[str],
    feeds: Mapping[str, Any],
    targets: Sequence[str] = (),
    without: Sequence[str] = (),
) -> ModeValues:
    """Run a graph in a mode; `without` are optimizers of Grappler that are disabled."""
    message = run_message(graph, fetches, feeds, targets, without)
    # options of Grappler stay set in a process
    answer = pool.request(mode, message, {} if without else None)
    if answer.message is None:
        return ModeValues(failure=answer.failure)
    header = answer.message.header
    dead, empty = frozenset(header["dead"]), frozenset(header["empty"])
    return ModeValues(dict(answer.message.arrays), dead, empty)


def run_message(
    graph: Graph,
    fetches: Sequence[str],
    feeds: Mapping[str, Any],
    targets: Sequence[str] = (),
    without: Sequence[str] = (),
) -> ProcessMessage:
    """Return the request to run a graph; a value fed for a handle is that of a new variable."""
    needed = needed_graph(graph, fetches, targets, feeds)
    arrays: dict[str, Any] = {"graph": np.frombuffer(dumps(needed), np.uint8)}
    specs: list[dict[str, Any]] = []
    for name, value in feeds.items():
        tensor = graph.tensor(name)
        dtype, shape = feed_type(graph, tensor)
        arrays[f"feed {name}"] = np.asarray(value, None if dtype is None else dtype.base.numpy)
        is_handle = tensor.dtype is resource
        specs.append({"name": name, "shape": shape.dims, "is_handle": is_handle})
    request = {
        "feeds": specs,
        "fetches": list(fetches),
        "targets": [name.removeprefix("^") for name in targets],
        "without": list(without),
    }
    return ProcessMessage(request, arrays)


def needed_graph(
    graph: Graph, fetches: Sequence[str], targets: Sequence[str], feeds: Mapping[str, Any]
) -> Graph:
    """Return a copy with the nodes that a run needs."""
    roots = [graph.tensor(name).node for name in fetches]
    roots += [graph[name.removeprefix("^")] for name in targets]
    fed = {graph.tensor(name) for name in feeds}
    needed = {node.name for node in ancestors(graph, roots, fed)}
    needed |= {tensor.node.name for tensor in fed}
    copy = copy_graph(graph)
    for tensor in fed:
        _cut(copy, tensor)
    copy.remove(*[node for node in copy if node.name not in needed])
    remove_uncalled_functions(copy)
    drop_dangling_colocation(copy, copy)
    return copy


def _cut(copy: Graph, tensor: Output) -> None:
    """Replace the node of a fed tensor by a Placeholder; a compiled function makes no variable."""
    node = copy[tensor.node.name]
    if not node.inputs and not node.controls and not is_variable(node):
        return
    if tensor.port or any(use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0):
        message = f"{tensor.name} is one of several outputs, and cannot be fed to TensorFlow"
        raise Unsupported(message, node=node)
    dtype = tensor.dtype
    copy.set_inputs(node, ())
    copy.set_controls(node, ())
    copy.set_op(node, "Placeholder", {"dtype": dtype.base if dtype else None})
