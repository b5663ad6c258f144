"""Arguments and options shared by several commands, as annotated types for typer."""

from __future__ import annotations

import math
import os
from enum import StrEnum
from typing import IO, Annotated, Any, Final

import typer

from cfgraph.errors import UsageError

Exit = typer.Exit


# the section of a help page for options that most users do not need
ADVANCED: Final = "Advanced"


def reject_nan(value: float | None) -> float | None:
    """Check the number of an option. Raises UsageError for NaN, which compares with nothing."""
    if value is not None and math.isnan(value):
        raise UsageError("NaN is not a valid limit", hint="use a number")
    return value


class Color(StrEnum):
    """Values of `--color`."""

    auto = "auto"
    always = "always"
    never = "never"


Graph = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="Graph file, SavedModel folder, folder of partitions, or - for standard input.",
        show_default=False,
    ),
]
Graphs = Annotated[
    list[str],
    typer.Argument(
        metavar="GRAPH...", help="Graph files, SavedModel folders, or - for standard input."
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the graph to FILE; - is standard output."
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT", help="Output format: pb, pbtxt or graph. Default: from the suffix."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Feed = Annotated[
    list[str],
    typer.Option(
        "--feed",
        metavar="NAME=VALUE",
        help="Feed a tensor. VALUE: 3.5, [[1,2],[3,4]], @x.npy, @d.npz[key] or f32[2,3]:zeros. "
        "Repeatable.",
    ),
]
Feeds = Annotated[
    list[str],
    typer.Option(
        "--feeds",
        metavar="FILE.npz",
        help="Feed every array of an .npz or .json file under its name. Repeatable.",
    ),
]
Fetch = Annotated[
    list[str],
    typer.Option("--fetch", metavar="NAME[:PORT]", help="Fetch a tensor. Repeatable."),
]
Target = Annotated[
    list[str],
    typer.Option(
        "--target", metavar="NODE", help="Run a node for its side effects only. Repeatable."
    ),
]
Filter = Annotated[
    list[str],
    typer.Option(
        "--filter",
        metavar="GLOB",
        help="Show only nodes whose name matches; also op:GLOB, device:GLOB, frame:GLOB, "
        "live:CONDITION, function:GLOB. Repeatable; all filters must match.",
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full",
        help="Print everything, including values of more than 1024 elements (in JSON too).",
    ),
]
Out = Annotated[
    list[str],
    typer.Option(
        "--out", metavar="NAME=@FILE.npy", help="Write a fetched tensor to a file. Repeatable."
    ),
]
OutDir = Annotated[
    str | None,
    typer.Option("--out-dir", metavar="FOLDER", help="Write all fetched tensors to a folder."),
]
Expect = Annotated[
    list[str],
    typer.Option(
        "--expect",
        metavar="NAME=VALUE",
        help="Exit with status 1 if the tensor differs from VALUE (same syntax as --feed). "
        "Repeatable.",
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        "--rtol",
        metavar="R",
        min=0,
        callback=reject_nan,
        help="Relative tolerance. Default: depends on the dtype.",
        rich_help_panel=ADVANCED,
    ),
]
Atol = Annotated[
    float | None,
    typer.Option(
        "--atol",
        metavar="A",
        min=0,
        callback=reject_nan,
        help="Absolute tolerance. Default: depends on the dtype.",
        rich_help_panel=ADVANCED,
    ),
]
Tap = Annotated[
    list[str],
    typer.Option(
        "--tap",
        metavar="GLOB",
        help="Print every value of matching nodes, inside loops too. Accepts NODE:PORT and op:GLOB "
        "as well; NODE[13] is iteration 13 alone. Repeatable.",
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
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write a self-contained interactive HTML page."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        callback=reject_nan,
        help="Stop after this time, counted from the start of the command (exit status 6).",
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Stop if a value or the command needs more memory, such as 4GiB (exit status 5). "
        "Default: a quarter of the machine's.",
        rich_help_panel=ADVANCED,
    ),
]
MaxNodes = Annotated[
    int | None,
    typer.Option(
        "--max-nodes",
        metavar="N",
        min=0,
        help="Reject a graph that expands to more nodes when its functions are lowered. "
        "Default: 2000000.",
        rich_help_panel=ADVANCED,
    ),
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
Spread = Annotated[
    str | None,
    typer.Option(
        "--spread",
        metavar="hosts",
        help="Place each Ray worker on another host.",
        rich_help_panel=ADVANCED,
    ),
]
MaxIterations = Annotated[
    int | None,
    typer.Option(
        "--max-iterations", metavar="N", min=0, help="Stop a run when a loop exceeds N iterations."
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
Init = Annotated[
    list[str],
    typer.Option(
        "--init",
        metavar="NODE",
        help="Run an initializer first, in its own step. Repeatable; runs in the given order.",
    ),
]
Signature = Annotated[
    str | None,
    typer.Option(
        "--signature",
        metavar="NAME",
        help="Signature of a SavedModel whose names feeds and fetches may use. "
        "Default: serving_default.",
    ),
]
Variables = Annotated[
    str | None,
    typer.Option(
        "--variables",
        metavar="PATH",
        help="Restore variables from a SavedModel folder or a checkpoint.",
    ),
]
SaveVariables = Annotated[
    str | None,
    typer.Option(
        "--save-variables",
        metavar="DIR",
        help="Write the variables as a checkpoint, DIR/variables, after a run that succeeds.",
    ),
]
AllowIo = Annotated[
    bool,
    typer.Option(
        "--allow-io",
        help="Let the graph read and write any file. Default: it reads only inside the SavedModel "
        "and --variables, and writes nothing.",
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
Jit = Annotated[
    bool, typer.Option("--jit", help="Deprecated: --engine xla or compiled.", hidden=True)
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
Regions = Annotated[
    bool,
    typer.Option("--regions", help="Deprecated: --engine xla or compiled.", hidden=True),
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
Cases = Annotated[
    int | None,
    typer.Option(
        "--cases",
        metavar="N",
        min=1,
        help="Number of random inputs to compare on. Default: 4.",
        rich_help_panel=ADVANCED,
    ),
]
Size = Annotated[
    list[str],
    typer.Option(
        "--size",
        metavar="N|NAME=N,M",
        help="Size to assume for unknown dimensions, of all inputs or of one. Repeatable.",
        rich_help_panel=ADVANCED,
    ),
]
MapOut = Annotated[
    str | None,
    typer.Option(
        "--map-out",
        metavar="FILE",
        help="Write a JSON map from old node names to new ones.",
        rich_help_panel=ADVANCED,
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Run the input and the result, and compare; exit with status 1 and write nothing if "
        "they differ.",
    ),
]
Memory = Annotated[
    list[str],
    typer.Option(
        "--memory",
        metavar="DEVICE[=LIMIT]",
        help="Account for memory and copies, optionally with a limit: gpu:0=4GiB. Repeatable.",
        rich_help_panel=ADVANCED,
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
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print neither notes nor progress on stderr.")
]
ColorChoice = Annotated[
    Color, typer.Option("--color", help="Use color: auto, always, never.", metavar="WHEN")
]


def split_list(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, dropping empty items."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def use_color(choice: Color, stream: IO[Any] | None) -> bool:
    """Decide by the option, NO_COLOR, FORCE_COLOR, and whether the stream is a terminal."""
    if choice is not Color.auto:
        return choice is Color.always
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
