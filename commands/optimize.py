"""Rewrite a graph to run faster, without changing any value or which tensors are live."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import OptimizeOptions
from cfgraph.cli.transform_options import CaseInputs, OutputOptions


def main(
    graph: options.Graph,
    request: OptimizeOptions,
    outputs: OutputOptions,
    inputs: CaseInputs,
) -> None:
    """Rewrite a graph to run faster, without changing any value or which tensors are live."""
    from cfgraph.console.transforms.optimize import OptimizedGraph
    from cfgraph.console.transforms.transform import transform_file
    from cfgraph.console.verify import Verification

    runs = inputs.with_names(request.fetch, request.feed)
    verification = Verification(runs, runs.verify)
    raise options.Exit(transform_file(graph, OptimizedGraph, request, outputs, verification))
