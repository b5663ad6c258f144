"""Lists of devices as users write them."""

from __future__ import annotations

import pytest

from cfgraph.errors import UsageError
from cfgraph.ir.device_set import closest, device_set, short_name

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
    assert device_set(text) == tuple(LOCAL + name for name in names)
    assert device_set([text]) == device_set(text)


def test_ranges_of_tasks_and_numbers_multiply() -> None:
    found = device_set("/job:w/task:0-1/gpu:3-4")
    assert found == tuple(
        f"/job:w/replica:0/task:{task}/device:GPU:{number}" for task in (0, 1) for number in (3, 4)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no devices"),
        (",", "no devices"),
        ("cup:0", "'cup:0' is no device\n  hint: did you mean 'cpu'?"),
        ("tpu:0", "'tpu:0' is a device of kind TPU, which there is no simulator for"),
        ("dpu:0", "'dpu:0' is no device"),
        ("/device:TPU:0", "of kind TPU"),
        ("gpu:*", "no device"),
        ("/job:worker", "no device"),
        ("gpu:3-1", "no range"),
        ("gpu:0-99999", "at most 1024"),
        ("/task:0-99/gpu:0-99", "more than 1024"),
        ("cpu:0,/device:CPU:0", "cpu:0 is named twice"),
    ],
)
def test_what_is_no_device_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        device_set(text)
    assert message in str(caught.value)


def test_names_are_shortened_only_where_that_is_unambiguous() -> None:
    assert short_name(f"{LOCAL}GPU:1") == "gpu:1"
    assert short_name("/job:w/replica:0/task:1/device:GPU:1").startswith("/job:w")
    assert short_name("anything") == "anything"


def test_a_device_that_is_not_there_is_answered_with_those_that_are() -> None:
    known = device_set("cpu:0,gpu:0-1")
    assert closest("/device:GPU:7", known).endswith("there are cpu:0, gpu:0, gpu:1")
    assert "did you mean 'gpu:" in closest("/gpu:7", known)
