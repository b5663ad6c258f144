"""One stream of events is the source of tables, totals, and files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.attrs import TensorValue
from cfgraph.runtime.trace.events import Observer, Tee, TraceEvent
from cfgraph.runtime.trace.export import ChromeWriter, JsonlWriter
from cfgraph.runtime.trace.summary import Totals, loop_of
from tests.recorder import Recorder
from tests.runtime.graphs import session
from tests.runtime.partitioned_graphs import counting

FRAME = "/while/while_context"


def traced(fixtures: Path, name: str, fetch: str, feeds: Any, observer: Observer) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    cfgraph.Session(graph).run([fetch], feeds, trace=observer)


@pytest.fixture
def events(fixtures: Path) -> list[TraceEvent]:
    recorder = Recorder(values=True)
    traced(fixtures, "counter.pb", "count:0", {"n:0": 3}, recorder)
    return recorder.events


def test_every_token_is_an_event_with_its_frame_and_iteration(events: list[TraceEvent]) -> None:
    added = [event for event in events if event.node == "while/add"]
    assert [(event.frame, event.iteration, event.dead) for event in added] == [
        (f"{FRAME}[0]", 0, False),
        (f"{FRAME}[1]", 1, False),
        (f"{FRAME}[2]", 2, False),
        (f"{FRAME}[3]", 3, True),
    ]
    assert [event.outputs for event in added] == [(1,), (2,), (3,), (None,)]
    (count,) = [event for event in events if event.node == "count"]
    assert (count.frame, count.iteration, count.outputs) == ("/", 0, (3,))


def test_the_dead_side_of_a_switch_has_no_value(events: list[TraceEvent]) -> None:
    switched = [event.outputs for event in events if event.node == "while/Switch"]
    assert switched == [(None, 0), (None, 1), (None, 2), (3, None)]


def test_events_come_in_order_and_take_time(events: list[TraceEvent]) -> None:
    starts = [event.start_ns for event in events]
    assert starts == sorted(starts)
    assert all(event.start_ns <= event.end_ns for event in events)


def test_a_traced_run_returns_what_an_untraced_one_does(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "nested.pb")
    for name, limit in (("while/Less/y", 8), ("while/while/Less/y", 9)):
        graph.set_attr(graph[name], "value", TensorValue(np.int32(limit)))
    session, recorder = cfgraph.Session(graph), Recorder()
    assert session.run(["sum:0"], trace=recorder) == session.run(["sum:0"]) == [72.0]
    frames = {event.frame for event in recorder.events}
    assert f"{FRAME}[7]/while/while/while_context[8]" in frames


def test_two_runs_have_the_same_events(fixtures: Path) -> None:
    def written_events() -> list[Any]:
        recorder = Recorder()
        traced(fixtures, "eight_devices_barrier.pb", "out0:0", {"n:0": 5}, recorder)
        return [event._replace(start_ns=0, end_ns=0) for event in recorder.events]

    assert written_events() == written_events()


def test_a_recorder_keeps_descriptions_unless_values_are_wanted(fixtures: Path) -> None:
    recorder = Recorder(describe=lambda value: f"<{value}>")
    traced(fixtures, "counter.pb", "count:0", {"n:0": 1}, recorder)
    assert recorder.events[-1].outputs in {("<1>",), (None,)}
    assert all(
        item is None or item.startswith("<") for event in recorder.events for item in event.outputs
    )


# -- made-up events, as several devices send them ---------------------------------------------


def op(node: str, device: str, start: int, end: int, **more: Any) -> TraceEvent:
    fields: dict[str, Any] = {"frame": "/", "iteration": 0, "dead": False, **more}
    return TraceEvent(
        device, node, "Op", fields.pop("frame"), fields.pop("iteration"), fields.pop("dead"),
        start, end, **fields,
    )  # fmt: skip


TRANSFER = [
    op("a", "cpu:0", 0, 100, outputs=(1,)),
    op("a/_Send", "cpu:0", 100, 120, kind="send", flow="key", bytes=4),
    op("b", "cpu:0", 110, 300, outputs=(2, None)),
    op("a/_Recv", "gpu:0", 150, 160, kind="recv", flow="key", bytes=4, outputs=(1,)),
    op("c", "gpu:0", 160, 170, frame="/w[0]/v[1]", iteration=1, outputs=(3,)),
    op("c", "gpu:0", 170, 170, frame="/w[0]/v[2]", iteration=2, dead=True, outputs=(None,)),
    op("d", "gpu:0", 180, 190, frame="/w[0]", outputs=(3,)),
]


def chrome(events: list[TraceEvent]) -> list[dict[str, Any]]:
    file = io.BytesIO()
    writer = ChromeWriter(file, str)
    for event in events:
        writer.event(event)
    writer.close()
    document = json.loads(file.getvalue())
    assert document["displayTimeUnit"] == "ns"
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def of(phase: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in found if line["ph"] == phase]


def test_every_device_is_a_process_with_its_name() -> None:
    found = of("M", chrome(TRANSFER))
    names = {line["pid"]: line["args"]["name"] for line in found if line["name"] == "process_name"}
    assert names == {1: "cpu:0", 2: "gpu:0 (simulated)"}


def test_slices_of_a_lane_do_not_overlap(events: list[TraceEvent]) -> None:
    for written_events in (TRANSFER, events):
        lanes: dict[Any, float] = {}
        for line in of("X", chrome(written_events)):
            lane = (line["pid"], line["tid"])
            assert line["ts"] >= lanes.get(lane, 0)
            lanes[lane] = round(line["ts"] + line["dur"], 3)
    lines = {line["name"]: line["tid"] for line in of("X", chrome(TRANSFER))}
    assert lines["a/_Send"] != lines["b"]


def test_a_transfer_is_an_arrow_between_slices() -> None:
    found = chrome(TRANSFER)
    (start,), (end,) = of("s", found), of("f", found)
    assert start["id"] == end["id"]
    assert (start["pid"], end["pid"], end["bp"]) == (1, 2, "e")
    slices = {line["name"]: line for line in of("X", found)}
    for arrow, name in ((start, "a/_Send"), (end, "a/_Recv")):
        piece = slices[name]
        assert (arrow["pid"], arrow["tid"]) == (piece["pid"], piece["tid"])
        assert piece["ts"] <= arrow["ts"] <= piece["ts"] + piece["dur"]


def test_a_transfer_without_an_end_draws_no_arrow() -> None:
    found = chrome(TRANSFER[:3])
    assert not of("s", found)
    assert not of("f", found)


def test_an_arrow_points_the_right_way_whichever_end_comes_first() -> None:
    send, recv = TRANSFER[1], TRANSFER[3]
    for written_events in ([send, recv], [recv, send]):
        found = chrome(written_events)
        assert of("s", found)[0]["ts"] == 0.1
        assert of("f", found)[0]["ts"] == 0.15


def test_iterations_are_spans_that_hold_the_inner_ones() -> None:
    found = chrome(TRANSFER)
    begins = {line["id"]: line["ts"] for line in of("b", found)}
    ends = {line["id"]: line["ts"] for line in of("e", found)}
    assert begins.keys() == ends.keys() == {"2:/w[0]", "2:/w[0]/v[1]", "2:/w[0]/v[2]"}
    assert (begins["2:/w[0]"], ends["2:/w[0]"]) == (0.16, 0.19)
    assert (begins["2:/w[0]/v[1]"], ends["2:/w[0]/v[1]"]) == (0.16, 0.17)


def test_a_dead_token_is_an_instant() -> None:
    (dead,) = of("i", chrome(TRANSFER))
    assert (dead["name"], dead["ts"], dead["s"]) == ("c", 0.17, "t")


def test_a_trace_without_events_is_valid() -> None:
    assert chrome([]) == []


def test_jsonl_is_a_head_and_a_line_an_event() -> None:
    file = io.BytesIO()
    writer = JsonlWriter(file, str)
    for event in TRANSFER:
        writer.event(event)
    writer.close()
    head, *lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert head["schema"] == "cfgraph.trace/1"
    assert len(lines) == len(TRANSFER)
    assert lines[1] == {
        "t_ns": 100, "dur_ns": 20, "dev": "cpu:0", "kind": "send", "node": "a/_Send", "op": "Op",
        "frame": "/", "iter": 0, "dead": False, "out": [], "flow": "key", "bytes": 4,
    }  # fmt: skip
    assert lines[2]["out"] == ["2", None]


# -- totals --------------------------------------------------------------------------------------


def test_totals_add_up_by_op_node_and_loop() -> None:
    totals = Totals()
    for event in TRANSFER:
        totals.event(event)
    assert (totals.count, totals.dead, totals.end_ns) == (7, 1, 300)
    (by_op,) = totals.by("op")
    assert (by_op.name, by_op.count, by_op.total_ns) == ("Op", 7, 340)
    assert [total.name for total in totals.by("node")][:2] == ["b", "a"]
    loops = {total.name: (total.count, total.dead) for total in totals.by("frame")}
    assert loops == {"/": (4, 0), "/w/v": (2, 1), "/w": (1, 0)}
    assert totals.by("node")[0].mean_ns == 190


@pytest.mark.parametrize(
    ("frame", "loop"),
    [("/", "/"), ("/a/b[3]", "/a/b"), ("/a[1]/b[22]", "/a/b"), ("/a[b]/c[0]", "/a[b]/c")],
)
def test_a_loop_is_a_frame_without_its_iterations(frame: str, loop: str) -> None:
    assert loop_of(frame) == loop


def test_a_tee_forwards_to_all_observers() -> None:
    first, second = Recorder(), Recorder()
    for event in TRANSFER:
        Tee([first, second]).event(event)
    assert first.events == second.events
    assert len(first.events) == len(TRANSFER)


# -- several devices -----------------------------------------------------------------------------


def test_both_ends_of_a_message_share_a_flow_and_its_bytes() -> None:
    recorder = Recorder(values=True)
    session(counting()).run(["out:0"], {"n": 2}, trace=recorder)
    sends = {event.flow: event for event in recorder.events if event.kind == "send"}
    recvs = {event.flow: event for event in recorder.events if event.kind == "recv"}
    assert sends.keys() == recvs.keys()
    assert len(sends) == 9
    sent, got = (found["cpu:0>cpu:1 body /loop[1]"] for found in (sends, recvs))
    assert (sent.device, sent.peer, sent.bytes, sent.dead) == ("cpu:0", "cpu:1", 4, False)
    assert (got.device, got.peer, got.bytes, got.outputs) == ("cpu:1", "cpu:0", 4, (1,))
    sent, got = (found["cpu:0>cpu:1 body /loop[2]"] for found in (sends, recvs))
    assert (sent.dead, sent.bytes, got.dead, got.outputs) == (True, 0, False, (None,))


def test_dead_messages_have_arrows_too() -> None:
    recorder = Recorder()
    session(counting()).run(["out:0"], {"n": 2}, trace=recorder)
    found = chrome(recorder.events)
    assert len(of("s", found)) == len(of("f", found)) == 9
    names = {line["args"]["name"] for line in of("M", found) if line["name"] == "process_name"}
    assert names == {"cpu:0", "cpu:1"}
