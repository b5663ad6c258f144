from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops_page import as_markdown

pytestmark = pytest.mark.interop


def registered_for_cpus() -> list[str]:
    tf = pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    from tensorflow.python.framework import kernels

    return [
        name
        for name in dir(tf.raw_ops)
        if not name.startswith("_")
        and any(
            kernel.device_type == "CPU"
            for kernel in kernels.get_registered_kernels_for_op(name).kernel
        )
    ]


def test_the_page_of_ops_lists_those_that_tensorflow_registers(root: Path, update: bool) -> None:
    page = root / "docs" / "ops.md"
    text = as_markdown(registered_for_cpus())
    if update:
        page.write_text(text)
    assert page.read_text() == text, "make generate"
