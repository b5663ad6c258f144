"""`--out TAP=@FILE.npy` and `--tap-state LOOP`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.command_fixtures import Command
from tests.runtime.test_taps import LOOP

NAME = "StatefulPartitionedCall_1/StatefulPartitionedCall/sequential_1/lstm_1/while"
FEED = ("--feed", "keras_tensor=f32[1,6,4]:uniform(-1,1)")


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    path = tmp_path / "loop.graph"
    path.write_text(LOOP)
    return path


def test_a_tensor_of_a_loop_is_written_with_its_iterations(
    command: Command, lstm: Path, tmp_path: Path
) -> None:
    done = command("run", lstm, *FEED, "--out", f"mul_2=@{tmp_path}/h.npy", "--json")
    hidden = np.load(tmp_path / "h.npy")
    assert (hidden.shape, hidden.dtype) == ((6, 1, 8), np.float32)
    assert np.abs(hidden).max() > 0
    assert [item["path"] for item in done.json["artifacts"]] == [f"{tmp_path}/h.npy"]
    assert list(done.json["names"]) == ["mul_2"]


def test_a_mask_is_written_where_a_tensor_is_dead(
    command: Command, loop: Path, tmp_path: Path
) -> None:
    done = command(
        "run", loop, "--feed", "n=4", "--fetch", "exit", "--target", "either",
        "--out", f"odd=@{tmp_path}/odd.npy", "--out", f"exit=@{tmp_path}/exit.npy",
    )  # fmt: skip
    assert f"wrote {tmp_path}/odd.npy, {tmp_path}/odd.mask.npy" in done.err
    assert np.load(tmp_path / "odd.npy").tolist() == [0, -1, 0, -3]
    assert np.load(tmp_path / "odd.mask.npy").tolist() == [True, False, True, False]
    assert np.load(tmp_path / "exit.npy") == 4


def test_a_pattern_names_one_tensor_per_file(command: Command, loop: Path, tmp_path: Path) -> None:
    out = ("--out", f"*d*=@{tmp_path}/all.npy")
    done = command("run", loop, "--feed", "n=4", "--fetch", "exit", *out)
    assert (done.code, "name one tensor per file" in done.err) == (2, True)
    assert not (tmp_path / "all.npy").exists()


def test_the_variables_of_a_loop_are_tapped_by_their_names(command: Command, lstm: Path) -> None:
    done = command("run", lstm, *FEED, "--tap-state", "lstm_1/while", "--json")
    taps = [tap for tap in done.json["result"]["taps"] if tap["variable"] == "4 zeros"]
    assert [tap["iteration"] for tap in taps] == list(range(7))
    assert {tap["tensor"] for tap in taps} == {f"{NAME}/Merge_4:0"}
    lines = command("run", lstm, *FEED, "--tap-state", "lstm_1/while").lines
    assert lines[0] == f"{NAME}/:"
    assert "0 loop_counter [6]  int32[] = 6" in lines


def test_the_variables_of_a_loop_of_primitives_are_tapped(command: Command, loop: Path) -> None:
    done = command("run", loop, "--feed", "n=2", "--fetch", "exit", "--tap-state", "loop")
    assert [line for line in done.lines if line.startswith("0 zero")] == [
        f"0 zero [{count}]  int32[] = {count}" for count in range(3)
    ]
    assert command("run", loop, "--feed", "n=2", "--tap-state", "lop").code == 2
