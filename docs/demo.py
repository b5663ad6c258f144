"""A tour of cfgraph, for `make demo`: `python docs/demo.py FOLDER`.

Each step prints a sentence and its commands, and runs them in this process.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Final, NamedTuple

from cfgraph.cli import command_line as cli


class DemoStep(NamedTuple):
    """A sentence, and commands with their exit codes."""

    sentence: str
    commands: tuple[tuple[str, int], ...]


_PIPELINE: Final = "cfgraph run pipeline.pb --devices cpu:0-1 --feed 'x=uniform(-1,1)'"
STEPS: Final = (
    DemoStep(
        "A compiler puts Exp, Neg, Tanh, and an addition that needs p into a cluster:",
        (("cfgraph cluster mismatch.graph --deadness off -o wrong.pb --quiet", 0),),
    ),
    DemoStep(
        "`diff --run` finds the value that the cluster kills if p is false:",
        (("cfgraph diff mismatch.graph wrong.pb --run", 1),),
    ),
    DemoStep(
        "With exact deadness the addition stays outside, and both graphs agree:",
        (("cfgraph cluster mismatch.graph --verify -o right.pb", 0),),
    ),
    DemoStep(
        "Why does C have no value in this run? `explain` names the predicate:",
        (("cfgraph explain mismatch.graph C --feed p=false --feed 'v=[1, 2]'", 0),),
    ),
    DemoStep(
        "Two devices overlap the iterations (digits) of a loop, in virtual time:",
        ((f"{_PIPELINE} --fetch y --clock virtual --timeline", 0),),
    ),
    DemoStep(
        "The same run as a page with the graph and a zoomable timeline:",
        ((f"{_PIPELINE} --fetch y --clock virtual --html pipeline.html", 0),),
    ),
)


def main(folder: str, steps: Sequence[DemoStep] = STEPS) -> int:
    """Write the examples to a folder and run the steps there; returns 1 if one fails."""
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    if not os.path.exists("pipeline.pb"):
        with redirect_stdout(io.StringIO()):
            # without the note on what to read next
            if cli.run(["examples", ".", "-q"]) != 0:
                return 1
    for number, step in enumerate(steps, 1):
        print(f"\n{number}. {step.sentence}", flush=True)
        for command, expected in step.commands:
            print(f"\n$ {command}", flush=True)
            code = cli.run(shlex.split(command)[1:])
            sys.stdout.flush()
            if code != expected:
                print(f"exit code {code}, expected {expected}", file=sys.stderr)
                return 1
    print(f"\nOpen {os.path.abspath('pipeline.html')}")
    print("`cfgraph --help` lists the commands, docs/README.md the documentation.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
