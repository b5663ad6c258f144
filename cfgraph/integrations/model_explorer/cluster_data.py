"""Data of `cluster` per node: the cluster that has it, or the reason why none has."""

from __future__ import annotations

from typing import Final

from cfgraph.cli.json_output import Artifact
from cfgraph.console.graph_files import artifact
from cfgraph.integrations.model_explorer.identifiers import graph_members
from cfgraph.integrations.model_explorer.node_data import NodeDataFile
from cfgraph.ir.graph import Graph
from cfgraph.passes.cluster.formation.report import Clustering

_CLUSTER: Final = "cluster"


class ClusterData:
    """The requested file, and the nodes of the graph before clustering."""

    def __init__(self, graph: Graph, text: str) -> None:
        self.file = NodeDataFile(text, (_CLUSTER,))
        self.members = graph_members(graph)

    def write(self, report: Clustering) -> Artifact:
        """Write the file; returns its entry in a JSON document."""
        clusters = {name: item.name for item in report.clusters for name in item.nodes}
        outside = {name: f"none: {reason.kind}" for name, reason in report.outside.items()}
        copied = dict.fromkeys(report.absorbed, "copied into clusters")
        self.file.write(self.members, {**outside, **copied, **clusters}, _CLUSTER)
        return artifact("node_data", self.file.path)
