"""Windows, padding, and images that a file makes too large are rejected before XLA sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla.jax_library import has_jax
from cfgraph.cli import command_line as cli
from cfgraph.errors import ExecutionError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType

HUGE = 1 << 40
LONGEST = 2**31 - 1


def image(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def window(rank: int, name: str) -> dict[str, Any]:
    """A window of one element that is huge by one attribute."""
    sizes = (1, *[HUGE] * (rank - 2), 1)
    plain = (1,) * rank
    return {"strides": plain, "padding": b"SAME", name: sizes}


CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "dilations": ("Conv2D", [image(1, 4, 4, 1), image(2, 2, 1, 1)], window(4, "dilations")),
    "padding": (
        "Conv2D",
        [image(1, 4, 4, 1), image(2, 2, 1, 1)],
        {
            "strides": (1, HUGE, HUGE, 1),
            "padding": b"EXPLICIT",
            "explicit_paddings": (0, 0, HUGE, HUGE, HUGE, HUGE, 0, 0),
        },
    ),
    "dilations in 3 dimensions": (
        "Conv3D",
        [image(1, 4, 4, 4, 1), image(2, 2, 2, 1, 1)],
        window(5, "dilations"),
    ),
    "depthwise": (
        "DepthwiseConv2dNative",
        [image(1, 4, 4, 2), image(2, 2, 2, 1)],
        window(4, "dilations"),
    ),
    "gradient of the image": (
        "Conv2DBackpropInput",
        [np.int32([1, 4, 4, 1]), image(2, 2, 1, 1), image(1, 4, 4, 1)],
        window(4, "dilations"),
    ),
    "size of the image": (
        "Conv2DBackpropInput",
        [np.int32([1, LONGEST, LONGEST, 1]), image(1, 1, 1, 1), image(1, 1, 1, 1)],
        {"strides": (1, 1 << 31, 1 << 31, 1), "padding": b"SAME"},
    ),
    "gradient of the filter": (
        "Conv2DBackpropFilter",
        [image(1, 4, 4, 1), np.int32([LONGEST, LONGEST, 1, 1]), image(1, 4, 4, 1)],
        {"strides": (1, 1, 1, 1), "padding": b"SAME"},
    ),
    "pool": ("MaxPool", [image(1, 4, 4, 1)], window(4, "ksize")),
    "pool with large strides": (
        "AvgPool",
        [image(1, 4, 4, 1)],
        {**window(4, "ksize"), "strides": (1, 2 * HUGE, 2 * HUGE, 1), "padding": b"VALID"},
    ),
    "dilation": ("Dilation2D", [image(1, 4, 4, 1), image(2, 2, 1)], window(4, "rates")),
    "patches": (
        "ExtractImagePatches",
        [image(1, 4, 4, 1)],
        {**window(4, "rates"), "ksizes": (1, 2, 2, 1)},
    ),
    "blocks": (
        "SpaceToBatchND",
        [image(1, 4, 4, 1), np.int64([2, 2]), np.int64([[0, HUGE], [0, HUGE]])],
        {},
    ),
    "resized": ("ResizeNearestNeighbor", [image(1, 4, 4, 1), np.int32([LONGEST] * 2)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_image_beyond_the_memory_limit_is_rejected(name: str) -> None:
    op, inputs, attrs = CASES[name]
    graph = cfgraph.Graph()
    sources = [
        graph.add("Const", dtype=DType.from_numpy(value.dtype), value=TensorValue(value))
        for value in inputs
    ]
    node = graph.add(op, *sources, attrs=attrs)
    for engine in ("tokens", "compiled"):
        with pytest.raises(ExecutionError) as caught:
            cfgraph.Session(graph, engine=engine).run(f"{node.name}:0")
        assert caught.value.code == "CFG713", caught.value.message


@pytest.mark.skipif(not has_jax(), reason="needs the extra xla")
def test_a_dilation_that_overflows_is_rejected_before_xla(
    fixtures: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(fixtures / "robustness" / "xla_conv_dilation_2e40.pb")
    assert cli.run(["run", path, "--fetch", "Pack", "--engine", "xla"]) == 5
    assert capfd.readouterr().err.startswith("error[CFG713]: a padded image or its window needs")


@pytest.mark.skipif(not has_jax(), reason="needs the extra xla")
def test_an_empty_value_whose_sizes_overflow_is_rejected_before_xla() -> None:
    graph = cfgraph.Graph()
    image_node = graph.add("Placeholder", dtype=DType.from_name("float32"))
    dims = TensorValue(np.int64([HUGE, HUGE, 0]))
    shape = graph.add("Const", dtype=DType.from_name("int64"), value=dims)
    reshaped = graph.add("Reshape", image_node, shape)
    node = graph.add("Pack", reshaped, reshaped, attrs={"axis": 0})
    session = cfgraph.Session(graph, engine="xla")
    with pytest.raises(ExecutionError) as caught:
        session.run(f"{node.name}:0", {f"{image_node.name}:0": np.zeros(0, np.float32)})
    assert caught.value.code == "CFG705"
