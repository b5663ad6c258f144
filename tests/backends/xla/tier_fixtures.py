"""The fixture of a tier that moves at once, for tests of XLA on the host and on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cfgraph.backends.xla import tier as xla_tier
from cfgraph.backends.xla.background import BACKGROUND, Job


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes no time, runs wait for it, and XLA is always worth it."""

    def start(work: Callable[[], Any]) -> Job[Any]:
        job = Job(work)
        job.run()
        return job

    monkeypatch.setattr(BACKGROUND, "start", start)
    monkeypatch.setattr(xla_tier, "compile_seconds", lambda nodes: 0.0)
    monkeypatch.setattr(xla_tier, "_START_PROCESS", 0.0)
    monkeypatch.setattr(xla_tier, "_WORTH", 1e9)
    monkeypatch.setattr(xla_tier, "_WORTH_DISTURBED", 1e9)
    monkeypatch.setattr(xla_tier, "_TRIAL_RUNS", 2)
