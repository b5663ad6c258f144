"""Replace variables by their values, inputs by constants, and remove what they decide."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import FreezeOptions
from cfgraph.cli.transform_options import FreezeInputs, OutputOptions


def main(
    graph: options.Graph, request: FreezeOptions, outputs: OutputOptions, inputs: FreezeInputs
) -> None:
    """Replace variables by their values, inputs by constants, and remove what they decide."""
    from cfgraph.console.transforms.freeze import FrozenGraph
    from cfgraph.console.transforms.transform import transform_file
    from cfgraph.console.verify import Verification

    request = request.replace(variables=inputs.variables, allow_io=inputs.allow_io)
    runs = inputs.with_names(request.fetch, request.set if inputs.verify else ())
    verification = Verification(runs, runs.verify, shares_names=True)
    raise options.Exit(transform_file(graph, FrozenGraph, request, outputs, verification))
