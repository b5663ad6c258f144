"""Byte sizes and durations are parsed and formatted."""

from __future__ import annotations

import pytest

from cfgraph.errors import UsageError
from cfgraph.ir.units import format_byte_size, format_duration, parse_byte_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 << 30),
        ("1.5 KiB", 1536),
        ("2MB", 2_000_000),
        ("10kB", 10_000),
        ("7", 7),
        ("7B", 7),
        ("1tib", 1 << 40),
        ("9" * 400, 1 << 62),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_byte_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4G", "-1KiB", "1e9", "4 GiB free", "0"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_byte_size(text)


def test_a_size_is_read_in_the_unit_that_fits() -> None:
    text = [format_byte_size(size) for size in (0, 1023, 1024, 3 << 19, 1010 << 20, 5 << 40)]
    assert text == ["0 B", "1023 B", "1 KiB", "1.5 MiB", "1010 MiB", "5 TiB"]


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
    assert format_duration(ns) == text
