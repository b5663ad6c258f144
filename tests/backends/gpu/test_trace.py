"""The trace of a GPU: copies with their own times, and no device marked as simulated."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.runtime.trace.export import ChromeWriter
from tests.backends.gpu.stand_in import library
from tests.backends.gpu.test_run import CROSSING
from tests.recorder import Recorder
from tests.runtime.test_swapping import MATRIX, growing


class Late(Recorder):
    """Observer that receives the events of a GPU after the run."""

    deferred = True


def trained(card: GpuContext, trace: Recorder) -> cfgraph.Session:
    session = cfgraph.Session(
        growing(swap_memory=True), devices="gpu:0", memory={"gpu:0": 30 * MATRIX}, gpu=card
    )
    feeds = {"w:0": np.eye(64, dtype=np.float32), "n:0": np.int32(40)}
    session.run("gradient:0", feeds, trace=trace)
    return session


@pytest.mark.parametrize("observer", [Late, Recorder])
def test_swaps_of_stacks_are_reported_once_and_as_real(
    card: GpuContext, observer: type[Recorder]
) -> None:
    trace = observer()
    memory = trained(card, trace).memory["gpu:0"]
    assert all(event.real for event in trace.events)
    copies = [event for event in trace.events if event.kind == "copy"]
    for text, counted in (("swap out", memory.swapped_out), ("swap in", memory.swapped_in)):
        listed = [event for event in copies if event.text == text]
        assert (len(listed), sum(event.bytes for event in listed)) == (counted.count, counted.bytes)
    if observer is Late:
        assert all(event.start_ns < event.end_ns for event in copies)


def test_messages_and_feeds_are_copies_with_the_node_that_they_are_for(card: GpuContext) -> None:
    trace = Late()
    graph = cfgraph.loads(CROSSING.encode(), "graph")
    session = cfgraph.Session(graph, devices="cpu:0,gpu:0-1", gpu=card)
    session.run("d:0", {"x": np.ones(50_000, np.float32)}, trace=trace)
    listed = [event for event in trace.events if event.kind == "copy"]
    assert [event.bytes for event in listed] == [200_000] * 3
    ops = {event.node: event.op for event in trace.events if event.kind != "copy"}
    found = {(event.device, event.text, ops.get(event.node, event.node)) for event in listed}
    assert found == {
        ("gpu:0", "from host", "x"),
        ("gpu:1", "to host", "_Send"),
        ("gpu:1", "from host", "_Recv"),
    }
    assert all(0 < event.start_ns < event.end_ns for event in listed)


def test_when_a_traced_run_is_over_copies_are_timed_no_more(card: GpuContext) -> None:
    trained(card, Late())
    assert all(stream.timed is None for stream in card.streams())


def test_a_chrome_trace_has_lanes_for_copies_and_names_no_card_simulated() -> None:
    file = io.BytesIO()
    writer = ChromeWriter(file, str)
    late = Late(values=True)
    trained(GpuContext(library), late)
    for event in late.events:
        writer.event(event)
    writer.close()
    found = json.loads(file.getvalue())["traceEvents"]
    names = [event["args"].get("name") for event in found if event["ph"] == "M"]
    assert "gpu:0" in names
    assert {"swap out", "swap in"} <= {*names}
    assert not any("simulated" in str(name) for name in names)
