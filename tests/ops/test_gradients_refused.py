from __future__ import annotations

import pytest

from cfgraph.build.builder import Builder
from cfgraph.errors import Unsupported
from cfgraph.passes.derivatives import gradients


def test_a_gradient_whose_op_does_not_take_an_attribute_is_refused() -> None:
    builder = Builder()
    x = builder.placeholder("x", "float32", [1, 6, 6, 1])
    pads = [0, 0, 1, 1, 0, 0, 0, 0]
    window = [1, 2, 2, 1]
    y = builder.MaxPool(x, ksize=window, strides=window, padding="EXPLICIT", explicit_paddings=pads)
    (first,) = gradients(builder.graph, [y.name], ["x:0"])
    assert first is not None
    before = [node.name for node in builder.graph]
    with pytest.raises(Unsupported, match="MaxPoolGradGrad does not support padding") as caught:
        gradients(builder.graph, [first], ["x:0"])
    assert caught.value.code == "CFG502"
    assert [node.name for node in builder.graph] == before
