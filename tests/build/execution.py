"""Graphs of a Builder: saved, loaded, and run by cfgraph and by TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import cfgraph
from cfgraph import Builder, CfgraphError


def run_builder(
    builder: Builder,
    fetches: Sequence[Any],
    feeds: Mapping[str, Any] | None = None,
    before: Sequence[Any] = (),
    **options: Any,
) -> list[Any]:
    """Values of tensors; the operations `before` run first, one by one."""
    session = cfgraph.Session(cfgraph.loads(cfgraph.dumps(builder.graph)), **options)
    for operation in before:
        session.run(feeds=feeds, targets=[operation.name])
    tensors = [item.name for item in fetches if hasattr(item, "dtype")]
    targets = [item.name for item in fetches if not hasattr(item, "dtype")]
    return [item.tolist() for item in session.run(tensors, feeds, targets)]


def run_with_tensorflow(
    builder: Builder,
    fetches: Sequence[Any],
    feeds: Mapping[str, Any] | None = None,
    before: Sequence[Any] = (),
) -> list[Any]:
    """Values of tensors from TensorFlow, for the graph as written."""
    tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    definition = tf.compat.v1.GraphDef.FromString(cfgraph.dumps(builder.graph))
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")
    feed = {f"{name}:0": value for name, value in (feeds or {}).items()}
    with tf.compat.v1.Session(graph=graph) as session:
        for operation in before:
            session.run(operation.name, feed)
        result = session.run([item.name for item in fetches], feed)
    return [item.tolist() for item in result if item is not None]


def line_of(action: Callable[[], Any]) -> int:
    """The source line of a one-line function."""
    return action.__code__.co_firstlineno


def rejection(action: Callable[[], Any]) -> CfgraphError:
    """The error that a one-line function raises, which must name that line."""
    with pytest.raises(CfgraphError) as caught:
        action()
    error = caught.value
    assert error.path == f"{action.__code__.co_filename}:{line_of(action)}", error
    return error
