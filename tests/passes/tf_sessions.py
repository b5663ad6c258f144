"""Graphs of ours in TensorFlow, which is imported on use: it is the extra `interop`."""

from __future__ import annotations

from typing import Any

import cfgraph
from cfgraph.ir.graph import Graph
from tests.conformance import recorded


def _tf() -> Any:
    import tensorflow

    return tensorflow.compat.v1


def message_of(graph: Graph) -> Any:
    """Return TensorFlow's message of one of our graphs."""
    message = _tf().GraphDef()
    message.ParseFromString(cfgraph.dumps(graph))
    return message


def imported(message: Any) -> Any:
    """Return the graph of TensorFlow that a message imports as."""
    tf = _tf()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(message, name="")
    return graph


def session_of(graph: Graph) -> Any:
    """Return a session of TensorFlow on one of our graphs."""
    tf = _tf()
    config = tf.ConfigProto(allow_soft_placement=True)
    return tf.Session(graph=imported(message_of(graph)), config=config)


def feeds_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded arrays that a run is fed."""
    return {name: recorded.array(key) for name, key in run["feeds"].items()}
