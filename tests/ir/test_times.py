from __future__ import annotations

import pytest

from cfgraph.ir.times import time_text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0"),
        (0.25, "0.25 ns"),
        (999, "999 ns"),
        (1000, "1 µs"),
        (104_234, "104.2 µs"),
        (1_500_000, "1.5 ms"),
        (32e9, "32 s"),
        (86_400e9, "86400 s"),
    ],
)
def test_times_are_written_in_the_largest_unit_that_fits(ns: float, text: str) -> None:
    assert time_text(ns) == text
