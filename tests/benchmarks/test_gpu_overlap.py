"""Overlap of GPUs from a trace: sums of spans, and of runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import cfgraph
from benchmarks.gpu import __main__ as program
from benchmarks.gpu import report
from benchmarks.gpu.overlap import EventRecorder, Overlap, at_once, merged, overlap
from benchmarks.gpu.pipeline import layers
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.trace.events import ROOT_FRAME, TraceEvent
from tests.backends.gpu.stand_in import library

FRAME = "/loop[0]"


def token(device: str, start: int, end: int, op: str = "Mul", frame: str = FRAME) -> TraceEvent:
    return TraceEvent(device, "n", op, frame, 0, False, start, end)


def test_spans_that_meet_are_one() -> None:
    assert merged([(5, 9), (0, 2), (2, 3), (6, 7)]) == [(0, 3), (5, 9)]
    assert merged([]) == []


@pytest.mark.parametrize(("count", "time"), [(1, 25), (2, 10), (3, 5), (4, 0)])
def test_time_in_which_so_many_are_busy_is_counted_once(count: int, time: int) -> None:
    devices = [[(0, 10), (20, 30)], [(5, 15), (20, 25)], [(20, 25), (40, 40)]]
    assert at_once(devices, count) == time


def test_gpus_share_the_time_of_their_loops() -> None:
    found = overlap(
        [
            token("gpu:0", 100, 140),
            token("gpu:0", 130, 150),
            token("gpu:1", 140, 170),
            token("gpu:1", 190, 200),
            token("cpu:0", 0, 500),
            token("gpu:0", 0, 90, frame=ROOT_FRAME),
            token("gpu:1", 150, 190)._replace(dead=True),
            token("gpu:1", 100, 190, "_Recv")._replace(kind="recv"),
            token("gpu:1", 100, 190, "Switch"),
            token("gpu:1", 100, 190, "Identity"),
            token("gpu:1", 100, 190, "Const"),
            token("gpu:1", 100, 190, "Shape"),
            token("gpu:0", 10, 30, "", ROOT_FRAME)._replace(kind="copy", text="to host"),
            token("gpu:0", 20, 40, "", ROOT_FRAME)._replace(kind="copy", text="to host"),
            token("gpu:0", 30, 45, "", ROOT_FRAME)._replace(kind="copy", text="from host"),
        ]
    )
    copies = {"gpu:0 from host": 15, "gpu:0 to host": 30}
    assert found == Overlap(100, 80, 10, {"gpu:0": 50, "gpu:1": 40}, copies)
    assert (found.share, found.mean) == (0.1, 90 / 80)
    assert found.to_json()["busy"] == {"gpu:0": 5e-5, "gpu:1": 4e-5}
    assert overlap([]).share == 0


def test_in_virtual_time_eight_gpus_compute_at_once_and_one_does_not() -> None:
    found = []
    for gpus in (1, 8):
        kept, devices = EventRecorder(), "cpu:0,gpu:0" if gpus == 1 else "cpu:0,gpu:0-7"
        graph = layers(gpus, 4, 10, 8, 8)
        session = cfgraph.Session(graph, devices=devices, costs=CostModel())
        session.run(["out:0"], trace=kept, without_values=True)
        found.append(overlap(kept.events))
    one, eight = found
    assert one.share == 0
    assert 0.5 < eight.share <= 1
    assert len(eight.busy) == 8
    assert one.mean == 1 < eight.mean <= 8


def test_the_pipeline_on_a_card_reports_what_each_gpu_did_and_leaves_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # collecting takes long in a process that holds much
    monkeypatch.setattr("benchmarks.gpu.figures.gc.collect", int)
    monkeypatch.setattr("benchmarks.gpu.pipeline._GPUS", (2, 8))
    bench = program.measured(GpuContext(library), ["pipeline"], tiny=True)
    recorded = report.record(bench)
    assert [(run["clustered"], run["gpus"], len(run["busy"])) for run in recorded["pipeline"]] == [
        (clustered, gpus, gpus) for clustered in (False, True) for gpus in (2, 8)
    ]
    assert all(0 < run["computing"] <= run["span"] for run in recorded["pipeline"])
    assert "time in which two or more compute" in report.tables(bench.figures)
    path = report.save(recorded, tmp_path, bench.trace)
    with gzip.open(path.with_name(f"{path.stem}-pipeline.json.gz")) as file:
        events = json.load(file)["traceEvents"]
    names = {event["args"].get("name") for event in events if event["ph"] == "M"}
    assert {f"gpu:{number}" for number in range(8)} <= names
    assert sum(event["ph"] == "X" for event in events) > 100
