"""Add gradients to a graph: through conditionals and loops, of any order."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import GradOptions
from cfgraph.cli.transform_options import GradientInputs, GradientOutput


def main(
    graph: options.Graph,
    request: GradOptions,
    outputs: GradientOutput,
    inputs: GradientInputs,
) -> None:
    """Add gradients to a graph: through conditionals and loops, of any order."""
    from cfgraph.console.transforms.grad import GraphWithGradients
    from cfgraph.console.transforms.transform import transform_file
    from cfgraph.console.verify import Verification

    verification = Verification(inputs, inputs.verify or None)
    raise options.Exit(transform_file(graph, GraphWithGradients, request, outputs, verification))
