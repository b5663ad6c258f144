"""The figures of docs/devices.md: loops on a cluster of GPUs, in virtual time.

`python -m benchmarks.gpu_cluster` rewrites the pictures and the tables. Nothing is measured, so
they are the same on every machine.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np

import cfgraph
from benchmarks.chart import Series, chart
from benchmarks.devices import loop_text
from benchmarks.unrolling import BATCHES, slowdowns
from cfgraph.runtime.cost_model import read_costs

DOCS: Final = Path(__file__).parents[1] / "docs"
DEVICES: Final = (1, 2, 4, 8, 16, 32, 64)
PARALLEL: Final = (1, 2, 4, 8, 16, 32)
# the most that one run may use is 1,024, the CPU among them
MANY_DEVICES: Final = (64, 255, 1023)
FAN_OUTS: Final = (None, 32, 8)
LAYERS: Final = 8
# a layer: weights of SIDE x SIDE by SIDE x COLUMNS, float32
SIDE: Final = 2048
COLUMNS: Final = 64
# iterations until a loop runs evenly, and as many that are timed after them; more if iterations
# overlap, since all of these start together
_EVEN: Final = 16
_EVEN_AT_ONCE: Final = 64
_EVEN_WITH_MANY: Final = 4


def main() -> None:
    """Write the pictures, and the tables in the text."""
    for name, text in files().items():
        (DOCS / name).write_text(text, encoding="utf-8")
    page = (DOCS / "devices.md").read_text(encoding="utf-8")
    rows = [fan_out_row(devices) for devices in MANY_DEVICES]
    (DOCS / "devices.md").write_text(_fill_table(page, "fan-out", rows), encoding="utf-8")


def files() -> dict[str, str]:
    """The files of the figures by name, as they must be."""
    free, barrier = growth(barrier=False), growth(barrier=True)
    at_once = pipeline()
    page = (DOCS / "devices.md").read_text(encoding="utf-8")
    rows = [f"| {n} | {a:.1f} | {b:.1f} |" for n, a, b in zip(DEVICES, free, barrier, strict=True)]
    page = _fill_table(page, "growth", rows)
    rows = [f"| {n} | {a:.1f} |" for n, a in zip(PARALLEL, at_once, strict=True)]
    page = _fill_table(page, "pipeline", rows)
    forward, training = slowdowns(gradient=False), slowdowns(gradient=True)
    rows = [
        f"| {n} | {a:.1f} | {b:.1f} |" for n, a, b in zip(BATCHES, forward, training, strict=True)
    ]
    page = _fill_table(page, "unrolling", rows)
    return {
        "devices.md": page,
        "unrolling.svg": chart(
            "An LSTM as a loop, relative to the unrolled graph",
            ("rows of a batch", "% longer"),
            BATCHES,
            (Series("with its gradient", training), Series("forward", forward)),
        ),
        "devices.svg": chart(
            "A loop over GPUs, each of which counts",
            ("GPUs", "µs per iteration"),
            DEVICES,
            (Series("barrier in each iteration", barrier), Series("no barrier", free)),
        ),
        "parallel_iterations.svg": chart(
            f"{LAYERS} layers, one on each GPU",
            ("parallel_iterations", "µs per iteration"),
            PARALLEL,
            (Series(f"{LAYERS} GPUs", at_once),),
        ),
    }


def growth(*, barrier: bool, devices: tuple[int, ...] = DEVICES) -> list[float]:
    """Microseconds an iteration of the loop of `make bench`, for each number of GPUs."""
    return [
        microseconds(
            loop_text(count, barrier=barrier, parallel=32, kind="GPU"),
            count,
            [f"out{place}:0" for place in range(count)],
            _EVEN,
        )
        for count in devices
    ]


def fan_out_row(devices: int) -> str:
    """The row of a loop without a barrier: microseconds an iteration for each fan-out."""
    text = loop_text(devices, barrier=False, parallel=32, kind="GPU")
    fetches = [f"out{place}:0" for place in range(devices)]
    times = [
        microseconds(text, devices, fetches, _EVEN_WITH_MANY, fan_out=number) for number in FAN_OUTS
    ]
    return f"| {devices:,} | " + " | ".join(f"{time:.1f}" for time in times) + " |"


def pipeline(parallel: tuple[int, ...] = PARALLEL) -> list[float]:
    """Microseconds an iteration of the layers, for each bound on iterations at once."""
    return [
        microseconds(layers_text(bound), LAYERS, ["out:0"], _EVEN_AT_ONCE) for bound in parallel
    ]


def microseconds(
    text: str, devices: int, fetches: list[str], even: int, *, fan_out: int | None = None
) -> float:
    """The virtual time of an iteration once a loop runs evenly."""
    graph = cfgraph.loads(text.encode(), "graph")
    costs = read_costs(str(DOCS / "cluster.toml"))
    cfgraph.place(graph, devices=f"cpu:0,gpu:0-{devices - 1}")
    cfgraph.partition(graph, fan_out=fan_out)
    session = cfgraph.Session(graph, costs=costs)
    shown = []
    for last in (even, 2 * even):
        feeds = {"n:0": np.int32(10 * last)}
        session.run(fetches, feeds, until_iteration=last, without_values=True)
        shown.append(session.elapsed or 0.0)
    return (shown[1] - shown[0]) * 1e6 / even


def layers_text(parallel: int) -> str:
    """A loop that sends something through a layer on each GPU, and adds up what comes out."""
    frame = f'frame_name="loop", parallel_iterations={parallel}'
    first, last = '@"/device:CPU:0"', f'@"/device:GPU:{LAYERS - 1}"'
    lines = [
        f"n = Placeholder() {{dtype=int32, shape=[]}} {first}",
        f"limit = Enter(n) {{{frame}, is_constant=true}} {first}",
        f"zero = Const() {{dtype=int32, value=int32[]:0}} {first}",
        f"start = Enter(zero) {{{frame}}} {first}",
        f"i = Merge(start, next) {first}",
        f"less = Less(i, limit) {first}",
        f"cond = LoopCond(less) {first}",
        f"switch = Switch(i, cond) {first}",
        f"body = Identity(switch:1) {first}",
        f"number = Cast(body) {{DstT=float32}} {first}",
        f"one = Const(^body) {{dtype=int32, value=int32[]:1}} {first}",
        f"add = AddV2(body, one) {first}",
        f"next = NextIteration(add) {first}",
        f"nothing = Const() {{dtype=float32, value=float32[]:0}} {first}",
        f"empty = Enter(nothing) {{{frame}}} {first}",
        f"sum = Merge(empty, more) {first}",
        f"so_far = Switch(sum, cond) {first}",
        f"added = AddV2(so_far:1, loss) {first}",
        f"more = NextIteration(added) {first}",
        f"total = Exit(so_far) {first}",
        f"out = Identity(total) {first}",
        f'x = Const() {{dtype=float32, value=float32[{SIDE},{COLUMNS}]:(0)}} @"/device:GPU:0"',
        f'enter = Enter(x) {{{frame}, is_constant=true}} @"/device:GPU:0"',
        'layer = Mul(enter, number) @"/device:GPU:0"',
        f"all = Const() {{dtype=int32, value=int32[2]:[0,1]}} {last}",
        f"axes = Enter(all) {{{frame}, is_constant=true}} {last}",
        f"loss = Sum(layer{LAYERS - 1}, axes) {last}",
    ]
    for k in range(LAYERS):
        here = f'@"/device:GPU:{k}"'
        below = f"layer{k - 1}" if k else "layer"
        lines += [
            f"w{k} = Const() {{dtype=float32, value=float32[{SIDE},{SIDE}]:(0)}} {here}",
            f"weights{k} = Enter(w{k}) {{{frame}, is_constant=true}} {here}",
            f"layer{k} = MatMul(weights{k}, {below}) {here}",
        ]
    return "\n".join(lines) + "\n"


def _fill_table(page: str, name: str, rows: list[str]) -> str:
    """The page with other rows in the table that a comment of this name ends."""
    pattern = rf"(\|[ -]+\|[ |-]*\n)(?:\|.*\n)*(\n?<!-- {name} -->)"
    found, count = re.subn(pattern, lambda m: m[1] + "\n".join(rows) + "\n" + m[2], page)
    if count != 1:
        raise ValueError(f"the page has {count} tables that <!-- {name} --> ends")
    return found


if __name__ == "__main__":
    main()
