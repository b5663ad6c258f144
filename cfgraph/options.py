"""Arguments and options that several commands share, as types for typer."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import IO, Annotated, Any

import typer


class Color(StrEnum):
    """When to use colour."""

    auto = "auto"
    always = "always"
    never = "never"


Graph = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A graph file, a SavedModel folder, or - for standard input.",
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
Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="How to print the answer.")
]
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
    typer.Option("--feeds", metavar="FILE.npz", help="Feed each array under its name; repeats."),
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
        help="Only nodes whose name matches; also op:X, device:X, frame:X; repeats.",
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Print large values whole.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes and no progress.")]
ColorChoice = Annotated[
    Color, typer.Option("--color", help="When to use colour: auto, always, never.", metavar="WHEN")
]


def use_color(choice: Color, stream: IO[Any] | None) -> bool:
    """Decide on colour: the option, NO_COLOR, FORCE_COLOR, then whether a terminal reads it."""
    if choice is not Color.auto:
        return choice is Color.always
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
