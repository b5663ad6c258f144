"""Replace variables by their values, inputs by constants, and remove what they decide."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import FreezeOptions
from cfgraph.cli.transform_options import ComparedRuns, FedInputs, OutputOptions, VerifyOptions


def main(
    graph: options.Graph,
    request: FreezeOptions,
    outputs: OutputOptions,
    cases: VerifyOptions,
    inputs: FedInputs,
) -> None:
    """Replace variables by their values, inputs by constants, and remove what they decide."""
    from cfgraph.console.transforms.freeze import FrozenGraph
    from cfgraph.console.transforms.transform import transform_file

    request = request.replace(
        variables=inputs.variables, allow_io=inputs.allow_io, feeds=inputs.feeds
    )
    values = request.set if cases.verify else ()
    runs = ComparedRuns.of_pass(inputs, cases, request.fetch, values)
    raise options.Exit(transform_file(graph, FrozenGraph, request, outputs, runs))
