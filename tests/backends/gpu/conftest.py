"""Fixtures: the GPUs that the tests of this folder run on."""

from __future__ import annotations

import pytest

from cfgraph.backends.gpu.context import GpuContext
from tests.backends.gpu.stand_in import library


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.card)])
def card(request: pytest.FixtureRequest) -> GpuContext:
    """A stand-in GPU, and the real one if there is one."""
    if request.param == "stand-in":
        return GpuContext(library)
    found: GpuContext = request.getfixturevalue("real_card")
    return found
