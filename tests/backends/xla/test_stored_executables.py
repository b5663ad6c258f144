"""Executables of XLA in the user's cache: what a second session skips, and whom it trusts."""

from __future__ import annotations

import stat
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.backends.xla import compile_process
from cfgraph.backends.xla import tier as xla_tier
from cfgraph.backends.xla.compiled_cluster import Compilation
from cfgraph.backends.xla.tier import Phase, RepeatedRun
from cfgraph.runtime.code_cache import CodeCache
from cfgraph.runtime.session import Session
from tests.backends.xla.test_xla_tier import TRAINING, initialized, phase, planned, steps
from tests.backends.xla.tier_fixtures import at_once
from tests.command_fixtures import command
from tests.runtime.compiled.test_code_cache import folder

__all__ = ["at_once", "command", "folder"]

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")


def compilation(run: Session) -> Compilation:
    (cluster,) = run.cluster_runner.clusters.values()
    (made,) = cluster.compilations
    return made


def trained(folder: Path) -> tuple[Any, bool]:
    """The values of two steps, and whether the executable was stored before."""
    run = initialized(TRAINING, engine="xla", cache=CodeCache(folder=folder))
    values = steps(run, 2)
    made = compilation(run)
    assert str(made).endswith(", the executable was stored") == made.is_stored
    return values, made.is_stored


def executables(folder: Path) -> list[Path]:
    return [*folder.glob("*.xla")]


def test_a_second_session_reads_what_the_first_compiled(folder: Path) -> None:
    (first, before), (second, after) = trained(folder), trained(folder)
    assert (before, after) == (False, True)
    for ours, expected in zip(second, first, strict=True):
        for value, other in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(value, other)
    (file,) = executables(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["mode", "bits", "length"])
def test_an_executable_that_cannot_be_trusted_is_replaced(how: str, folder: Path) -> None:
    trained(folder)
    (file,) = executables(folder)
    data = file.read_bytes()
    if how == "mode":
        file.chmod(0o666)
    elif how == "bits":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        file.write_bytes(data[:40])
    assert [trained(folder)[1] for _ in range(2)] == [False, True]


def test_another_processor_has_its_own_executables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(folder)
    monkeypatch.setattr(compile_process, "machine", lambda: ("another",))
    assert not trained(folder)[1]
    assert len(executables(folder)) == 2


def test_commands_share_executables_unless_no_cache(
    command: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFGRAPH_CACHE", str(folder))
    file = tmp_path / "training.graph"
    file.write_text(TRAINING)
    line = ["run", file, "--engine", "xla", "--fetch", "ones", "--init", "init"]
    line += ["--feed", "x=[[1,2,3],[4,5,6]]", "--explain-engine"]
    outputs = [command(*line, *options).out for options in (["--no-cache"], [], [])]
    assert len(executables(folder)) == 1
    assert len({output.partition("compiled")[0] for output in outputs}) == 1


def test_a_run_that_moved_to_xla_moves_sooner_in_the_next_session(
    at_once: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(**options: Any) -> RepeatedRun:
        made = initialized(TRAINING, cache=CodeCache(folder=folder), **options)
        steps(made, 12)
        assert phase(made) is Phase.XLA
        assert made._last is not None
        assert made._last.repeated is not None
        return made._last.repeated

    monkeypatch.setattr(xla_tier, "compile_seconds", lambda nodes: 1e-9)
    assert not run().has_moved_before
    second = run()
    assert second.has_moved_before
    (cluster,) = executables(folder)
    assert cluster.stat().st_size > 0
    assert second.estimate == 1e-9  # the least of what was measured and estimated


def test_a_proven_run_pays_its_start_once(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(xla_tier, "_START_PROCESS", 0.0)
    monkeypatch.setattr(xla_tier, "_TRIAL_RUNS", 1)
    entry = CodeCache(folder=folder).entry("run")
    for content, expected in [
        (b'{"seconds": 0.5}', 0.5),
        (b'{"seconds": 9}', 1.0),
        (b"{}", None),
        (b"[1]", None),
        (b"\xff", None),
    ]:
        entry.store(content)
        run = RepeatedRun(1.0, entry, planned)
        assert (run.estimate if run.has_moved_before else None) == expected
        run.add_generated(0.6)
        run.advance()
        assert run.uses_tier == (expected == 0.5)
        run.reject("it takes longer")
        assert RepeatedRun(1.0, entry).has_moved_before is False
