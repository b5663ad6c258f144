"""A run by XLA names the loops that are not compiled, and each node that keeps one out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_fixtures import Command

pytest.importorskip("jax", reason="needs the extra `xla`")

LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
i = Enter(zero) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
merge = Merge(i, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
body = Identity(switch:1)
one = Const(^body, AFTER) {dtype=int32, value=int32[]:1}
add = AddV2(body, one)
next = NextIteration(add)
exit = Exit(switch)
"""
OBSTACLES = """
size = Const(^body) {dtype=int32, value=int32[1]:[2]}
draw = RandomShuffle(size)
text = AsString(body)
print = PrintV2(text)
"""


def test_each_node_that_keeps_a_loop_out_is_named(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "loop.graph"
    file.write_text(LOOP.replace("AFTER", "^print, ^draw") + OBSTACLES)
    line = ["run", str(file), "--feed", "n=2", "--fetch", "exit", "--engine", "xla"]
    done = command(*line, "--explain-engine")
    (note,) = [each for each in done.err.splitlines() if "outside" in each]
    assert note.startswith("outside of XLA: /loop: ")
    assert all(f"{name}: " in note for name in ("draw", "text", "print"))
    outside = command(*line, "--explain-engine", "--json").json["result"]["engine"]["outside"]
    assert list(outside) == ["/loop"]


def test_nothing_is_said_of_a_loop_that_is_compiled(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "loop.graph"
    file.write_text(LOOP.replace(", AFTER", ""))
    line = ["run", str(file), "--feed", "n=2", "--fetch", "exit", "--engine", "xla"]
    assert "outside" not in command(*line, "--explain-engine").err
