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


# the second variable is executed first; `unused` has no fetch that needs it
TWO_VARIABLES = """
n = Placeholder() {dtype=int32, shape=[]}
one = Const() {dtype=int32, value=int32[]:1}
zero = Const() {dtype=int32, value=int32[]:0}
second = Enter(one) {frame_name="loop"}
first = Enter(zero) {frame_name="loop"}
unused = Enter(zero) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
Merge_1 = Merge(second, next_1)
Merge = Merge(first, next)
Merge_2 = Merge(unused, next_2)
less = Less(Merge, limit)
cond = LoopCond(less)
Switch_1 = Switch(Merge_1, cond)
Switch = Switch(Merge, cond)
Switch_2 = Switch(Merge_2, cond)
doubled = AddV2(Switch_1:1, Switch_1:1)
more = Const(^Switch) {dtype=int32, value=int32[]:1}
counted = AddV2(Switch:1, more)
next_1 = NextIteration(doubled)
next = NextIteration(counted)
next_2 = NextIteration(Switch_2:1)
exit = Exit(Switch_1)
"""


@pytest.mark.parametrize("targets", [(), ("--target", "next_2")])
def test_variables_of_an_iteration_appear_in_the_order_of_the_loop(
    command: Command, tmp_path: Path, targets: tuple[str, ...]
) -> None:
    path = tmp_path / "two.graph"
    path.write_text(TWO_VARIABLES)
    run = "run", path, "--feed", "n=40", "--fetch", "exit", *targets, "--tap-state", "loop"
    names = ["0 zero", "1 one", *["2 zero"] * bool(targets)]
    labels = [f"{name} [{count}]" for count in range(41) for name in names]
    assert [line.partition("]")[0] + "]" for line in command(*run).lines][: len(labels)] == labels
    taps = command(*run, "--json").json["result"]["taps"]
    assert [f"{tap['variable']} [{tap['iteration']}]" for tap in taps] == labels
