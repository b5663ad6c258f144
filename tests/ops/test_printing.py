from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.ops.opdef.op import OpError, lookup
from tests.ops.harness import LocalStep, case, node_of

ROWS = np.arange(24).reshape(2, 3, 4)


def printed(op: str, *inputs: Any, times: int = 1, **attrs: Any) -> list[str]:
    item = case(op, inputs, attrs)
    found, step = lookup(op), LocalStep()
    assert found is not None
    kernel = found.prepare(node_of(item), np)
    for _ in range(times):
        kernel(step, *item.inputs)
    return step.printed


def failure(*data: Any, **attrs: Any) -> str:
    with pytest.raises(OpError) as caught:
        printed("Assert", np.array(False), *data, **attrs)
    return caught.value.message


def test_a_failed_assertion_shows_its_data_as_tensorflow_does() -> None:
    assert failure(np.arange(10)) == "assertion failed: [0 1 2...]"
    assert failure(ROWS, summarize=5) == "assertion failed: [[[0 1 2 3][4...]]...]"
    data = ["x = a\n", np.float32([1.5, 1 / 3]), np.array([True, False]), np.array([1 + 2j])]
    assert failure(*data) == r"assertion failed: [x = a\n] [1.5 0.333333343] [1 0] [?]"
    assert failure(np.zeros((0, 3)), np.zeros((2, 0))) == "assertion failed: [] []"
    assert failure(np.arange(5), summarize=0) == "assertion failed: [...]"
    assert failure(np.arange(4), summarize=-1) == "assertion failed: [0 1 2 3]"


def test_print_shows_the_first_elements_of_each_tensor() -> None:
    lines = printed("Print", np.float32(1), np.arange(10), "x", message="text: ")
    assert lines == ["text: [0 1 2...][x]\n"]


def test_print_stops_after_the_first_times() -> None:
    assert len(printed("Print", np.float32(1), times=5, first_n=2)) == 2


def test_print_v2_uses_the_end_attribute() -> None:
    assert printed("PrintV2", "hello") == ["hello\n"]
    assert printed("PrintV2", "hello", end="|") == ["hello|"]


def test_print_v2_adds_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    assert printed("PrintV2", "hello", times=2, output_stream=f"file://{target}") == []
    assert target.read_text() == "hello\nhello\n"
