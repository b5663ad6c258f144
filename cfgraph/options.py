"""Arguments and options shared by several commands, as annotated types for typer."""

from __future__ import annotations

import math
import os
from enum import StrEnum
from typing import IO, Annotated, Any

import typer

from cfgraph.errors import UsageError

Exit = typer.Exit


def finite_number(value: float | None) -> float | None:
    """An option's number. Raises UsageError for NaN, which no limit can be compared with."""
    if value is not None and math.isnan(value):
        raise UsageError("NaN is no limit", hint="give a number")
    return value


class Color(StrEnum):
    """When to use colour."""

    auto = "auto"
    always = "always"
    never = "never"


Graph = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A graph file, a folder of a SavedModel or of parts, or - for standard input.",
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
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; - is standard output."),
]
To = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="Write as pb, pbtxt or graph; the suffix decides else."),
]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]
Feed = Annotated[
    list[str],
    typer.Option(
        "--feed",
        metavar="NAME=VALUE",
        help="Feed a tensor: 3.5, [[1,2],[3,4]], @x.npy, @d.npz[key] or f32[2,3]:zeros; repeats.",
    ),
]
Feeds = Annotated[
    list[str],
    typer.Option(
        "--feeds", metavar="FILE.npz", help="Feed each array under its name; also .json; repeats."
    ),
]
Fetch = Annotated[
    list[str],
    typer.Option("--fetch", metavar="NAME[:PORT]", help="A tensor to return; repeats."),
]
Target = Annotated[
    list[str],
    typer.Option("--target", metavar="NODE", help="A node to run for its effect; repeats."),
]
Filter = Annotated[
    list[str],
    typer.Option(
        "--filter",
        metavar="GLOB",
        help="Only nodes of such names; or op:, device:, frame:, live:, function:GLOB; repeats, "
        "all must fit.",
    ),
]
Full = Annotated[
    bool, typer.Option("--full", help="Print values of more than 1024 elements whole, in JSON too.")
]
Out = Annotated[
    list[str],
    typer.Option("--out", metavar="NAME=@FILE.npy", help="Write a tensor to a file; repeats."),
]
OutDir = Annotated[
    str | None,
    typer.Option("--out-dir", metavar="FOLDER", help="Write all that is fetched to a folder."),
]
Expect = Annotated[
    list[str],
    typer.Option(
        "--expect",
        metavar="NAME=VALUE",
        help="Leave with 1 if a tensor is not this, VALUE as for --feed; repeats.",
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option("--rtol", metavar="R", min=0, callback=finite_number, help="Relative tolerance."),
]
Atol = Annotated[
    float | None,
    typer.Option("--atol", metavar="A", min=0, callback=finite_number, help="Absolute tolerance."),
]
Tap = Annotated[
    list[str],
    typer.Option(
        "--tap", metavar="GLOB", help="Print all values of a node, NODE:PORT or op:X; repeats."
    ),
]
Trace = Annotated[bool, typer.Option("--trace", help="Show what happens, and where time goes.")]
TraceOut = Annotated[
    str | None,
    typer.Option(
        "--trace-out",
        metavar="FILE",
        help="Save the trace, of a failed run too: .json (for Perfetto) or .jsonl, each also .gz.",
    ),
]
Timeline = Annotated[
    bool, typer.Option("--timeline", help="Draw what each device did when, and the messages.")
]
Html = Annotated[
    str | None,
    typer.Option(
        "--html", metavar="FILE", help="Write a page to look at in a browser, in one file."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        callback=finite_number,
        help="Stop a run that takes longer.",
    ),
]
MaxIterations = Annotated[
    int | None,
    typer.Option("--max-iterations", metavar="N", min=0, help="Stop a loop that goes on longer."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The seed of random ops and feeds.")]
Schedule = Annotated[
    str,
    typer.Option("--schedule", metavar="HOW", help="Take what is ready as fifo, or at random."),
]
ScheduleSeed = Annotated[
    int, typer.Option("--schedule-seed", metavar="N", help="The seed of a random schedule.")
]
Clock = Annotated[
    str,
    typer.Option("--clock", metavar="WHICH", help="Time by the real clock, or a virtual one."),
]
Costs = Annotated[
    str | None,
    typer.Option(
        "--costs",
        metavar="FILE.toml",
        help="What the virtual clock says of machines; `explain CFG037` tells the form.",
    ),
]
UntilIteration = Annotated[
    int | None,
    typer.Option(
        "--until-iteration",
        metavar="N",
        min=1,
        help="In virtual time: end when loops have begun iteration N.",
    ),
]
NoValues = Annotated[
    bool,
    typer.Option(
        "--no-values",
        help="In virtual time: compute only what decides where tokens go, and shapes.",
    ),
]
Calibrate = Annotated[
    str | None,
    typer.Option(
        "--calibrate", metavar="FILE.toml", help="Write the times of kernels here, for --costs."
    ),
]
Init = Annotated[
    list[str],
    typer.Option("--init", metavar="NODE", help="A node to run first, alone; repeats, in order."),
]
Variables = Annotated[
    str | None,
    typer.Option(
        "--variables",
        metavar="PATH",
        help="Begin with the variables of another SavedModel (its folder), or of a checkpoint.",
    ),
]
Devices = Annotated[
    list[str],
    typer.Option(
        "--devices",
        metavar="LIST",
        help="The devices: cpu:0,gpu:0-3 or full names; a gpu is simulated by NumPy.",
    ),
]
PlaceRules = Annotated[
    list[str],
    typer.Option(
        "--place",
        metavar="GLOB=DEVICE",
        help="Put nodes on a device; also op:X=DEVICE, frame:X=DEVICE; repeats, the last wins.",
    ),
]
RulesFile = Annotated[
    str | None,
    typer.Option("--rules", metavar="FILE", help="Rules for placing, in TOML, before --place."),
]
Soft = Annotated[
    bool, typer.Option("--soft", help="Let go of requests for devices that cannot be met.")
]
Jit = Annotated[
    bool, typer.Option("--jit", help="Cluster what compiles together, and run the clusters.")
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="WHICH", help="What runs clusters: numpy, xla, or auto for the faster."
    ),
]
Regions = Annotated[
    bool, typer.Option("--regions", help="Cluster whole loops and conditionals too.")
]
Lazy = Annotated[
    bool, typer.Option("--lazy", help="Compile a cluster when shapes come for the second time.")
]
Cases = Annotated[
    int | None,
    typer.Option("--cases", metavar="N", min=1, help="Run at N points; 4 if not given."),
]
Size = Annotated[
    list[str],
    typer.Option(
        "--size",
        metavar="N|NAME=N,M",
        help="What to take for sizes that are not known, of all inputs or of one; repeats.",
    ),
]
MapOut = Annotated[
    str | None,
    typer.Option("--map-out", metavar="FILE", help="Write as JSON what became of each old name."),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify", help="Run the result and the input and compare; if they differ, write nothing."
    ),
]
Memory = Annotated[
    list[str],
    typer.Option(
        "--memory",
        metavar="DEVICE[=SIZE]",
        help="Count memory and copies, within a limit: gpu:0=4GiB; repeats.",
    ),
]
SwapAbove = Annotated[
    float | None,
    typer.Option(
        "--swap-above",
        metavar="SHARE",
        help="Move stacks to the host above this share of a limit, from 0 to 1; else 0.7.",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="KIND",
        help="What a gpu is: simulated by NumPy, or real; real where there is one.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes and no progress.")]
ColorChoice = Annotated[
    Color, typer.Option("--color", help="When to use colour: auto, always, never.", metavar="WHEN")
]


def split_list(text: str) -> tuple[str, ...]:
    """The parts of a text with commas between them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def use_color(choice: Color, stream: IO[Any] | None) -> bool:
    """Decide on colour: the option, NO_COLOR, FORCE_COLOR, then whether a terminal reads it."""
    if choice is not Color.auto:
        return choice is Color.always
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
