"""Options of how a graph runs: devices, workers, engine, clock, and observers."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import ADVANCED, reject_nan, repeatable

Tap = Annotated[
    list[str],
    repeatable(
        "--tap",
        "GLOB",
        "Print every value of matching nodes, inside loops too. Accepts NODE:PORT and op:GLOB"
        " as well; NODE[13] is iteration 13 alone.",
    ),
]
TapNonfinite = Annotated[
    bool,
    typer.Option(
        "--tap-nonfinite", help="Report the first values with NaN or Inf: node, frame, iteration."
    ),
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace", help="Print one line per executed node, then totals by op, node and loop."
    ),
]
TraceOut = Annotated[
    str | None,
    typer.Option(
        "--trace-out",
        metavar="FILE",
        help="Save the trace, also of a failed run: .json (Perfetto) or .jsonl, optionally .gz.",
    ),
]
Timeline = Annotated[
    bool,
    typer.Option("--timeline", help="Draw the activity of each device over time, and messages."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Divide the devices among N worker processes. Default: one per task of the devices.",
        rich_help_panel=ADVANCED,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="local|auto|ADDRESS",
        help="Start the workers on Ray: on this machine, or on a cluster (auto: $RAY_ADDRESS).",
        rich_help_panel=ADVANCED,
    ),
]
LostAfter = Annotated[
    float | None,
    typer.Option(
        "--lost-after",
        metavar="SECONDS",
        callback=reject_nan,
        help="Fail when a worker is silent for this long. Default: 10.",
        rich_help_panel=ADVANCED,
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries",
        metavar="N",
        min=0,
        help="Restore --variables and run again, at most N times, if a worker is lost. Default: 0.",
        rich_help_panel=ADVANCED,
    ),
]
Spread = Annotated[
    str | None,
    typer.Option(
        "--spread",
        metavar="hosts",
        help="Place each Ray worker on another host.",
        rich_help_panel=ADVANCED,
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Seed of random ops and of random feeds.")
]
Schedule = Annotated[
    str,
    typer.Option(
        "--schedule",
        metavar="fifo|random",
        help="Order in which ready nodes run.",
        rich_help_panel=ADVANCED,
    ),
]
ScheduleSeed = Annotated[
    int,
    typer.Option(
        "--schedule-seed",
        metavar="N",
        help="Seed of --schedule random.",
        rich_help_panel=ADVANCED,
    ),
]
Clock = Annotated[
    str,
    typer.Option(
        "--clock",
        metavar="real|virtual",
        help="Use the real clock, or predict times with a cost model.",
    ),
]
Costs = Annotated[
    str | None,
    typer.Option(
        "--costs",
        metavar="FILE.toml",
        help="Cost model (devices, links, kernels) for the virtual clock; "
        "`cfgraph explain CFG037` documents the format.",
        rich_help_panel=ADVANCED,
    ),
]
UntilIteration = Annotated[
    int | None,
    typer.Option(
        "--until-iteration",
        metavar="N",
        min=1,
        help="Virtual clock only: stop once the outermost loops have started iteration N.",
        rich_help_panel=ADVANCED,
    ),
]
NoValues = Annotated[
    bool,
    typer.Option(
        "--no-values",
        help="Virtual clock only: evaluate only values that affect control flow; propagate shapes "
        "for the rest.",
        rich_help_panel=ADVANCED,
    ),
]
Calibrate = Annotated[
    str | None,
    typer.Option(
        "--calibrate",
        metavar="FILE.toml",
        help="Write the measured kernel times as a cost model for --costs.",
        rich_help_panel=ADVANCED,
    ),
]
Devices = Annotated[
    list[str],
    typer.Option(
        "--devices", metavar="LIST", help="Devices, such as cpu:0,gpu:0-3, or full names."
    ),
]
PlaceRules = Annotated[
    list[str],
    typer.Option(
        "--place",
        metavar="GLOB=DEVICE",
        help="Place matching nodes on a device; also op:GLOB=DEVICE, frame:GLOB=DEVICE. "
        "Repeatable; the last match wins.",
    ),
]
RulesFile = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="FILE.toml",
        help="Read placement rules; those of --place take precedence.",
        rich_help_panel=ADVANCED,
    ),
]
Soft = Annotated[
    bool,
    typer.Option(
        "--soft",
        help="Soft placement: ignore device requests that cannot be satisfied.",
        rich_help_panel=ADVANCED,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="auto|tokens|compiled|xla",
        help="Engine of the run. compiled: Python code where possible; tokens: the token executor; "
        "xla: XLA for loops, conditionals, and clusters of nodes, within tolerance. Default: auto, "
        "which is compiled.",
    ),
]
ExplainEngine = Annotated[
    bool,
    typer.Option(
        "--explain-engine",
        help="Print the engine that ran the graph, and why.",
        rich_help_panel=ADVANCED,
    ),
]
BlasThreads = Annotated[
    str,
    typer.Option(
        "--blas-threads",
        metavar="N|auto",
        help="Threads for a product of matrices; auto uses one unless products are large.",
        rich_help_panel=ADVANCED,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache",
        help="Neither read nor write the user's cache of generated code ($CFGRAPH_CACHE, else "
        "~/.cache/cfgraph).",
        rich_help_panel=ADVANCED,
    ),
]
Lazy = Annotated[
    bool,
    typer.Option(
        "--lazy",
        help="Compile a cluster only when an input signature is seen a second time.",
        rich_help_panel=ADVANCED,
    ),
]
Memory = Annotated[
    list[str],
    repeatable(
        "--memory",
        "DEVICE[=LIMIT]",
        "Account for memory and copies, optionally with a limit: gpu:0=4GiB.",
        advanced=True,
    ),
]
SwapAbove = Annotated[
    float | None,
    typer.Option(
        "--swap-above",
        metavar="FRACTION",
        help="Start swapping stacks to host memory above this fraction of the limit (0-1). "
        "Default: 0.7.",
        rich_help_panel=ADVANCED,
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="real|simulated",
        help="Run GPUs as `real` (CuPy) or `simulated` (NumPy). Default: real if a GPU is present.",
    ),
]
