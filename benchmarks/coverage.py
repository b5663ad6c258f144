"""The share of nodes in clusters, without and with regions.

The peer is what TensorFlow itself clusters, as its dumps say; its optimizer is off, so that it sees
the nodes of the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final

import cfgraph
from benchmarks.measurement import Row
from benchmarks.running import GRAPHS
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph

RECORDED: Final = GRAPHS.parent / "conformance" / "tensorflow.zip"
FILES: Final = ("lstm.pb", "lstm_grad.pb")
_TINY: Final = 1
_EVERY: Final = 10

_TENSORFLOW_SCRIPT: Final = """
import sys
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
message = v1.GraphDef()
message.ParseFromString(open(sys.argv[1], "rb").read())
config = v1.ConfigProto()
config.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_1
config.graph_options.rewrite_options.disable_meta_optimizer = True
with tf.Graph().as_default() as graph:
    tf.import_graph_def(message, name="")
feeds = {"W:0": np.zeros((512, 1024), np.float32), "x:0": np.zeros((2, 32, 256), np.float32)}
v1.Session(graph=graph, config=config).run(sys.argv[2:], feeds)
"""


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The share of the LSTM, with and without its gradient, and of the recorded graphs."""
    for name in FILES[:1] if tiny else FILES:
        fetches = ["loss:0", "dW:0"] if "grad" in name else ["loss:0"]
        graph = cfgraph.load(GRAPHS / name)
        theirs = tensorflow_share(GRAPHS / name, fetches) if tf and not tiny else None
        for regions in (False, True):
            yield from shares(name, [graph], theirs, regions=regions)
    every = len(graphs()) // _TINY if tiny else _EVERY
    recorded = [cfgraph.loads(data) for data in graphs()[::every]]
    for regions in (False, True):
        yield from shares("recorded graphs", recorded, None, regions=regions)


def shares(
    name: str, every: Iterable[Graph], theirs: float | None, *, regions: bool
) -> Iterator[Row]:
    """The share of nodes clustered, and the number of clusters."""
    nodes = clustered = clusters = 0
    for graph in every:
        copy = cfgraph.loads(cfgraph.dumps(graph))
        try:
            report = cfgraph.cluster(copy, regions=regions)
        except CfgraphError:
            continue  # not valid on purpose, or with an op that cannot be lowered
        nodes += report.nodes
        clustered += report.clustered
        clusters += len(report.clusters)
    label = f"{name}{', regions' if regions else ''}"
    yield Row(f"{label}: in {clusters} clusters", 100 * clustered / max(nodes, 1), "%", theirs)


def graphs() -> list[bytes]:
    """The recorded graphs."""
    with zipfile.ZipFile(RECORDED) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".pb"))
        return [archive.read(name) for name in names]


def tensorflow_share(path: Path, fetches: list[str]) -> float | None:
    """The share of a file's nodes that TensorFlow clusters, in a process whose dumps are read."""
    with TemporaryDirectory() as folder:
        flags = "--tf_xla_cpu_global_jit --tf_xla_clustering_debug --tf_xla_min_cluster_size=2"
        given = {**os.environ, "TF_DUMP_GRAPH_PREFIX": folder, "TF_XLA_FLAGS": flags}
        command = [sys.executable, "-c", _TENSORFLOW_SCRIPT, str(path), *fetches]
        subprocess.run(command, env=given, check=True, capture_output=True)
        dumps = sorted(Path(folder).glob("mark_for_compilation_annotated*"))
        if not dumps:
            return None
        marked = len(re.findall(r'key: "_XlaCluster"', dumps[0].read_text(errors="replace")))
        return 100 * marked / len(cfgraph.load(path))
