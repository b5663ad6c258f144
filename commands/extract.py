"""Extract the subgraph between tensors, or one iteration of a loop with its values."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options, run_options

Outputs = Annotated[
    list[str],
    options.repeatable(
        "--outputs", "LIST", "Tensors to compute, or nodes as ^NODE, separated by commas."
    ),
]
Inputs = Annotated[
    list[str],
    options.repeatable(
        "--inputs",
        "LIST",
        "Tensors to cut at. Default: none, or the variables of the loop of the outputs.",
    ),
]
Iteration = Annotated[
    str | None,
    typer.Option(
        "--iteration",
        metavar="N",
        help="Run the graph, and take the values of this iteration of the loop of the outputs; "
        "OUTER,INNER for nested loops. Default with feeds: 0.",
    ),
]


def main(
    graph: options.Graph,
    outputs: Outputs,
    inputs: Inputs = [],
    output: options.Output = None,
    to: options.To = None,
    feed: options.Feed = [],
    feeds: options.Feeds = [],
    iteration: Iteration = None,
    init: options.Init = [],
    signature: options.Signature = None,
    variables: options.Variables = None,
    allow_io: run_options.AllowIo = False,
    max_iterations: run_options.MaxIterations = None,
    map_out: options.MapOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Extract the subgraph between tensors, or one iteration of a loop with its values."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.extract import ExtractedGraph, ExtractOptions
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.transform import transform_file
    from cfgraph.console.verify import Verification

    run = RunInputs(
        feeds=feed,
        archives=feeds,
        inits=init,
        max_iterations=max_iterations,
        variables=variables,
        allow_io=allow_io,
        signature=signature,
    )
    written = OutputOptions(output, to, map_out, "json" if json else "text", quiet)
    request = ExtractOptions(outputs, inputs, iteration)
    verification = Verification(run, enabled=None)
    raise options.Exit(transform_file(graph, ExtractedGraph, request, written, verification))
