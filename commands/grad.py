"""Add gradients to a graph: through conditionals and loops, of any order."""

from __future__ import annotations

from cfgraph.cli import options
from cfgraph.cli.pass_options import GradOptions
from cfgraph.cli.transform_options import ComparedRuns, GradientCases, GradientOutput, SeededInputs


def main(
    graph: options.Graph,
    request: GradOptions,
    outputs: GradientOutput,
    cases: GradientCases,
    inputs: SeededInputs,
) -> None:
    """Add gradients to a graph: through conditionals and loops, of any order."""
    from cfgraph.console.transforms.grad import GraphWithGradients
    from cfgraph.console.transforms.transform import transform_file

    runs = ComparedRuns(inputs, cases)
    raise options.Exit(transform_file(graph, GraphWithGradients, request, outputs, runs))
