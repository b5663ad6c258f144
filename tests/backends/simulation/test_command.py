"""`cfgraph run` with a virtual clock, and calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cfgraph.runtime.cost_model import card_names
from tests.runtime.partitioned_graphs import counting


@pytest.fixture
def two_devices(tmp_path: Path) -> Path:
    path = tmp_path / "two.graph"
    path.write_text(counting())
    return path


@pytest.mark.smallest
def test_the_predicted_time_and_what_it_assumes_are_the_result(
    command: Any, two_devices: Path, tmp_path: Path
) -> None:
    costs = tmp_path / "costs.toml"
    costs.write_text('[devices."*"]\nlaunch = 1\n[links."*>*"]\nlatency = 10\nbandwidth = 1e30\n')
    arguments = ["run", two_devices, "--feed", "n=0", "--fetch", "out:0", "--clock", "virtual"]
    done = command(*arguments, "--costs", costs)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("out:0  int32[]  = 0\n\npredicted time  32 s\n")
    assert f"assumed hardware  {costs}\n" in done.out
    assert command(*arguments, "--costs", costs, "--quiet").out == done.out
    reported = command(*arguments, "--costs", costs, "--json").json
    assert reported["summary"]["virtual_seconds"] == pytest.approx(32.0)
    prediction = reported["result"]["prediction"]
    assert prediction["seconds"] == pytest.approx(32.0)
    assert [item["links"] for item in prediction["links"]] == [["cpu:0>cpu:1", "cpu:1>cpu:0"]]
    assert prediction["links"][0]["latency"] == 10


def test_a_prediction_compares_with_one_device_and_says_why_others_are_empty(
    command: Any, graphs: Path
) -> None:
    line = ["run", graphs / "eight_devices.pb", "--devices", "cpu:0-7", "--fetch", "out7:0"]
    line += ["--clock", "virtual", "--no-values", "--until-iteration", "9"]
    done = command(*line, "--feed", "n=99")
    assert "  on cpu:0 alone " in done.out
    assert "cpu:1-6 empty: no fetch needs the 3 nodes that request it" in done.out
    lstm = ["run", graphs / "lstm.pb", "--devices", "gpu:0-3", "--fetch", "loss", "--no-values"]
    lstm += ["--feed", "W=f32[512,1024]:zeros", "--feed", "x=f32[2,32,256]:zeros"]
    done = command(*lstm, "--clock", "virtual", "--costs", "h100", "--json")
    prediction = done.json["result"]["prediction"]
    uses = {use["device"]: use for use in prediction["devices"]}
    assert "no node would end sooner there" in uses["gpu:3"]["reason"]
    assert uses["gpu:3"]["nodes"] == 0
    alone = prediction["one_device"]
    lstm[3] = alone["device"]
    single = command(*lstm, "--clock", "virtual", "--costs", "h100", "--json")
    assert single.json["summary"]["virtual_seconds"] == alone["seconds"]
    assert "one_device" not in single.json["result"]["prediction"]


def test_the_messages_of_a_prediction_are_those_of_the_trace(
    command: Any, two_devices: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    line = ["run", two_devices, "--feed", "n=3", "--fetch", "out:0", "--clock", "virtual"]
    prediction = command(*line, "--trace-out", trace, "--json").json["result"]["prediction"]
    events = [json.loads(text) for text in trace.read_text().splitlines()]
    sent = [event for event in events if event.get("kind") == "send"]
    assert sum(message["times"] for message in prediction["messages"]) == len(sent) > 3
    assert all(message["from"] != message["to"] for message in prediction["messages"])
    assert {message["tensor"] for message in prediction["messages"]} >= {"cond:0"}


def test_effects_of_a_run_in_virtual_time_happen_once(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "print.graph"
    graph.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        'y = Print(x, x) {U=(float32), message="seen "}\n'
        "z = Neg(y)\n"
    )
    line = ["run", graph, "--feed", "x=2", "--fetch", "z", "--devices", "cpu:0-1"]
    done = command(*line, "--place", "z=cpu:1", "--clock", "virtual")
    assert done.code == 0, done.err
    assert done.err.count("seen") == 1
    assert "alone" in done.out


@pytest.mark.parametrize("card", card_names())
def test_the_cost_model_of_a_card_has_a_source_and_says_if_it_was_measured(
    card: str, command: Any, counter: Path
) -> None:
    done = command("run", counter, "--feed", "n=1", "--clock", "virtual", "--costs", card)
    assert f"assumed hardware  {card}: NVIDIA's data sheet of the {card.upper()}" in done.out
    assert card in command("run", "--help").out


def test_a_loop_without_end_is_timed_up_to_an_iteration(command: Any, two_devices: Path) -> None:
    line = ["run", two_devices, "--feed", "n=1000000", "--fetch", "out:0"]
    line += ["--clock", "virtual", "--until-iteration", "10"]
    done = command(*line)
    assert done.out.startswith("out:0  int32  not computed yet\n")
    assert "when iteration 10 began" in done.out
    assert command(*line, "--json").json["summary"]["stopped_at"] == 10


@pytest.mark.parametrize("loop", [True, False])
def test_a_run_that_ends_before_an_iteration_is_timed_as_a_whole(
    command: Any, counter: Path, tmp_path: Path, loop: bool
) -> None:
    (tmp_path / "neg.graph").write_text("n = Placeholder() {dtype=int32, shape=[]}\ny = Neg(n)\n")
    line = ["run", counter if loop else tmp_path / "neg.graph", "--feed", "n=3"]
    line += ["--clock", "virtual"]
    whole, stopped = command(*line), command(*line, "--until-iteration", "1000")
    time = next(text for text in whole.out.splitlines() if text.startswith("predicted"))
    remark = f"{time} for the whole run, which did not reach iteration 1000"
    assert (stopped.code, stopped.out) == (0, whole.out.replace(time, remark))
    assert "stopped_at" not in command(*line, "--until-iteration", "9", "--json").json["summary"]


def test_what_was_measured_is_a_cost_model(command: Any, two_devices: Path, tmp_path: Path) -> None:
    times = tmp_path / "times.toml"
    arguments = ["run", two_devices, "--feed", "n=3", "--fetch", "out:0"]
    done = command(*arguments, "--calibrate", times, "--json").json
    assert [item["path"] for item in done["artifacts"]] == [str(times)]
    assert '"AddV2" = ' in times.read_text()
    done = command(*arguments, "--clock", "virtual", "--costs", times)
    assert (done.code, done.out.splitlines()[0]) == (0, "out:0  int32[]  = 3")
    assert f"{times}: kernels measured by cfgraph run --calibrate" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--costs", "x.toml"], "--costs requires the virtual clock"),
        (["--until-iteration", "3"], "--until-iteration requires the virtual clock"),
        (["--clock", "virtual", "--calibrate", "x.toml"], "--calibrate requires the real clock"),
        (["--clock", "virtual", "--calibrate", "x.toml"], "hint: remove --clock virtual"),
        (["--clock", "sun"], "unknown clock 'sun'"),
        (
            ["--clock", "virtual", "--schedule", "random"],
            "virtual clock supports only the fifo schedule",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    command: Any, two_devices: Path, options: list[str], message: str
) -> None:
    done = command("run", two_devices, "--feed", "n=1", "--fetch", "out:0", *options)
    assert done.code == 2
    assert message in done.err


def test_a_cost_model_that_is_not_there_is_an_input_error(command: Any, two_devices: Path) -> None:
    done = command("run", two_devices, "--feed", "n=1", "--clock", "virtual", "--costs", "no.toml")
    assert done.code == 3
    assert "no.toml" in done.err


@pytest.mark.smallest
def test_without_values_types_and_shapes_are_reported(command: Any, graphs: Path) -> None:
    arguments = ["run", graphs / "eight_devices.pb", "--feed", "n=3", "--fetch", "out0:0"]
    arguments += ["--clock", "virtual", "--no-values"]
    done = command(*arguments, "--trace", "--tap", "while/add*")
    assert (done.code, "out0:0  float32[]  = not computed" in done.lines) == (0, True)
    wanted = {"tensor": "out0:0", "dtype": "float32", "shape": [], "computed": False}
    assert command(*arguments, "--json").json["result"]["values"] == [wanted]
    assert command(*arguments, "--expect", "out0=3").code == 2


def test_an_unknown_card_is_an_error_that_lists_the_known_ones(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=1", "--clock", "virtual", "--costs", "h200")
    assert done.code == 3
    assert "the cards are a100, h100, l4, v100" in done.err
