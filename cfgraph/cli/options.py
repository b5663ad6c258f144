"""Arguments and options of graphs, feeds, fetches, limits, and output, as types for typer."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from contextvars import ContextVar
from enum import StrEnum
from typing import IO, Annotated, Any, Final

import typer

from cfgraph.errors import UsageError

Exit = typer.Exit


class Verbosity(StrEnum):
    """Amount of remarks on stderr."""

    quiet = "quiet"
    normal = "normal"
    verbose = "verbose"


# of the command that runs
VERBOSITY: Final[ContextVar[Verbosity]] = ContextVar("verbosity", default=Verbosity.normal)


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


def repeatable(name: str, metavar: str, text: str, *, advanced: bool = False) -> Any:
    """An option with a list of values, each of which is written with its name."""
    panel = ADVANCED if advanced else None
    return typer.Option(name, metavar=metavar, help=f"{text} Repeatable.", rich_help_panel=panel)


Graph = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="Graph file, SavedModel folder, folder of partitions, or - for standard input.",
        show_default=False,
    ),
]
First = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="First graph: a file, a folder, or - for standard input.",
        show_default=False,
    ),
]
Graphs = Annotated[
    list[str],
    typer.Argument(
        metavar="GRAPH...",
        help="Graph files, SavedModel folders, or - for standard input.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the graph to FILE; - is standard output."
    ),
]
OutputOrFolder = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE, or to FOLDER/ with one file per device; - is standard output.",
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
    repeatable(
        "--feed",
        "NAME=VALUE",
        "Feed a tensor. VALUE: 3.5, [[1,2],[3,4]], @x.npy, @d.npz[key] or f32[2,3]:zeros.",
    ),
]
Feeds = Annotated[
    list[str],
    repeatable(
        "--feeds",
        "FILE.npz",
        "Feed every array of an .npz or .json file under its name, and repeat the case in it.",
    ),
]
Fetch = Annotated[
    list[str],
    repeatable("--fetch", "NAME[:PORT]", "Fetch a tensor."),
]
FetchPair = Annotated[
    list[str],
    repeatable("--fetch", "NAME[=NAME_B]", "Fetch a tensor, which B may have under another name."),
]
Target = Annotated[
    list[str],
    repeatable("--target", "NODE", "Run a node for its side effects only."),
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
        help="Print everything, including values of more than 200 elements (in JSON: 1024).",
    ),
]
Out = Annotated[
    list[str],
    repeatable(
        "--out",
        "NAME=@FILE.npy",
        "Write a fetched tensor to a file, or one inside a loop: iterations are stacked, and"
        " FILE.mask.npy is true where it is dead.",
    ),
]
OutDir = Annotated[
    str | None,
    typer.Option("--out-dir", metavar="FOLDER", help="Write all fetched tensors to a folder."),
]
Expect = Annotated[
    list[str],
    repeatable(
        "--expect",
        "NAME=VALUE",
        "Exit with status 1 if the tensor differs from VALUE (same syntax as --feed).",
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
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write a self-contained interactive HTML page."),
]
ModelExplorer = Annotated[
    str | None,
    typer.Option(
        "--model-explorer",
        metavar="FILE.json",
        help="Write the graph for Model Explorer, with critical cycles, messages, and dead paths.",
    ),
]


def node_data_option(kinds: str) -> Any:
    """The option of a file with data per node; `kinds` describes them, the default first."""
    return typer.Option(
        "--node-data",
        metavar="[KIND=]FILE.json",
        help=f"Write data per node for Model Explorer: {kinds}.",
        rich_help_panel=ADVANCED,
    )


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
        help="Stop if an array, or the command above its own 256 MiB, needs more memory, such as "
        "4GiB (exit status 5). Default: a quarter of the machine's.",
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
OpDef = Annotated[
    list[str] | None,
    typer.Option(
        "--op-def",
        metavar="FILE",
        help="Declare ops that are unknown: an OpList, text or binary, or a SavedModel. "
        "Repeatable.",
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
        help="Restore variables from the folder of a SavedModel, or a checkpoint.",
    ),
]
VariablesOfB = Annotated[
    str | None,
    typer.Option(
        "--variables-b",
        metavar="PATH",
        help="Restore the variables of the second graph from another SavedModel or checkpoint.",
        rich_help_panel=ADVANCED,
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
MaxIterations = Annotated[
    int | None,
    typer.Option(
        "--max-iterations", metavar="N", min=0, help="Stop a run when a loop exceeds N iterations."
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
    repeatable(
        "--size",
        "N|NAME=N,M",
        "Size to assume for unknown dimensions, of all inputs or of one.",
        advanced=True,
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
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print neither notes nor progress on stderr.")
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Report files, their sizes, and times on stderr."),
]
ColorChoice = Annotated[
    Color, typer.Option("--color", help="Use color: auto, always, never.", metavar="WHEN")
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
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Seed of random ops and of random feeds.")
]
AgainstMode = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="tensorflow:MODE",
        help="Compare with this mode of TensorFlow instead of cfgraph.",
    ),
]
ModeTimeout = Annotated[
    float | None,
    typer.Option(
        "--run-timeout",
        metavar="SECONDS",
        min=0,
        callback=reject_nan,
        help="Time after which a run of TensorFlow is ended, and counts as a hang. Default: 60 s.",
        rich_help_panel=ADVANCED,
    ),
]


def split_list(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, dropping empty items."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def split_names(texts: Iterable[str]) -> list[str]:
    """Split repeated comma-separated lists of names."""
    return [name for text in texts for name in split_list(text)]


def feed_names(texts: Iterable[str]) -> list[str]:
    """Split repeated lists of names, each of which may have a value: NAME=VALUE."""
    return split_names(text.partition("=")[0] for text in texts)


def use_color(choice: Color, stream: IO[Any] | None) -> bool:
    """Decide by the option, NO_COLOR, FORCE_COLOR, and whether the stream is a terminal."""
    if choice is not Color.auto:
        return choice is Color.always
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def plain_message(message: str) -> str:
    """Simplify typer's messages about invalid values."""
    message = message.replace(" is not in the range x>=", " is less than ")
    message = re.sub(r"( is not in the range) (\S+)<=x<=(\S+)", r"\1 \2 to \3", message)
    message = re.sub(
        r" is not a valid int(?:eger)?(?: range)?\b", " is not a whole number", message
    )
    message = re.sub(r" is not a valid boolean\b.*", " is neither 1 nor 0", message)
    return re.sub(r" is not a valid float(?: range)?\b", " is not a number", message)
