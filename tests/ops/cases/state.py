"""Ops with state are tested in scenarios: one op alone shows little of them."""

from __future__ import annotations

from tests.ops.scenario import covered

CASES: list[object] = []
WITHOUT_CASE = covered()
