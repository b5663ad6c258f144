"""TensorFlow on the same files, where the extra `interop` is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def tensorflow() -> ModuleType | None:
    """TensorFlow, or None."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # permits automatic clustering on a CPU to sessions that request it; others are unchanged
    os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit")
    try:
        import tensorflow as tf
    except ImportError:
        return None
    found: ModuleType = tf
    return found


def importer(tf: ModuleType, data: bytes) -> Callable[[], Any]:
    """Load an encoded graph into an empty tf.Graph."""

    def load() -> Any:
        message = tf.compat.v1.GraphDef()
        message.ParseFromString(data)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(message, name="")
        return graph

    return load


def runner(
    tf: ModuleType, path: Path, fetches: list[str], feeds: dict[str, Any], *, jit: bool = False
) -> Callable[[], Any]:
    """Run a graph file in one session, again and again; with `jit` clustered for XLA."""
    graph = importer(tf, path.read_bytes())()
    config = tf.compat.v1.ConfigProto()
    if jit:
        level = tf.compat.v1.OptimizerOptions.ON_1
        config.graph_options.optimizer_options.global_jit_level = level
    session = tf.compat.v1.Session(graph=graph, config=config)
    return lambda: session.run(fetches, feeds)
