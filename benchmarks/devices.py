"""Microseconds an iteration of loops over several devices, and how that grows with the devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

import cfgraph
from benchmarks.measurement import Row, alternating_times
from benchmarks.peer import importer
from cfgraph.ir.graph import Graph
from cfgraph.runtime.session import Session

GRAPHS = Path(__file__).parents[1] / "fixtures" / "graphs"
BUDGET = 0.35
UNIT = "µs per iteration"


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The eight-device loops against TensorFlow, then loops over 1 to 64 devices."""
    count = 20 if tiny else 500
    for name, file in (("", "eight_devices.pb"), (", barrier", "eight_devices_barrier.pb")):
        graph = cfgraph.load(GRAPHS / file)
        yield _row(tf, f"eight devices{name}", graph, 8, count, BUDGET, tiny)
    if tiny:
        return
    for barrier in (False, True):
        for devices in (1, 2, 4, 8, 16, 32, 64):
            yield _loop(tf, devices, barrier, 32)
    for parallel in (1, 2, 4, 8, 16, 32):
        yield _loop(tf, 8, False, parallel)


def _loop(tf: ModuleType | None, devices: int, barrier: bool, parallel: int) -> Row:
    name = f"{devices} devices, {parallel} at once{', barrier' if barrier else ''}"
    text = loop_text(devices, barrier=barrier, parallel=parallel)
    graph = cfgraph.loads(text.encode(), "graph")
    return _row(tf, name, graph, devices, 200, None, False)


def _row(
    tf: ModuleType | None,
    name: str,
    graph: Graph,
    devices: int,
    count: int,
    budget: float | None,
    tiny: bool,
) -> Row:
    fetches, feeds = [f"out{place}:0" for place in range(devices)], {"n:0": np.int32(count)}
    session = Session(graph, devices=f"cpu:0-{devices - 1}" if devices > 1 else "cpu:0")
    peer = None
    if tf is not None:
        config = tf.compat.v1.ConfigProto(device_count={"CPU": devices})
        imported = importer(tf, cfgraph.dumps(graph))()
        theirs = tf.compat.v1.Session(graph=imported, config=config)

        def peer() -> object:
            return theirs.run(fetches, feeds)

    mine, other = alternating_times(
        lambda: session.run(fetches, feeds), peer, repeats=1 if tiny else 3
    )
    scale = 1e6 / count
    return Row(name, mine * scale, UNIT, None if other is None else other * scale, budget)


def loop_text(devices: int, *, barrier: bool, parallel: int, kind: str = "CPU") -> str:
    """A loop with a variable on each device, which counts there up to `n`; CPU 0 leads it."""
    frame = f'{{frame_name="loop", parallel_iterations={parallel}}}'
    first = '@"/device:CPU:0"'
    after = "".join(f", ^add{place}" for place in range(devices)) if barrier else ""
    lines = [
        f"n = Placeholder() {{dtype=int32, shape=[]}} {first}",
        f"zero = Const() {{dtype=int32, value=int32[]:0}} {first}",
        f"start = Enter(zero) {frame} {first}",
        f'limit = Enter(n) {{frame_name="loop", is_constant=true, '
        f"parallel_iterations={parallel}}} {first}",
        f"i = Merge(start, next) {first}",
        f"less = Less(i, limit) {first}",
        f"cond = LoopCond(less) {first}",
        f"switch = Switch(i, cond) {first}",
        f"body = Identity(switch:1) {first}",
        f"one = Const(^body{after}) {{dtype=int32, value=int32[]:1}} {first}",
        f"add = AddV2(body, one) {first}",
        f"next = NextIteration(add) {first}",
    ]
    for k in range(devices):
        here = f'@"/device:{kind}:{k}"'
        lines += [
            f"zero{k} = Const() {{dtype=float32, value=float32[]:0}} {here}",
            f"enter{k} = Enter(zero{k}) {frame} {here}",
            f"merge{k} = Merge(enter{k}, next{k}) {here}",
            f"switch{k} = Switch(merge{k}, cond) {here}",
            f"body{k} = Identity(switch{k}:1) {here}",
            f"one{k} = Const(^body{k}) {{dtype=float32, value=float32[]:1}} {here}",
            f"add{k} = AddV2(body{k}, one{k}) {here}",
            f"next{k} = NextIteration(add{k}) {here}",
            f"exit{k} = Exit(switch{k}) {here}",
            f"out{k} = Identity(exit{k}) {here}",
        ]
    return "\n".join(lines) + "\n"
