"""A tour of cfgraph, for `make demo`: `python docs/demo.py FOLDER [tensorflow]`.

Each step prints a sentence and its commands, and runs them in this process.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final, NamedTuple

from cfgraph.cli import command_line as cli


class DemoStep(NamedTuple):
    """A sentence, and commands with their exit codes; of another program, what they printed."""

    sentence: str
    commands: tuple[tuple[str, int], ...]
    recorded: str = ""


_RESHAPE: Final = Path(__file__).parents[1] / "fixtures/tensorflow_modes/while_reshape.graph"
_PIPELINE: Final = "cfgraph run pipeline.pb --devices cpu:0-1 --feed 'x=uniform(-1,1)'"
_EMPTY: Final = "Identity:0: live in A, dead in B, which returns an empty array"
_MODES: Final = f"""\
tensorflow:graph      agrees with cfgraph
tensorflow:grappler   differs from cfgraph: {_EMPTY}
tensorflow:autojit    differs from cfgraph: {_EMPTY}
tensorflow:jit        agrees with cfgraph
tensorflow:lite       agrees with cfgraph
A: cfgraph, B: tensorflow:grappler 2.21.0
first diverging node: while (StatelessWhile)"""
STEPS: Final = (
    DemoStep(
        "Why does C have no value in this run? `explain` names the predicate:",
        (("cfgraph explain mismatch.graph C --feed p=false --feed 'v=[1, 2]'", 0),),
    ),
    DemoStep(
        "A converter refuses Switch and Merge. With one side chosen, `freeze` needs neither:",
        (("cfgraph freeze branch.graph --fetch merge --set p=true --to graph", 0),),
    ),
    DemoStep(
        "With both sides, `functionalize` makes an If of them, and compares the results:",
        (("cfgraph functionalize branch.graph --fetch merge --verify -o functional.pb", 0),),
    ),
    DemoStep(
        "The values in a loop, for each iteration:",
        (("cfgraph run count.graph --feed n=3 --fetch exit --tap add", 0),),
    ),
    DemoStep(
        "Which mode of TensorFlow is wrong? Its optimizer Grappler empties the result of a loop:",
        (("cfgraph diff while_reshape.graph --run --with tensorflow --feed x1=[4,5,6,7]", 1),),
        _MODES,
    ),
    DemoStep(
        "Two devices overlap the iterations (digits) of a loop, in virtual time:",
        ((f"{_PIPELINE} --fetch y --clock virtual --timeline", 0),),
    ),
    DemoStep(
        "A compiler that ignores dead values puts too much in a cluster, which `diff` finds:",
        (
            ("cfgraph cluster mismatch.graph --deadness off -o wrong.pb --quiet", 0),
            ("cfgraph diff mismatch.graph wrong.pb --run", 1),
            ("cfgraph cluster mismatch.graph --verify -o right.pb", 0),
        ),
    ),
    DemoStep(
        "The run on two devices as a page, with the graph and its timeline:",
        ((f"{_PIPELINE} --fetch y --clock virtual --html pipeline.html -q", 0),),
    ),
)


def main(folder: str, steps: Sequence[DemoStep] = STEPS, *, with_tensorflow: bool = False) -> int:
    """Write the examples to a folder and run the steps there; returns 1 if one fails."""
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    if not os.path.exists("pipeline.pb"):
        shutil.copy(_RESHAPE, _RESHAPE.name)
        # without the list of files, and the remark on what to read next
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            if cli.run(["examples", "."]) != 0:
                return 1
    for number, step in enumerate(steps, 1):
        print(f"\n{number}. {step.sentence}", flush=True)
        for command, expected in step.commands:
            print(f"\n$ {command}", flush=True)
            if step.recorded and not with_tensorflow:
                print(f"{step.recorded}\n(recorded; `make demo EXTRAS=interop` runs TensorFlow)")
                continue
            code = cli.run(shlex.split(command)[1:])
            sys.stdout.flush()
            if code != expected:
                print(f"exit code {code}, expected {expected}", file=sys.stderr)
                return 1
    print("\n`cfgraph --help` lists the commands, docs/README.md the documentation. Open the page:")
    print(f"{os.path.abspath('pipeline.html')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], with_tensorflow="tensorflow" in sys.argv[2:]))
