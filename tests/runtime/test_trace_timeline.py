"""The lanes of a run: the activity of each device over time."""

from __future__ import annotations

from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.summary import BINS, DEAD, OUTSIDE, TraceLanes


def event(device: str, start: int, end: int, **more: object) -> TraceEvent:
    fields = {"frame": "/", "iteration": 0, "dead": False, **more}
    return TraceEvent(device, "n", "Neg", start_ns=start, end_ns=end, **fields)  # type: ignore[arg-type]


def test_a_lane_counts_what_its_device_did() -> None:
    lanes = TraceLanes()
    lanes.event(event("cpu:0", 0, 100))
    lanes.event(event("cpu:0", 100, 150, dead=True))
    lanes.event(event("cpu:0", 150, 180, kind="send", flow="cpu:0>gpu:0 x /", bytes=8))
    lanes.event(event("gpu:0", 200, 260, kind="recv", flow="cpu:0>gpu:0 x /", bytes=8))
    cpu, gpu = lanes.lanes["cpu:0"], lanes.lanes["gpu:0"]
    assert (cpu.tokens, cpu.dead, cpu.busy_ns, cpu.sent, cpu.bytes) == (3, 1, 180, 1, 8)
    assert (gpu.tokens, gpu.received) == (1, 1)
    assert [key[1:] for key in lanes.arrivals] == [("cpu:0", "gpu:0")]


def test_a_mark_says_which_iteration_runs() -> None:
    lanes = TraceLanes()
    lanes.event(event("cpu:0", 0, 10))
    lanes.event(event("cpu:0", 1000, 1010, frame="/w[13]", iteration=13))
    lanes.event(event("cpu:0", 2000, 2010, frame="/w[13]", iteration=13, dead=True))
    assert [mark for _, mark in lanes.lanes["cpu:0"].marks] == [OUTSIDE, "3", DEAD]


def test_a_long_run_takes_no_more_memory() -> None:
    lanes = TraceLanes()
    for place in range(3 * BINS):
        lanes.event(event("cpu:0", place * 10_000, place * 10_000 + 5_000))
    lane = lanes.lanes["cpu:0"]
    assert lane.tokens == 3 * BINS
    assert max(place for place, _ in lane.marks) < BINS
    assert len(lane.marks) <= BINS
