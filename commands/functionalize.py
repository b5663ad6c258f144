"""Turn Switch, Merge, Enter, and Exit into If, Case, and While: the inverse of lower."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import FunctionalizeOptions
from cfgraph.cli.transform_options import ComparedRuns, FedInputs, OutputOptions, VerifyOptions


def main(
    graph: options.Graph,
    request: FunctionalizeOptions,
    outputs: OutputOptions,
    cases: VerifyOptions,
    inputs: FedInputs,
) -> None:
    """Turn Switch, Merge, Enter, and Exit into If, Case, and While: the inverse of lower."""
    from cfgraph.console.transforms.functionalize import FunctionalizedGraph
    from cfgraph.console.transforms.transform import transform_file

    runs = ComparedRuns.of_pass(inputs, cases, request.fetch)
    raise options.Exit(transform_file(graph, FunctionalizedGraph, request, outputs, runs))
