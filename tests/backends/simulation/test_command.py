"""`cfgraph run` with a virtual clock, and calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.partitioned_graphs import counting


@pytest.fixture
def two_devices(tmp_path: Path) -> Path:
    path = tmp_path / "two.graph"
    path.write_text(counting())
    return path


@pytest.mark.smallest
def test_virtual_time_is_reported_on_stderr_and_in_the_document(
    command: Any, two_devices: Path, tmp_path: Path
) -> None:
    costs = tmp_path / "costs.toml"
    costs.write_text('[devices."*"]\nlaunch = 1\n[links."*>*"]\nlatency = 10\nbandwidth = 1e30\n')
    arguments = ["run", two_devices, "--feed", "n=0", "--fetch", "out:0", "--clock", "virtual"]
    done = command(*arguments, "--costs", costs)
    assert (done.code, done.out) == (0, "out:0  int32[]  = 0\n")
    assert done.err == "virtual time: 32 s\n"
    reported = command(*arguments, "--costs", costs, "--json").json
    assert reported["summary"]["virtual_seconds"] == pytest.approx(32.0)


def test_a_loop_without_end_is_timed_up_to_an_iteration(command: Any, two_devices: Path) -> None:
    line = ["run", two_devices, "--feed", "n=1000000", "--fetch", "out:0"]
    line += ["--clock", "virtual", "--until-iteration", "10"]
    done = command(*line)
    assert done.out == "out:0  int32  not computed yet\n"
    assert "when iteration 10 began" in done.err
    assert command(*line, "--json").json["summary"]["stopped_at"] == 10


@pytest.mark.parametrize("loop", [True, False])
def test_a_run_that_ends_before_an_iteration_is_timed_as_a_whole(
    command: Any, counter: Path, tmp_path: Path, loop: bool
) -> None:
    (tmp_path / "neg.graph").write_text("n = Placeholder() {dtype=int32, shape=[]}\ny = Neg(n)\n")
    line = ["run", counter if loop else tmp_path / "neg.graph", "--feed", "n=3"]
    line += ["--clock", "virtual"]
    whole, stopped = command(*line), command(*line, "--until-iteration", "1000")
    assert (stopped.code, stopped.out) == (0, whole.out)
    expected = f"{whole.err.strip()} for the whole run, which did not reach iteration 1000\n"
    assert stopped.err == expected
    assert "stopped_at" not in command(*line, "--until-iteration", "9", "--json").json["summary"]


def test_what_was_measured_is_a_cost_model(command: Any, two_devices: Path, tmp_path: Path) -> None:
    times = tmp_path / "times.toml"
    arguments = ["run", two_devices, "--feed", "n=3", "--fetch", "out:0"]
    done = command(*arguments, "--calibrate", times, "--json").json
    assert [item["path"] for item in done["artifacts"]] == [str(times)]
    assert '"AddV2" = ' in times.read_text()
    done = command(*arguments, "--clock", "virtual", "--costs", times)
    assert (done.code, done.out) == (0, "out:0  int32[]  = 3\n")


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
    assert (done.code, done.lines[-1]) == (0, "out0:0  float32[]  = not computed")
    wanted = {"tensor": "out0:0", "dtype": "float32", "shape": [], "computed": False}
    assert command(*arguments, "--json").json["result"]["values"] == [wanted]
    assert command(*arguments, "--expect", "out0=3").code == 2
