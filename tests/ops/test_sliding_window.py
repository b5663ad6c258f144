from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfgraph.ops.opdef.op import OpError
from tests.ops.harness import case, run_ours

random = np.random.default_rng(6)


def run(op: str, *inputs: Any, **attrs: Any) -> Any:
    return run_ours(case(op, inputs, attrs))[0]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("op", ["Conv2D", "DepthwiseConv2dNative"])
def test_the_gradients_of_a_convolution_are_its_transposes(
    op: str, data_format: str, padding: str
) -> None:
    # <dy, conv(x, w)> is linear in x and in w: both gradients give it back
    last = data_format == "NHWC"
    x = random.standard_normal((2, 8, 9, 4) if last else (2, 4, 8, 9))
    w = random.standard_normal((2, 3, 4 if op.startswith("D") else 2, 2))
    pair = [1, 2, 1, 1] if last else [1, 1, 2, 1]
    attrs = {
        "strides": [1, 1, 1, 1],
        "dilations": pair,
        "padding": padding,
        "data_format": data_format,
    }
    y = run(op, x, w, **attrs)
    dy = random.standard_normal(y.shape)
    dx = run(f"{op}BackpropInput", np.array(x.shape, np.int32), w, dy, **attrs)
    dw = run(f"{op}BackpropFilter", x, np.array(w.shape, np.int32), dy, **attrs)
    assert np.vdot(dx, x) == pytest.approx(np.vdot(dy, y))
    assert np.vdot(dw, w) == pytest.approx(np.vdot(dy, y))


def test_the_gradients_that_take_an_array_for_its_shape_are_the_same() -> None:
    x, w = random.standard_normal((1, 5, 5, 2)), random.standard_normal((3, 3, 2, 2))
    dy = random.standard_normal((1, 3, 3, 2))
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID"}
    sizes = [np.array(a.shape, np.int32) for a in (x, w)]
    assert np.array_equal(
        run("Conv2DBackpropInputV2", x, w, dy, **attrs),
        run("Conv2DBackpropInput", sizes[0], w, dy, **attrs),
    )
    assert np.array_equal(
        run("Conv2DBackpropFilterV2", x, w, dy, **attrs),
        run("Conv2DBackpropFilter", x, sizes[1], dy, **attrs),
    )


WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def test_the_second_gradient_takes_what_lies_where_the_index_says() -> None:
    x = random.standard_normal((2, 4, 4, 3))
    argmax = run_ours(case("MaxPoolWithArgmax", [x], WINDOW))[1]
    assert np.array_equal(
        run("MaxPoolGradGradWithArgmax", x, x, argmax, **WINDOW), run("MaxPool", x, **WINDOW)
    )


@pytest.mark.parametrize("op", ["MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax"])
@pytest.mark.parametrize("wrong", [-1, 16])
def test_an_index_outside_of_the_image_is_refused(op: str, wrong: int) -> None:
    x, dy = np.ones((1, 4, 4, 1)), np.ones((1, 2, 2, 1))
    values = dy if op == "MaxPoolGradWithArgmax" else x
    with pytest.raises(OpError, match="argmax lies outside"):
        run(op, x, values, np.full(dy.shape, wrong), **WINDOW)
