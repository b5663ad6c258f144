"""Extract the subgraph between tensors, or one iteration of a loop with its values."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import ExtractOptions
from cfgraph.cli.transform_options import ComparedRuns, LimitedInputs, OutputOptions


def main(
    graph: options.Graph, request: ExtractOptions, outputs: OutputOptions, inputs: LimitedInputs
) -> None:
    """Extract the subgraph between tensors, or one iteration of a loop with its values."""
    from cfgraph.console.transforms.extract import ExtractedGraph
    from cfgraph.console.transforms.transform import transform_file

    runs = ComparedRuns(inputs)
    raise options.Exit(transform_file(graph, ExtractedGraph, request, outputs, runs))
