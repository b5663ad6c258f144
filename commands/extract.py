"""Extract the subgraph between tensors, or one iteration of a loop with its values."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import ExtractOptions
from cfgraph.cli.transform_options import ExtractInputs, OutputOptions


def main(
    graph: options.Graph, request: ExtractOptions, outputs: OutputOptions, inputs: ExtractInputs
) -> None:
    """Extract the subgraph between tensors, or one iteration of a loop with its values."""
    from cfgraph.console.transforms.extract import ExtractedGraph
    from cfgraph.console.transforms.transform import transform_file
    from cfgraph.console.verify import Verification

    verification = Verification(inputs, enabled=None)
    raise options.Exit(transform_file(graph, ExtractedGraph, request, outputs, verification))
