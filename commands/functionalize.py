"""Turn Switch, Merge, Enter, and Exit into If, Case, and While: the inverse of lower."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import FunctionalizeOptions
from cfgraph.cli.transform_options import OutputOptions, VerifyInputs


def main(
    graph: options.Graph,
    request: FunctionalizeOptions,
    outputs: OutputOptions,
    inputs: VerifyInputs,
) -> None:
    """Turn Switch, Merge, Enter, and Exit into If, Case, and While: the inverse of lower."""
    from cfgraph.console.transforms.functionalize import FunctionalizedGraph
    from cfgraph.console.transforms.transform import transform_file
    from cfgraph.console.verify import Verification

    runs = inputs.with_names(request.fetch, ())
    verification = Verification(runs, runs.verify)
    raise options.Exit(transform_file(graph, FunctionalizedGraph, request, outputs, verification))
