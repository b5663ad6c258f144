"""Groups of commands, and example command lines of each, for `--help`.

The files of the examples come from `cfgraph examples`.
"""

from __future__ import annotations

from typing import Final

# in the order of the help page; a command that is in none of them is among the others
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Look": ("show", "explain", "check", "convert-check", "run"),
    "Compare": ("diff", "record", "reduce"),
    "Change": ("freeze", "functionalize", "lower", "grad", "optimize", "extract", "pipeline"),
    "Devices": ("partition", "cluster", "devices"),
}
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "show": (
        "cfgraph show count.graph",
        "cfgraph show count.graph --node switch",
        "cfgraph show count.graph --nodes --filter 'op:*Enter'",
        "cfgraph show mismatch.graph --deadness --filter 'live:sometimes'",
        "cfgraph show power.pb --filter 'function:*'",
        "cfgraph show count.graph --format dot",
        "cfgraph show rnn.pb --html rnn.html",
    ),
    "check": (
        "cfgraph check *.graph *.pb",
        "cfgraph check mismatch.graph --fetch C:0",
        "cfgraph check power.pb --fail-level warning --ignore CFG3* --json",
        "cfgraph check *.pb --format sarif > cfgraph.sarif",
    ),
    "convert-check": (
        "cfgraph convert-check power.pb --for lite",
        "cfgraph convert-check rnn.pb --for lite --fetch loss || echo refused",
        "cfgraph convert-check count.graph --for onnx --json",
    ),
    "convert": (
        "cfgraph convert power.pb --to graph",
        "cfgraph convert count.graph -o count.pbtxt.gz",
        "cfgraph convert count.graph --to pb | cfgraph show -",
    ),
    "fmt": (
        "cfgraph fmt count.graph branch.graph",
        "cfgraph fmt count.graph && cfgraph fmt --check count.graph",
        "cat branch.graph | cfgraph fmt -",
    ),
    "lower": (
        "cfgraph lower power.pb --to graph",
        "cfgraph lower power.pb --unfuse -o plain.pb",
        "cfgraph lower power.pb --verify -o lowered.pb --map-out names.json",
        "cfgraph lower power.pb | cfgraph run - --feed x=3 --feed n=4 --fetch y",
    ),
    "functionalize": (
        "cfgraph functionalize count.graph --to graph",
        "cfgraph functionalize count.graph --fetch exit -o functional.pb --verify --feed n=3",
        "cfgraph functionalize mismatch.graph --explain -o functional.pb",
        "cfgraph lower power.pb | cfgraph functionalize - --to graph",
        "cfgraph functionalize branch.graph --fetch negative --dead-as zeros --to graph",
        "cfgraph grad rnn.pb --ys loss --xs w | cfgraph functionalize - --fetch gradients/w "
        "--tensor-arrays keep -o stacks.pb",
    ),
    "partition": (
        "cfgraph partition count.graph --devices cpu:0,gpu:0 --place 'add=gpu:0' --to graph",
        "cfgraph partition rnn.pb --devices cpu:0-1 --seed 1 --dump-placement p.toml -o two.pb",
        "cfgraph partition rnn.pb --devices cpu:0,gpu:0 -o parts/ && cfgraph show parts/",
        "cfgraph partition count.graph --devices cpu:0-1 --seed 7 | cfgraph run - --feed n=3",
        "cfgraph partition count.graph --devices cpu:0-3 --place 'add=cpu:3' --fan-out 1 -o c.pb",
    ),
    "grad": (
        "cfgraph grad power.pb --ys y --xs x --to graph",
        "cfgraph grad rnn.pb --ys loss --xs w -o rnn_grad.pb --map-out names.json",
        "cfgraph grad power.pb --ys y --order 2 --check -o second.pb",
        "cfgraph lower power.pb | cfgraph grad - --ys y | cfgraph show - --ops",
        "cfgraph grad power.pb --ys y --xs n --unconnected zero --to graph",
    ),
    "cluster": (
        "cfgraph cluster rnn.pb -o clustered.pb",
        "cfgraph cluster rnn.pb --explain --what-if GatherV2",
        "cfgraph cluster mismatch.graph --exclude-ops Neg --explain",
        "cfgraph cluster count.graph | cfgraph run - --feed n=3 --fetch exit",
        "cfgraph cluster mismatch.graph --deadness off -o wrong.pb",
    ),
    "extract": (
        "cfgraph extract count.graph --outputs add --to graph",
        "cfgraph extract count.graph --outputs add --feed n=5 --iteration 3 -o body.pb",
        "cfgraph extract rnn.pb --inputs x --outputs loss -o part.pb",
    ),
    "optimize": (
        "cfgraph optimize rnn.pb --verify -o fast.pb",
        "cfgraph optimize power.pb --fetch y --skip fold --to graph",
        "cfgraph optimize rnn.pb --only cse,fold -v -o fast.pb",
    ),
    "freeze": (
        "cfgraph freeze branch.graph --fetch merge --set p=true --to graph",
        "cfgraph freeze count.graph --fetch exit --set n=3 -o three.pb",
        "cfgraph freeze power.pb --fetch y --set n=4 --verify -o power4.pb",
    ),
    "reduce command": (
        "cfgraph reduce command count.graph -o small.graph --status 0 -- grep -q Exit {}",
        "cfgraph reduce command count.graph -o small.graph --status 0 --match Less -- cat {}",
    ),
    "reduce pair": (
        "cfgraph cluster mismatch.graph --deadness off | "
        "cfgraph reduce pair mismatch.graph - -o small.pb",
    ),
    "pipeline": (
        "cfgraph pipeline rnn.pb -p 'grad{ys=loss xs=w}, cluster' --time-passes -o out.pb",
        "cfgraph pipeline power.pb -p 'lower, grad{ys=y}' --print-after lower --to graph",
        "cfgraph pipeline power.pb -p 'lower, partition{devices=cpu:0-1 seed=1}' --verify-each "
        "-o two.pb",
    ),
    "run": (
        "cfgraph run count.graph --feed n=3 --fetch exit --trace",
        "cfgraph run mismatch.graph --feed p=true --feed 'v=[1, 2]' --json",
        "cfgraph run rnn.pb --init init --feed 'x=f32[8,4,16]:normal' --out loss=@loss.npy",
        "cfgraph run count.graph --feed n=3 --tap add --expect exit=3",
        "cfgraph run count.graph --feed n=100 --trace-out trace.json.gz",
        "cfgraph run count.graph --feed n=3 --schedule random --schedule-seed 7",
        "cfgraph run count.graph --feed n=3 --node-data iterations=count.json",
        "cfgraph run rnn.pb --init init --feed 'x=f32[8,4,16]:normal' --gpu simulated "
        "--devices gpu:0 --memory gpu:0=64MiB --swap-above 0.5",
        "cfgraph cluster rnn.pb | cfgraph run - --init init --feed 'x=f32[8,4,16]:normal' --lazy",
    ),
    "diff": (
        "cfgraph convert power.pb --to pbtxt | cfgraph diff power.pb -",
        "cfgraph diff count.graph count.graph --by structure --ignore notes,order",
        "cfgraph lower power.pb | cfgraph diff power.pb - --run --cases 8",
        "cfgraph cluster rnn.pb | cfgraph diff rnn.pb - --run --init init --fetch loss",
        "cfgraph lower rnn.pb | cfgraph diff rnn.pb - --run --init init --size x=8,4,16",
    ),
    "record": (
        "cfgraph record power.pb --fetch y -o golden.npz && cfgraph diff power.pb golden.npz",
        "cfgraph record rnn.pb --init init --fetch loss --size x=8,4,16 --cases 2 -o golden.npz",
    ),
    "explain": (
        "cfgraph explain mismatch.graph C",
        "cfgraph explain mismatch.graph C --feed p=false --feed 'v=[1, 2]'",
        "cfgraph explain count.graph /loop",
        "cfgraph explain count.graph add exit",
        "cfgraph explain CFG220",
    ),
    "devices": ("cfgraph devices", "cfgraph devices --json"),
    "doctor": (
        "cfgraph doctor",
        "cfgraph doctor --bundle bug.zip -- run count.graph --feed n=3",
    ),
    "examples": ("cfgraph examples tries && cat tries/README.md",),
    "ops": (
        "cfgraph ops 'Stateless*'",
        "cfgraph ops conv2d --json",
    ),
}
