"""Group nodes into clusters that XLA compiles, without changing which tensors are live."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import ClusterOptions
from cfgraph.cli.transform_options import ComparedRuns, ModelInputs, OutputOptions, VerifyOptions


def main(
    graph: options.Graph,
    request: ClusterOptions,
    outputs: OutputOptions,
    cases: VerifyOptions,
    inputs: ModelInputs,
) -> None:
    """Group nodes into clusters that XLA compiles, without changing which tensors are live."""
    from cfgraph.console.transforms.cluster import ClusteredGraph
    from cfgraph.console.transforms.transform import transform_file

    format = "json" if outputs.json else request.format
    request = request.replace(format=format)
    outputs = outputs.replace(json=format == "json")
    runs = ComparedRuns.of_pass(inputs, cases, request.fetch, request.feed)
    raise options.Exit(transform_file(graph, ClusteredGraph, request, outputs, runs))
