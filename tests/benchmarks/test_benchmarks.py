"""The benchmarks cannot rot: each runs once on a tiny size."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import SECTIONS, cells


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_a_benchmark_measures_something(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # collecting takes long in a process that holds TensorFlow
    monkeypatch.setattr("benchmarks.measurement.gc.collect", int)
    rows = list(SECTIONS[name].measure(None, tiny=True))
    assert rows
    assert all(row.ours > 0 for row in rows)
    assert all(row.work in cells(row) for row in rows)
