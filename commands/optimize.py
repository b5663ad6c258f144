"""Rewrite a graph to run faster, without changing any value or which tensors are live."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import OptimizeOptions
from cfgraph.cli.transform_options import ComparedRuns, ModelInputs, OutputOptions, VerifyOptions


def main(
    graph: options.Graph,
    request: OptimizeOptions,
    outputs: OutputOptions,
    cases: VerifyOptions,
    inputs: ModelInputs,
) -> None:
    """Rewrite a graph to run faster, without changing any value or which tensors are live."""
    from cfgraph.console.transforms.optimize import OptimizedGraph
    from cfgraph.console.transforms.transform import transform_file

    runs = ComparedRuns.of_pass(inputs, cases, request.fetch, request.feed)
    raise options.Exit(transform_file(graph, OptimizedGraph, request, outputs, runs))
