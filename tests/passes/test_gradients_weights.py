"""What the ys are weighed with: tensors and arrays that fit, anything else refused in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError, Unsupported, UsageError


def program() -> cfgraph.Graph:
    """y = x * x of shape [2, 3], and a loop that nothing reads; lowered."""
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [2, 3])
    b.placeholder("row", "float32", [3])
    b.Mul(x, x, name="y")
    b.while_loop(lambda v: b.Less(v, 9.0), lambda v: b.Mul(v, v), b.const(2.0), name="loop")
    cfgraph.lower(b.graph)
    return b.graph


def refused(kind: type[CfgraphError], weight: Any) -> str:
    graph = program()
    before = cfgraph.dumps(graph)
    with pytest.raises(kind) as caught:
        cfgraph.gradients(graph, ["y:0"], ["x:0"], grad_ys=weight)
    assert cfgraph.dumps(graph) == before
    return caught.value.message


@pytest.mark.parametrize("weight", [np.float32(2), np.zeros([3, 2], np.float32), 2.0, "row"])
def test_a_weight_of_another_shape_is_refused(weight: Any) -> None:
    assert "cannot weigh y:0 of shape [2,3]" in refused(UsageError, [weight])


def test_a_weight_from_inside_a_loop_is_refused() -> None:
    names = [node.name for node in program() if node.op == "NextIteration"]
    assert "is inside the loop" in refused(Unsupported, names)


@pytest.mark.parametrize("weight", [[[1.0], [1.0, 2.0]], b"x", object(), 1j])
def test_what_is_no_number_of_the_type_is_refused(weight: Any) -> None:
    assert "cannot weigh y:0 of type float32" in refused(UsageError, [weight])


def test_as_many_weights_as_ys_are_wanted() -> None:
    assert refused(UsageError, []) == "0 weights (grad_ys) for 1 ys"


def test_numbers_of_python_take_the_type_of_the_y() -> None:
    graph = program()
    weight = [[1, 2, 3], [4, 5, 6]]
    (name,) = cfgraph.gradients(graph, ["y:0"], ["x:0"], grad_ys=[np.array(weight, np.float32)])
    (other,) = cfgraph.gradients(graph, ["y:0"], ["x:0"], grad_ys=[weight])
    x = np.ones([2, 3], np.float32)
    have = cfgraph.Session(graph).run([str(name), str(other)], {"x:0": x})
    assert np.array_equal(have, [2 * np.array(weight)] * 2)


def test_gradients_stop_at_names_that_come_one_by_one() -> None:
    stops = (name for name in ["y:0"])
    assert cfgraph.gradients(program(), ["y:0"], ["x:0"], stop_gradients=stops) == [None]


def test_one_name_may_stand_for_a_list_of_it() -> None:
    assert cfgraph.gradients(program(), "y", "x") == ["gradients/x:0"]
    assert cfgraph.gradients(program(), "y", "x", stop_gradients="y") == [None]
    assert cfgraph.gradients(program(), ["y"], ["x"], stop_gradients=iter(["y"])) == [None]
