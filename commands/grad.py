"""Add gradients to a graph, through conditionals and loops, of any order."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph import options as given

Names = list[str]

Ys = Annotated[
    Names, typer.Option("--ys", metavar="LIST", help="What to differentiate: names; repeats.")
]
Xs = Annotated[
    Names,
    typer.Option(
        "--xs",
        metavar="LIST",
        help="By what; without, all variables and float inputs; repeats.",
    ),
]
GradYs = Annotated[
    Names,
    typer.Option(
        "--grad-ys",
        metavar="LIST",
        help="For each y what it is weighed with: a tensor, or a value as for --feed; repeats.",
    ),
]
Stop = Annotated[
    Names, typer.Option("--stop", metavar="LIST", help="Stop gradients there; repeats.")
]
Unconnected = Annotated[
    str,
    typer.Option(
        metavar="none|zero", help="What an x gets that no y depends on: nothing, or zeros."
    ),
]
Order = Annotated[
    int, typer.Option(metavar="K", min=1, help="Differentiate the sum of gradients, K times.")
]
SwapMemory = Annotated[
    bool, typer.Option("--swap-memory", help="Let a device move what loops save to the host.")
]
Recompute = Annotated[
    str | None,
    typer.Option(
        metavar="K|auto",
        help="Let a loop save its state every K iterations alone, and run again from there.",
    ),
]
IgnoreCustom = Annotated[
    bool,
    typer.Option("--ignore-custom", help="Take the op's gradient where a node has one of its own."),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Compare with finite differences; leave with 1 if they differ."),
]
Cases = Annotated[
    int | None,
    typer.Option("--cases", metavar="N", min=1, help="Check at N points; 1 if not given."),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        "--rtol",
        metavar="R",
        min=0,
        callback=given.finite_number,
        help="Relative tolerance of --check, beside what rounding makes of differences.",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="The seed of what --check draws.")
]
MapOut = Annotated[
    str | None,
    typer.Option("--map-out", metavar="FILE", help="Write as JSON the gradients of each x."),
]


def main(
    graph: given.Graph,
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
    verify: given.Verify = False,
    feed: given.Feed = [],
    feeds: given.Feeds = [],
    init: given.Init = [],
    variables: given.Variables = None,
    cases: Cases = None,
    rtol: Rtol = None,
    seed: Seed = None,
    timeout: given.Timeout = None,
    max_iterations: given.MaxIterations = None,
    output: given.Output = None,
    to: given.To = None,
    map_out: MapOut = None,
    json: given.Json = False,
    quiet: given.Quiet = False,
) -> None:
    """Add gradients to a graph, through conditionals and loops, of any order."""
    from cfgraph.console import grad as of
    from cfgraph.console.grad import grad_file

    asked = of.GradOptions(
        ys, xs, grad_ys, stop, unconnected, order, swap_memory, ignore_custom, recompute
    )
    checked = of.GradCheckOptions(
        check, feed, feeds, init, cases, rtol, seed, timeout, max_iterations, verify, variables
    )
    raise given.Exit(
        grad_file(graph, asked, checked, of.GradOutputOptions(output, to, map_out, json, quiet))
    )
