"""Tests that need a GPU are not passed over when they are what was asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import asks_for_gpu


@pytest.mark.parametrize("expression", ["gpu", "gpu and not slow", "slow or gpu"])
def test_some_runs_ask_for_a_gpu(expression: str) -> None:
    assert asks_for_gpu(expression)


@pytest.mark.parametrize("expression", ["", "slow", "not gpu", "not slow and not gpu", "gpus"])
def test_most_runs_do_not(expression: str) -> None:
    assert not asks_for_gpu(expression)


def test_a_run_that_asks_for_a_gpu_and_finds_none_fails(root: Path) -> None:
    where = "tests/runtime/fused/test_real_card.py"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "gpu", where]
    # an empty list of devices is as good as no device
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=root, env=hidden, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "CUDA_VISIBLE_DEVICES is empty" in done.stdout
