"""Random programs of TensorFlow have the same values in cfgraph, whatever passes and engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampled import in_sweep

pytestmark = [pytest.mark.interop, pytest.mark.slow]

pytest.importorskip("tensorflow", reason="needs the extra `interop`")

_SEEDS = 300
_SHARDS = 6
_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("shard", in_sweep(range(_SHARDS)))
def test_random_programs_agree_with_tensorflow(shard: int) -> None:
    count = _SEEDS // _SHARDS
    command = [sys.executable, "-m", "tests.conformance.agree"]
    command += ["--seed", str(shard * count), "--count", str(count)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
