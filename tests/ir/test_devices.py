"""Device names, and device lists as users write them."""

from __future__ import annotations

import pytest

from cfgraph.errors import UsageError
from cfgraph.ir.devices import (
    DeviceName,
    device_ranges,
    known_devices_hint,
    merge_device_names,
    parse_devices,
    short_device_name,
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("", ""),
        ("/gpu:1", "/device:GPU:1"),
        ("cpu:0", "/device:CPU:0"),
        ("/job:a/replica:0/task:1/device:GPU:2", "/job:a/replica:0/task:1/device:GPU:2"),
        ("/device:GPU:*/task:3", "/task:3/device:GPU:*"),
        ("/job:worker/task:*", "/job:worker"),
        ("/device:XLA_GPU", "/device:XLA_GPU:*"),
    ],
)
def test_a_device_name_has_parts(text: str, full: str) -> None:
    assert str(DeviceName.parse(text)) == full


@pytest.mark.parametrize("text", ["/gpu", "/job:", "/job:a/nothing", "nowhere", "/task:x"])
def test_what_is_no_device_name_has_none(text: str) -> None:
    assert DeviceName.parse(text) is None


@pytest.mark.parametrize(
    ("inner", "outer", "both"),
    [
        ("", "/gpu:0", "/gpu:0"),
        ("/gpu:0", "", "/gpu:0"),
        ("/gpu:0", "/job:a/cpu:1", "/job:a/device:GPU:0"),
        ("/device:GPU:*", "/job:a/gpu:1", "/job:a/device:GPU:1"),
        ("/device:GPU:*", "/job:a/cpu:1", "/job:a/device:GPU:*"),
        ("/job:b/task:1", "/job:a/task:2/cpu:0", "/job:b/task:1/device:CPU:0"),
        ("/gpu:1", "/gpu:0", "/gpu:1"),
        ("is not a device", "/gpu:0", "is not a device"),
        ("/gpu:1", "is not a device", "/gpu:1"),
    ],
)
def test_the_inner_device_wins_and_the_outer_one_fills_it_in(
    inner: str, outer: str, both: str
) -> None:
    assert merge_device_names(inner, outer) == both


LOCAL = "/job:localhost/replica:0/task:0/device:"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cpu:0", ["CPU:0"]),
        ("cpu", ["CPU:0"]),
        ("/gpu:1", ["GPU:1"]),
        ("/device:GPU:0", ["GPU:0"]),
        ("GPU:0", ["GPU:0"]),
        ("cpu:0,gpu:0-2", ["CPU:0", "GPU:0", "GPU:1", "GPU:2"]),
        (" gpu:1 , cpu:0 ,", ["GPU:1", "CPU:0"]),
        (f"{LOCAL}CPU:3", ["CPU:3"]),
    ],
)
def test_devices_are_written_in_short_and_in_full(text: str, names: list[str]) -> None:
    assert parse_devices(text) == tuple(LOCAL + name for name in names)
    assert parse_devices([text]) == parse_devices(text)


def test_ranges_of_tasks_and_numbers_multiply() -> None:
    result = parse_devices("/job:w/task:0-1/gpu:3-4")
    assert result == tuple(
        f"/job:w/replica:0/task:{task}/device:GPU:{number}" for task in (0, 1) for number in (3, 4)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no devices"),
        (",", "no devices"),
        ("cup:0", "'cup:0' is not a device\n  hint: did you mean 'cpu'?"),
        ("cpu:0-x", "'cpu:0-x' is not a device\n  hint: write it as cpu:0, gpu:0-3 or /job"),
        ("tpu:0", "'tpu:0' has the unsupported device kind TPU"),
        ("dpu:0", "'dpu:0' is not a device"),
        ("/device:TPU:0", "device kind TPU"),
        ("gpu:*", "is not a device"),
        ("/job:worker", "is not a device"),
        ("gpu:3-1", "is not a range: it ends at 1, before 3\n  hint: write gpu:1-3"),
        ("gpu:0-99999", "at most 1024"),
        ("/task:0-99/gpu:0-99", "more than 1024"),
        ("cpu:0,/device:CPU:0", "cpu:0 is listed twice"),
    ],
)
def test_what_is_no_device_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_devices(text)
    assert message in str(caught.value)


def test_names_are_shortened_only_where_that_is_unambiguous() -> None:
    assert short_device_name(f"{LOCAL}GPU:1") == "gpu:1"
    assert short_device_name("/job:w/replica:0/task:1/device:GPU:1").startswith("/job:w")
    assert short_device_name("anything") == "anything"


def test_a_device_that_is_not_there_is_answered_with_those_that_are() -> None:
    known = parse_devices("cpu:0,gpu:0-1")
    assert known_devices_hint("/device:GPU:7", known).endswith("available: cpu:0, gpu:0, gpu:1")
    assert "did you mean 'gpu:" in known_devices_hint("/gpu:7", known)


@pytest.mark.parametrize(
    "text",
    ["cpu:0", "cpu:0,gpu:0-3", "gpu:1,gpu:3-4,cpu:0", "/job:w/replica:0/task:0/device:GPU:0-1"],
)
def test_ranges_of_devices_are_read_back(text: str) -> None:
    devices = parse_devices(text)
    assert device_ranges(devices) == text
    assert parse_devices(device_ranges(devices)) == devices
