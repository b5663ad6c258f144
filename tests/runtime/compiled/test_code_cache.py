"""The cache of generated code: what it stores, whom it trusts, and what a second session skips."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.errors import CfgraphError
from cfgraph.runtime import code_cache
from cfgraph.runtime.code_cache import CodeCache
from cfgraph.runtime.compiled import engine
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session
from tests.command_fixtures import command
from tests.conformance import recorded
from tests.runtime.compiled.agreement import described, difference
from tests.runtime.compiled.test_generated_code import BRANCHES, counter, graph_of
from tests.runtime.graphs import loop
from tests.sampled import sampled

__all__ = ["command"]

FEEDS = {"n:0": np.int32(5)}


@pytest.fixture(autouse=True)
def _small_runs_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_MIN_CACHED_NODES", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def counted(folder: Path, **options: Any) -> Any:
    cache = CodeCache(folder=folder, **options)
    return Session(counter(), cache=cache).run("count", FEEDS)


def test_a_second_session_generates_nothing(folder: Path, generated: list[Any]) -> None:
    assert [counted(folder) for _ in range(3)] == [[5]] * 3
    assert len(generated) == 1
    (entry,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert b"while/add" in entry.read_bytes()


def test_another_run_of_a_graph_has_other_code(folder: Path, generated: list[Any]) -> None:
    graph = counter()
    session = Session(graph, cache=CodeCache(folder=folder))
    assert session.run(["count"], FEEDS) == [5]
    assert session.run(["count", "while/Exit"], FEEDS) == [5, 5]
    assert session.run(["count"]) == [20000]
    graph.add("Neg", graph["count"].output(), name="minus")
    assert session.run(["count"], FEEDS) == [5]
    assert len(generated) == len([*folder.iterdir()]) == 4


def test_a_digest_of_the_caller_is_of_the_graph_as_it_was(
    folder: Path, generated: list[Any]
) -> None:
    assert counted(folder, graph_digest="file") == [5]
    graph = counter()
    session = Session(graph, cache=CodeCache("file", folder))
    graph.remove(graph["count"])
    graph.add("Neg", graph["while/Exit"].output(), name="count")
    assert session.run("count", FEEDS) == [-5]
    assert len(generated) == 2


def test_a_reason_for_tokens_is_stored(folder: Path, generated: list[Any]) -> None:
    text = "a = Placeholder() {dtype=int32}\nb = Placeholder() {dtype=int32}\nm = Merge(a, b)\n"
    for _ in range(2):
        session = Session(graph_of(text), cache=CodeCache(folder=folder))
        assert session.run("m", {"a": 1, "b": 2}) == [1]
        assert session.fallback == "a Merge may have two live inputs ('m')"
    assert len(generated) == 1


def test_an_error_of_stored_code_has_its_place(folder: Path, generated: list[Any]) -> None:
    text = loop().replace(
        "add = AddV2(body, one)", "ok = FloorDiv(one, body)\nadd = AddV2(body, one, ^ok)"
    )
    effect = "v = VarHandleOp() {dtype=int32, shape=[]}\ninit = AssignVariableOp(v, zero)\n"
    errors = []
    for _ in range(2):
        session = Session(graph_of(text + effect), cache=CodeCache(folder=folder))
        with pytest.raises(CfgraphError) as caught:
            session.run("out", {"n": 3}, ["init"])
        errors.append(described(caught.value))
    assert errors[0] == errors[1]
    assert errors[0][3:5] == ("ok", "/loop[0]")
    assert len(generated) == 1


def _is_ignored(folder: Path, generated: list[Any]) -> bool:
    """True if sessions neither read the entries of a folder nor write any."""
    before, count = sorted(folder.rglob("*")), len(generated)
    assert [counted(folder) for _ in range(2)] == [[5]] * 2
    return len(generated) == count + 2 and sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_ignored(
    mode: int, folder: Path, generated: list[Any]
) -> None:
    counted(folder)
    folder.chmod(mode)
    assert _is_ignored(folder, generated)


def test_a_folder_of_another_user_is_ignored(
    folder: Path, generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(folder)
    monkeypatch.setattr(code_cache.os, "geteuid", lambda: os.getuid() + 1)
    assert _is_ignored(folder, generated)


def test_a_link_to_a_folder_is_ignored(folder: Path, generated: list[Any]) -> None:
    target = folder.with_name("target")
    counted(target)
    folder.symlink_to(target)
    assert _is_ignored(folder, generated)


@pytest.mark.parametrize("how", ["link", "mode", "pipe", "text", "json", "node", "source"])
def test_a_file_that_cannot_be_trusted_is_replaced(
    how: str, folder: Path, generated: list[Any]
) -> None:
    counted(folder)
    (entry,) = folder.iterdir()
    data = entry.read_bytes()
    if how == "mode":
        entry.chmod(0o666)
    elif how == "text":
        entry.write_bytes(data[: len(data) // 2])
    elif how == "json":
        entry.write_bytes(b"[]")
    elif how == "source":
        entry.write_bytes(data.replace(b"def run(", b"def run)"))
    elif how == "node":
        entry.write_bytes(data.replace(b"while/add", b"while/sub"))
    else:
        entry.unlink()
        if how == "pipe":
            os.mkfifo(entry)
        else:
            other = folder.with_name("other")
            other.write_bytes(data)
            entry.symlink_to(other)
    assert counted(folder) == [5]
    assert len(generated) == 2
    assert counted(folder) == [5]
    assert len(generated) == 2
    assert entry.read_bytes() == data


_DAMAGES: dict[str, list[Any]] = {
    "source": [1, "", "run = 1 / 0\n"],
    "positions": [{}, [], [0], [["while/add"]], [[[], 0]], "x"],
    "constants": [[], "x", {"c1": "x"}, {"c1": ["literal", "1 / 0"]}],
    "may_be_dead": [None, 0, "x", []],
    "calls": [None, True, 1.5, "x", [], {}],
    "reason": [None, 1, []],
}


def test_a_member_of_another_type_replaces_the_file(folder: Path, generated: list[Any]) -> None:
    counted(folder)
    (entry,) = folder.iterdir()
    data = entry.read_bytes()
    damages = [{name: value} for name, values in _DAMAGES.items() for value in values]
    damages += [{"reason": "x", "node": name} for name in ("no_such_node", [])]
    for number, damage in enumerate(damages):
        stored = {} if "reason" in damage else json.loads(data)
        entry.write_text(json.dumps({**stored, **damage}))
        assert [counted(folder) for _ in range(2)] == [[5]] * 2, damage
        assert (len(generated), entry.read_bytes()) == (number + 2, data), damage


def test_an_entry_that_is_a_folder_is_no_error(folder: Path, generated: list[Any]) -> None:
    counted(folder)
    (entry,) = folder.iterdir()
    entry.unlink()
    entry.mkdir()
    before = os.listdir("/proc/self/fd")
    assert [counted(folder) for _ in range(5)] == [[5]] * 5
    assert os.listdir("/proc/self/fd") == before
    assert list(folder.iterdir()) == [entry]


def test_a_folder_that_cannot_be_written_is_no_error(generated: list[Any]) -> None:
    assert [counted(Path("/dev/null/cache")) for _ in range(2)] == [[5]] * 2
    assert len(generated) == 2


def test_a_full_disk_is_no_error_and_leaves_no_part_of_an_entry(
    folder: Path, generated: list[Any]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        assert [counted(folder) for _ in range(2)] == [[5]] * 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, action)
    assert (len(generated), list(folder.iterdir())) == (2, [])


def test_the_oldest_entries_are_removed(folder: Path) -> None:
    cache = CodeCache(folder=folder, max_bytes=250)
    entries = [cache.entry(number) for number in range(4)]
    for number, entry in enumerate(entries[:3]):
        entry.store(b"x" * 100)
        path = folder / f"{entry.key}.json"
        if path.exists():
            os.utime(path, ns=(number, number))
    assert [entry.load() is not None for entry in entries] == [False, True, True, False]
    entries[3].store(b"x" * 100)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 250
    assert entries[3].load() == b"x" * 100
    entries[0].store(b"x" * 300)
    assert entries[0].load() is None


def test_other_files_of_the_folder_are_not_removed(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    others = [folder / name for name in ("notes.txt", "model.json", ".profile", f"{'a' * 63}.json")]
    for path in others:
        path.write_bytes(b"x" * 1000)
        os.utime(path, ns=(0, 0))
    left = folder / ".0123456789abcdef"
    left.write_bytes(b"x" * 1000)
    CodeCache(folder=folder, max_bytes=100).entry(0).store(b"x" * 100)
    assert all(path.exists() for path in others)
    assert not left.exists()


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFGRAPH_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert code_cache.default_folder() == Path("/a")
    monkeypatch.delenv("CFGRAPH_CACHE")
    assert code_cache.default_folder() == Path("/b/cfgraph")
    monkeypatch.setenv("XDG_CACHE_HOME", "b")
    monkeypatch.setenv("HOME", "/c")
    assert code_cache.default_folder() == Path("/c/.cache/cfgraph")


def test_a_command_has_a_cache_by_default(
    command: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFGRAPH_CACHE", str(folder))
    file = tmp_path / "branches.graph"
    file.write_text(BRANCHES)
    line = ["run", file, "--feed", "x=3", "--feed", "p=true", "--fetch", "out"]
    outputs = [command(*line, "--no-cache").out]
    assert not folder.exists()
    outputs += [command(*line).out for _ in range(2)]
    assert outputs == ["out:0  float32[]  = -6.0\n"] * 3
    assert len([*folder.iterdir()]) == 1


@pytest.mark.parametrize("case", sampled(recorded.parameters("session"), 12))
def test_stored_code_has_the_values_and_errors_of_generated_code(
    case: dict[str, Any], folder: Path, generated: list[Any]
) -> None:
    states = State(), State()
    for record in case["runs"]:
        tensors, feeds, targets = recorded.run_arguments(record)
        outcomes = []
        for state in states:
            graph = recorded.graph(record["graph"])
            cache = CodeCache(folder=folder)
            session = Session(graph, state=state, soft_placement=True, cache=cache)
            try:
                outcomes.append(session.run(tensors, feeds, targets, timeout=60))
            except CfgraphError as error:
                outcomes.append(described(error))
        first, second = outcomes
        if isinstance(first, tuple) or isinstance(second, tuple):
            assert first == second
        else:
            assert not any(map(difference, first, second))
    files = len([*folder.iterdir()]) if folder.exists() else 0
    assert len(generated) == files  # the second session has generated nothing
