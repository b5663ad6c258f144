"""Several devices: each has an executor of its own, and they meet at the rendezvous."""

from __future__ import annotations

import pytest

from tests.runtime.devices import counting
from tests.runtime.graphs import session


@pytest.mark.parametrize("parallel", [1, 2, 10])
@pytest.mark.parametrize("count", [0, 1, 2, 57])
def test_a_loop_on_two_devices_counts(parallel: int, count: int) -> None:
    assert session(counting(parallel)).run(["out:0"], {"n": count}) == [count]


@pytest.mark.parametrize("seed", range(5))
def test_no_interleaving_of_devices_changes_a_value(seed: int) -> None:
    both = session(counting(), schedule="random", schedule_seed=seed)
    assert both.run(["out:0"], {"n": 20}) == [20]
