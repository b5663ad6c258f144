"""Place a graph on devices, and connect the partitions with Send and Recv."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import PartitionOptions
from cfgraph.cli.transform_options import ComparedRuns, FedInputs, FolderOutput, VerifyOptions


def main(
    graph: options.Graph,
    request: PartitionOptions,
    outputs: FolderOutput,
    cases: VerifyOptions,
    inputs: FedInputs,
) -> None:
    """Place a graph on devices, and connect the partitions with Send and Recv."""
    from cfgraph.console.transforms.partition import PartitionedGraph
    from cfgraph.console.transforms.transform import transform_file

    runs = ComparedRuns(inputs, cases)
    raise options.Exit(transform_file(graph, PartitionedGraph, request, outputs, runs))
