"""`cfgraph run --memory`: accounting, limits, copies; the kind of GPU."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.runtime.test_memory import CHAIN, growing


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.graph"
    path.write_text(CHAIN)
    return path


@pytest.fixture
def training(tmp_path: Path) -> list[Any]:
    """Arguments of a training step of 40 iterations on a GPU with 480 KiB."""
    path = tmp_path / "training.pb"
    cfgraph.save(growing(swap_memory=True), path)
    np.save(tmp_path / "w.npy", np.eye(64, dtype=np.float32))
    feeds = ["--feed", f"w=@{tmp_path / 'w.npy'}", "--feed", "n=40"]
    arguments = ["--fetch", "gradient", "--out", f"gradient=@{tmp_path / 'gradient.npy'}"]
    return ["run", path, *feeds, *arguments, "--devices", "gpu:0", "--memory", "gpu:0=480KiB"]


def test_memory_and_copies_are_reported_on_stderr(command: Any, chain: Path) -> None:
    arguments = ["run", chain, "--devices", "gpu:0", "--feed", "x=f32[1024]:ones", "--fetch", "c"]
    done = command(*arguments, "--memory", "gpu:0")
    assert done.code == 0
    rows = [" ".join(line.split()) for line in done.err.splitlines()]
    assert "gpu:0 (simulated) 8 KiB 0 B 0 B a" in rows
    assert "gpu:0 (simulated) to host 1 4 KiB" in rows
    assert "gpu:0 (simulated) to device 1 4 KiB" in rows
    assert "memory" not in command(*arguments).err


def test_the_document_mentions_memory(command: Any, training: list[Any]) -> None:
    reported = command(*training, "--json")
    assert not reported.err
    (memory,) = reported.json["result"]["memory"]
    assert (memory["device"], memory["simulated"]) == ("gpu:0", True)
    assert memory["peak"] <= memory["limit"] == 480 * 1024
    assert memory["swapped_out"]["bytes"] >= memory["swapped_in"]["bytes"] > 0
    assert memory["waits"] == memory["waited"] == 0


def test_out_of_memory_is_an_error_of_the_run(command: Any, chain: Path) -> None:
    arguments = ["run", chain, "--devices", "gpu:0", "--feed", "x=f32[1024]:ones", "--fetch", "c"]
    done = command(*arguments, "--memory", "gpu:0=6KiB")
    assert done.code == 5
    assert "error[CFG711]: gpu:0 (simulated) is out of memory: 4 KiB requested, 2 KiB" in done.err
    assert "at node 'a', frame '/', device gpu:0" in done.err
    assert "hint: more memory: --memory gpu:0=12KiB" in done.err
    assert command("explain", "CFG711").code == 0


def test_traces_mark_simulated_devices_and_hold_memory_and_copies(
    command: Any, training: list[Any], tmp_path: Path
) -> None:
    lines, slices = tmp_path / "trace.jsonl", tmp_path / "trace.json"
    assert not command(*training, "--trace-out", lines).code
    events = [json.loads(line) for line in lines.read_text().splitlines()][1:]
    assert all(event["simulated"] for event in events)
    assert {event["text"] for event in events if event["kind"] == "copy"} == {"swap out", "swap in"}
    assert max(event.get("memory", 0) for event in events) <= 480 * 1024
    assert not command(*training, "--trace-out", slices).code
    found = json.loads(slices.read_text())["traceEvents"]
    named = [event["args"]["name"] for event in found if event["name"] == "process_name"]
    assert named == ["gpu:0 (simulated)"]
    lanes = {event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert {"swap out", "swap in"} <= lanes
    assert sum(e.get("cat") == "copy" for e in found) > 10
    assert max(e["args"]["bytes"] for e in found if e["ph"] == "C") <= 480 * 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu:0=4G", "'4G' is not a size in bytes"),
        ("gpu:0=", "invalid memory limit 'gpu:0='"),
        ("=4GiB", "invalid memory limit '=4GiB'"),
        ("tpu=1GiB", "tpu"),
        ("gpu:1=4GiB", "the run has no device gpu:1"),
    ],
)
def test_a_limit_that_is_none_is_refused(
    command: Any, chain: Path, text: str, message: str
) -> None:
    feed = ["--feed", "x=f32[1024]:ones", "--devices", "gpu:0"]
    done = command("run", chain, *feed, "--memory", text)
    assert done.code == 2
    assert message in done.err.splitlines()[0]


def test_stacks_swap_above_the_share_that_is_requested(command: Any, training: list[Any]) -> None:
    out = []
    for share in (["--swap-above", "0.3"], [], ["--swap-above", "0.9"]):
        done = command(*training, *share, "--json")
        assert done.code == 0
        (memory,) = done.json["result"]["memory"]
        out.append(memory["swapped_out"]["count"])
    assert out[0] > out[1] > out[2] > 0


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (["--memory", "gpu:0=1MiB", "--swap-above", "70"], "between 0 and 1, got 70", "0.7 is"),
        (["--memory", "gpu:0=1MiB", "--swap-above", "-0.1"], "between 0 and 1, got -0.1", "0.7 is"),
        (["--memory", "gpu:0=1MiB", "--swap-above", "nan"], "between 0 and 1, got nan", "0.7 is"),
        (["--memory", "gpu:0=1MiB", "--swap-above", "70%"], "'70%'", ""),
        (
            ["--memory", "gpu:0", "--swap-above", "0.5"],
            "requires a memory limit",
            "--memory gpu:0=4GiB",
        ),
        (["--swap-above", "0.5"], "requires a memory limit", "--memory gpu:0=4GiB"),
    ],
)
def test_a_share_that_is_none_is_refused(
    command: Any, chain: Path, options: list[str], message: str, hint: str
) -> None:
    feed = ["--feed", "x=f32[1024]:ones", "--devices", "gpu:0"]
    done = command("run", chain, *feed, *options)
    assert done.code == 2
    assert message in done.err
    assert hint in done.err


def test_a_real_gpu_that_there_is_not_is_said_in_one_line(command: Any, chain: Path) -> None:
    feed = ["--feed", "x=f32[1024]:ones"]
    done = command("run", chain, *feed, "--gpu", "real")
    assert done.code == 4
    assert len(done.err.splitlines()) == 1
    assert "no real GPU can be used" in done.err
    assert command("run", chain, *feed, "--gpu", "simulated", "--devices", "gpu:0").code == 0
    assert command("run", chain, *feed, "--gpu", "other").code == 2


def test_the_example_of_the_page_goes_where_memory_would_run_out(
    command: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    page = (root / "docs" / "devices.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^cfgraph .*--swap-memory .*", page, flags=re.MULTILINE)
    first, second = ([*shlex.split(part)[1:], "-q"] for part in line.split(" | "))
    done = command(*second, "--json", stdin=command(*first).data)
    assert done.code == 0
    (memory,) = done.json["result"]["memory"]
    assert memory["swapped_out"]["count"] > 100
    plain = command(*(word for word in first if word != "--swap-memory")).data
    done = command(*second, stdin=plain)
    assert done.code == 5
    assert "error[CFG711]: gpu:0 (simulated) is out of memory" in done.err
