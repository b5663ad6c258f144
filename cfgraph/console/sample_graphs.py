"""The `examples` command: write example graphs and a README."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from cfgraph.build.builder import Builder
from cfgraph.cli.json_output import print_document
from cfgraph.cli.output import note
from cfgraph.console.graph_files import artifact
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import GRAPH_SUFFIXES, StagedFiles
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph
from cfgraph.reports import DocumentResult, Positive, Record

_BRANCH: Final = """\
x = Placeholder() {dtype=float32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
switch = Switch(x, p)
double = AddV2(switch:1, switch:1)
negative = Neg(switch:0)
merge = Merge(negative, double)
"""
_COUNT: Final = """\
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
limit = Enter(n) {frame_name="loop", is_constant=true}
enter = Enter(zero) {frame_name="loop"}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
one = Const(^merge) {dtype=int32, value=int32[]:1}
add = AddV2(switch:1, one)
next = NextIteration(add)
exit = Exit(switch:0)
"""
_MISMATCH: Final = """\
v = Placeholder() {dtype=float32, shape=[2]}
p = Placeholder() {dtype=bool, shape=[]}
switch = Switch(v, p)
A = Exp(v)
B = Neg(A)
C = AddV2(B, switch:1)
S = Tanh(B)
"""
_DESCRIPTIONS: Final = {
    "README": "commands to try",
    "branch": "a conditional of Switch and Merge",
    "count": "a loop of the five control-flow primitives",
    "mismatch": "B is always live, C only if p is true",
    "pipeline": "a loop of two stages on two devices",
    "power": "a functional loop with a conditional",
    "rnn": "a recurrent layer with a variable",
}
_README: Final = """\
# Example graphs

`branch.graph`: {branch}. Show which nodes are dead, and why:

    cfgraph run branch.graph --feed x=3 --feed p=true --trace
    cfgraph explain branch.graph negative --feed x=3 --feed p=true

`count.graph`: {count}. Trace a run, and show what prevents
iterations from overlapping:

    cfgraph run count.graph --feed n=3 --fetch exit --trace
    cfgraph explain count.graph /loop

`power.pb`: {power}. Lower it, add a gradient, and partition it:

    cfgraph run power.pb --feed x=3 --feed n=4
    cfgraph lower power.pb --verify -o lowered.pb
    cfgraph grad lowered.pb --ys y --xs x --check -o gradient.pb
    cfgraph partition gradient.pb --devices cpu:0-1 --seed 1 -o parts.pb
    cfgraph run parts.pb --feed x=3 --feed n=4 --fetch y --fetch gradients/x --timeline
    cfgraph show parts.pb --html parts.html

`pipeline.pb`: {pipeline}. Show how its iterations overlap:

    cfgraph run pipeline.pb --devices cpu:0-1 --feed 'x=uniform(-1,1)' --clock virtual --timeline

`rnn.pb`: {rnn}. Run it, add gradients, and cluster the result:

    cfgraph run rnn.pb --init init --feed 'x=f32[8,4,16]:normal' --fetch loss
    cfgraph grad rnn.pb --ys loss -o rnn_grad.pb
    cfgraph cluster rnn_grad.pb --explain

`mismatch.graph`: {mismatch}. A cluster of both makes S dead by mistake:

    cfgraph cluster mismatch.graph --deadness off -o wrong.pb
    cfgraph diff mismatch.graph wrong.pb --run || true
    cfgraph cluster mismatch.graph --explain
"""


class ExampleFile(NamedTuple):
    """The content of an example file, and its description."""

    data: bytes
    description: str


class ExampleReport(Record):
    """An example file."""

    file: str  #: Path in the folder.
    description: str


class ExamplesSummary(Record):
    """The number of files."""

    files: Positive


class ExamplesResult(DocumentResult, command="examples", summary=ExamplesSummary):
    """The files of a set, and their folder."""

    folder: str
    set: Literal["tour"]
    files: Sequence[ExampleReport]


def write_examples(folder: str, *, json: bool = False) -> None:
    """Write all files and print their paths, or a document that describes them.

    After the paths, a note names the command to continue with.

    Raises UsageError if one of them exists, or if no folder is named.
    """
    if not folder:
        raise UsageError("the name of the folder is empty", hint="cfgraph examples tries")
    if Path(folder.removesuffix(".gz")).suffix in GRAPH_SUFFIXES and not os.path.isdir(folder):
        message = f"{folder!r} names a graph, expected a folder for all examples"
        raise UsageError(message, hint="cfgraph examples tries")
    files = _files()
    existing = [name for name in files if os.path.lexists(os.path.join(folder, name))]
    if existing:
        message = f"{folder!r} already contains {existing[0]!r}"
        raise UsageError(message, hint="use an empty or a new folder")
    with StagedFiles() as staged:
        staged.make_folder(folder)
        for name, file in files.items():
            staged.open(os.path.join(folder, name)).write(file.data)
    paths = {name: os.path.join(folder, name) for name in files}
    if not json:
        print(*paths.values(), sep="\n")
        note(f"next: {shlex.join(['cat', paths['README.md']])}")
        return
    described = [ExampleReport(name, file.description) for name, file in files.items()]
    print_document(
        ExamplesResult(folder, "tour", described),
        summary=ExamplesSummary(len(files)),
        artifacts=[artifact("example", path) for path in paths.values()],
    )


def _files() -> dict[str, ExampleFile]:
    return {
        name: ExampleFile(data, _DESCRIPTIONS[name.partition(".")[0]])
        for name, data in _contents().items()
    }


def _contents() -> dict[str, bytes]:
    return {
        "README.md": _README.format_map(_DESCRIPTIONS).encode(),
        "branch.graph": _BRANCH.encode(),
        "count.graph": _COUNT.encode(),
        "mismatch.graph": _MISMATCH.encode(),
        "pipeline.pb": dumps(_pipeline()),
        "power.pb": dumps(_power()),
        "rnn.pb": dumps(_rnn()),
    }


def _power() -> Graph:
    """Return a graph of x to the power of n + 1, up to the first result above 100."""
    b = Builder()
    x, n = b.placeholder("x", "float32", []), b.placeholder("n", "int32", [])

    def body(i: Any, y: Any) -> Any:
        return i + 1, b.cond(y > 100.0, lambda: y, lambda: y * x)

    _, y = b.while_loop(lambda i, _: i < n, body, (0, x))
    b.Identity(y, name="y")
    return b.graph


def _pipeline() -> Graph:
    """Return a loop of two stages on two devices; the first one needs no earlier iteration."""
    b = Builder()
    x = b.placeholder("x", "float32", [6, 128, 128])

    def body(i: Any, y: Any) -> Any:
        with b.device("/device:CPU:0"):
            row = b.GatherV2(x, i, 0)
            step = b.Tanh(b.MatMul(row, row), name="first")
        with b.device("/device:CPU:1"):
            y = b.Tanh(b.MatMul(step, y), name="second")
        return i + 1, y

    _, y = b.while_loop(lambda i, _: i < 6, body, (0, b.Fill([128, 128], 1.0)))
    b.Sum(y, [0, 1], name="y")
    return b.graph


def _rnn() -> Graph:
    """Return a recurrent layer, tanh(w @ [x, h]) over 8 steps, with a sum of squares as loss."""
    b = Builder()
    x = b.placeholder("x", "float32", [8, 4, 16])
    weights = b.variable([[0.01] * 16] * 32, name="w").read()
    b.initializer("init")
    zeros = b.const([[0.0] * 16] * 4)

    def body(i: Any, h: Any) -> Any:
        step = b.GatherV2(x, i, 0)
        return i + 1, b.Tanh(b.MatMul(b.ConcatV2([step, h], 1), weights))

    _, h = b.while_loop(lambda i, _: i < 8, body, (0, zeros))
    b.Sum(b.Square(h), [0, 1], name="loss")
    return b.graph
