"""Lower functional conditionals, loops and calls to the five control-flow primitives."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import LowerOptions
from cfgraph.cli.transform_options import ComparedRuns, FedInputs, OutputOptions, VerifyOptions


def main(
    graph: options.Graph,
    request: LowerOptions,
    outputs: OutputOptions,
    cases: VerifyOptions,
    inputs: FedInputs,
) -> None:
    """Lower functional conditionals, loops and calls to the five control-flow primitives."""
    from cfgraph.console.transforms.lower import Lowering
    from cfgraph.console.transforms.transform import transform_file

    runs = ComparedRuns(inputs, cases)
    raise options.Exit(transform_file(graph, Lowering, request, outputs, runs))
