"""Fixtures of the tests of the compiled engine."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.runtime.compiled import engine


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs for which code is generated."""
    runs: list[Any] = []
    original = engine.generate_run

    def generate(spec: Any, plans: Any, *rest: Any) -> Any:
        runs.append(spec)
        return original(spec, plans, *rest)

    monkeypatch.setattr(engine, "generate_run", generate)
    return runs
