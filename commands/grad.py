"""Add gradients to a graph: through conditionals and loops, of any order."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options, run_options

Names = list[str]

Ys = Annotated[
    Names,
    options.repeatable("--ys", "LIST", "Tensors to differentiate, separated by commas."),
]
Xs = Annotated[
    Names,
    options.repeatable(
        "--xs",
        "LIST",
        "Tensors to differentiate with respect to. Default: all variables and float inputs.",
    ),
]
GradYs = Annotated[
    Names,
    options.repeatable(
        "--grad-ys",
        "LIST",
        "Upstream gradient for each y: a tensor name or a --feed value.",
        advanced=True,
    ),
]
Stop = Annotated[
    Names,
    options.repeatable(
        "--stop", "LIST", "Treat these tensors as constants (stop_gradients).", advanced=True
    ),
]
Unconnected = Annotated[
    str,
    typer.Option(
        metavar="none|zero",
        help="Gradient of an x that no y depends on.",
        rich_help_panel=options.ADVANCED,
    ),
]
Order = Annotated[
    int,
    typer.Option(
        metavar="K",
        min=1,
        help="Order of the derivative. Above 1: differentiate the sum of the gradients again, "
        "K-1 times.",
    ),
]
SwapMemory = Annotated[
    bool,
    typer.Option(
        "--swap-memory",
        help="Allow devices to swap values saved by loops to host memory.",
        rich_help_panel=options.ADVANCED,
    ),
]
Recompute = Annotated[
    str | None,
    typer.Option(
        metavar="K|auto",
        help="Gradient checkpointing: save loop state every K iterations and recompute the rest.",
    ),
]
IgnoreCustom = Annotated[
    bool,
    typer.Option(
        "--ignore-custom",
        help="Use the op's gradient for nodes that name a custom one.",
        rich_help_panel=options.ADVANCED,
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Compare with finite differences; exit with status 1 and write nothing if they "
        "differ.",
    ),
]
Cases = Annotated[
    int | None,
    typer.Option(
        "--cases",
        metavar="N",
        min=1,
        help="Number of random inputs for --check. Default: 1.",
        rich_help_panel=options.ADVANCED,
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        "--rtol",
        metavar="R",
        min=0,
        callback=options.reject_nan,
        help="Relative tolerance of --check, added to the estimated rounding error.",
        rich_help_panel=options.ADVANCED,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Seed of the random inputs of --check.",
        rich_help_panel=options.ADVANCED,
    ),
]
MapOut = Annotated[
    str | None,
    typer.Option(
        "--map-out",
        metavar="FILE",
        help="Write a JSON map from each x to its gradients.",
        rich_help_panel=options.ADVANCED,
    ),
]


def main(
    graph: options.Graph,
    ys: Ys = [],
    xs: Xs = [],
    grad_ys: GradYs = [],
    stop: Stop = [],
    unconnected: Unconnected = "none",
    order: Order = 1,
    swap_memory: SwapMemory = False,
    recompute: Recompute = None,
    ignore_custom: IgnoreCustom = False,
    check: Check = False,
    verify: options.Verify = False,
    feed: options.Feed = [],
    feeds: options.Feeds = [],
    init: options.Init = [],
    signature: options.Signature = None,
    variables: options.Variables = None,
    allow_io: run_options.AllowIo = False,
    cases: Cases = None,
    rtol: Rtol = None,
    seed: Seed = None,
    max_iterations: run_options.MaxIterations = None,
    output: options.Output = None,
    to: options.To = None,
    map_out: MapOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add gradients to a graph: through conditionals and loops, of any order."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.grad import GradOptions, grad_file
    from cfgraph.console.grad_check import FiniteDifferenceCheck
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.verify import Verification

    comparison = FiniteDifferenceCheck(rtol) if check else None
    request = GradOptions(
        ys,
        xs,
        grad_ys,
        stop,
        unconnected,
        order,
        swap_memory,
        ignore_custom,
        recompute,
        comparison,
    )
    runs = RunInputs(
        feeds=feed,
        archives=feeds,
        inits=init,
        cases=cases,
        seed=seed,
        max_iterations=max_iterations,
        variables=variables,
        allow_io=allow_io,
        signature=signature,
    )
    outputs = OutputOptions(output, to, map_out, "json" if json else "text", quiet)
    verification = Verification(runs, verify or None)
    raise options.Exit(grad_file(graph, request, outputs, verification, rtol))
