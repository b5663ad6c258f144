"""Example command lines of each command, for `--help`; they work in `fixtures/graphs`."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "show": (
        "cfgraph show lstm.pb",
        "cfgraph show lstm.pb --node lstm/Switch",
        "cfgraph show lstm.pb --filter 'lstm/*' --filter op:Enter",
        "cfgraph show nested.pb --deadness --filter 'live:sometimes'",
        "cfgraph show cond_functional.pb --filter 'function:*'",
        "cfgraph show counter.pb --format dot",
        "cfgraph show lstm_grad.pb --html lstm_grad.html",
    ),
    "check": (
        "cfgraph check *.pb",
        "cfgraph check deadness_mismatch.pb --fetch T:0",
        "cfgraph check lstm.pb --fail-level warning --ignore CFG3* --json",
        "cfgraph check *.pb --format sarif > cfgraph.sarif",
    ),
    "convert": (
        "cfgraph convert counter.pb --to graph",
        "cfgraph convert counter.pb -o counter.pbtxt.gz",
        "cfgraph convert counter.pb --to pb | cfgraph show -",
    ),
    "lower": (
        "cfgraph lower cond_functional.pb --to graph",
        "cfgraph lower while_functional.pb --verify -o lowered.pb --map-out names.json",
        "cfgraph lower while_functional.pb | cfgraph run - --feed n=10 --fetch out:0",
    ),
    "partition": (
        "cfgraph partition counter.pb --devices cpu:0,gpu:0 --place 'while/add=gpu:0' --to graph",
        "cfgraph partition lstm.pb --devices cpu:0-1 --seed 1 --dump-placement p.toml -o two.pb",
        "cfgraph partition lstm.pb --devices cpu:0,gpu:0 -o parts/ && cfgraph show parts/",
        "cfgraph partition counter.pb --devices cpu:0-1 --seed 7 | cfgraph run - --fetch count:0",
    ),
    "grad": (
        "cfgraph grad cond_functional.pb --ys out --xs x,y --to graph",
        "cfgraph grad lstm.pb --ys loss --xs W -o trained.pb --map-out names.json",
        "cfgraph grad cond_functional.pb --ys out --order 2 --check -o second.pb",
        "cfgraph lower cond_functional.pb | cfgraph grad - --ys out | cfgraph show - --ops",
    ),
    "cluster": (
        "cfgraph cluster lstm.pb -o clustered.pb",
        "cfgraph cluster lstm_grad.pb --explain --what-if StackPopV2,StackPushV2",
        "cfgraph cluster deadness_mismatch.pb --exclude-ops Identity --explain",
        "cfgraph cluster counter.pb | cfgraph run - --feed n=3 --fetch count:0",
    ),
    "run": (
        "cfgraph run counter.pb --feed n=3 --fetch count:0 --trace",
        "cfgraph run deadness_mismatch.pb --feed p=true --feed 'v=[1, 2]' --json",
        "cfgraph run lstm.pb --feed W=normal --feed 'x=f32[9,32,256]:ones' --out loss=@loss.npy",
        "cfgraph run counter.pb --feed n=3 --tap 'while/add' --expect count=3",
        "cfgraph run counter.pb --feed n=100 --trace-out trace.json.gz",
    ),
    "diff": (
        "cfgraph convert lstm.pb --to pbtxt | cfgraph diff lstm.pb -",
        "cfgraph diff counter.pb counter.pb --by structure --ignore notes,order",
        "cfgraph lower while_functional.pb | cfgraph diff while_functional.pb - --run --cases 8",
        "cfgraph cluster lstm.pb | cfgraph diff lstm.pb - --run --feed W=normal --fetch loss",
    ),
    "explain": (
        "cfgraph explain deadness_mismatch.pb C",
        "cfgraph explain deadness_mismatch.pb C --feed p=false --feed 'v=[1, 2]'",
        "cfgraph explain lstm.pb /lstm/while_context",
        "cfgraph explain lstm.pb lstm/mul_2 loss",
        "cfgraph explain CFG220",
    ),
    "examples": ("cfgraph examples to-try && cat to-try/README.md",),
    "completion": (
        "cfgraph completion bash > cfgraph.bash && source cfgraph.bash",
        "cfgraph completion fish > cfgraph.fish",
    ),
}
