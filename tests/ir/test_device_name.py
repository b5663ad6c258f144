from __future__ import annotations

import pytest

from cfgraph.ir.device_name import DeviceName, merge


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
        ("no device", "/gpu:0", "no device"),
        ("/gpu:1", "no device", "/gpu:1"),
    ],
)
def test_the_inner_device_wins_and_the_outer_one_fills_it_in(
    inner: str, outer: str, both: str
) -> None:
    assert merge(inner, outer) == both
