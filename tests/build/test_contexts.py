from __future__ import annotations

from typing import Any

import pytest

from cfgraph import Builder
from tests.build.execution import rejection


def start() -> tuple[Builder, Any]:
    b = Builder()
    return b, b.placeholder("x", "float32", [])


def test_names_begin_with_their_scopes() -> None:
    b, x = start()
    with b.scope("layer"):
        y = b.Neg(x, name="y")
        with b.scope("inner"):
            z = y + 1
    assert [y.name, z.name, (z + 1).name] == ["layer/y:0", "layer/inner/AddV2:0", "AddV2:0"]
    assert "layer/inner/AddV2/y" in b.graph


def test_a_scope_of_a_taken_name_gets_a_number() -> None:
    b, x = start()
    names = []
    for _ in range(3):
        with b.scope("layer"):
            names.append(b.Neg(x).name)
    assert names == ["layer/Neg:0", "layer_1/Neg:0", "layer_2/Neg:0"]


def test_names_are_made_unique() -> None:
    b, x = start()
    assert [b.Neg(x, name="y").name for _ in range(3)] == ["y:0", "y_1:0", "y_2:0"]


def test_a_body_has_names_of_its_own() -> None:
    b, x = start()
    with b.scope("outer"):
        b.cond(x > 0, lambda: b.Neg(x, name="y"), lambda: b.Neg(x, name="y"), name="choice")
    assert "outer/choice" in b.graph
    assert [n.name for n in b.graph.functions["choice_then"].definition.nodes] == ["y"]


@pytest.mark.parametrize("name", ["_x", "a b", "", "/x"])
def test_a_name_that_files_cannot_hold_is_refused(name: str) -> None:
    b, _ = start()
    assert (
        rejection(lambda: b.scope(name).__enter__()).message
        == f"{name!r} is not a valid name for a scope"
    )


def test_nodes_request_the_enclosing_device() -> None:
    b, x = start()
    with b.device("/job:worker/task:1"):
        y = -x
        with b.device("/gpu:0"):
            z = -x
        with b.device(None):
            w = -x
    devices = [t.op.node.device for t in (x, y, z, w)]
    assert devices == ["", "/job:worker/task:1", "/job:worker/task:1/device:GPU:0", ""]


def test_a_body_is_on_the_enclosing_device() -> None:
    b, x = start()

    def branch() -> Any:
        with b.device("/gpu:1"):
            return -x

    with b.device("/gpu:0"):
        out = b.cond(x > 0, branch, lambda: abs(x))
    functions = b.graph.functions
    assert out.op.node.device == "/gpu:0"
    assert functions["cond_then"].definition.nodes[0].device == "/gpu:1"
    assert functions["cond_else"].definition.nodes[0].device == "/gpu:0"


def test_a_word_that_is_no_device_is_refused() -> None:
    b, _ = start()
    assert rejection(lambda: b.device("gpux").__enter__()).message == "'gpux' is not a device"


def test_nodes_wait_for_enclosing_controls() -> None:
    b, x = start()
    first, second = b.NoOp(name="first"), -x
    with b.control(first):
        y = x + 1
        with b.control(second):
            z = b.NoOp()
    assert [n.name for n in y.op.node.controls] == ["first"]
    assert [n.name for n in z.node.controls] == ["first", "Neg"]
    assert not b.graph["AddV2/y"].controls
    assert not (x + 2).op.node.controls


def test_a_group_is_done_when_all_are() -> None:
    b, x = start()
    group = b.group(b.NoOp(name="a"), -x, name="both")
    assert [n.name for n in group.node.controls] == ["a", "Neg"]


def test_a_number_is_nothing_to_wait_for() -> None:
    b, _ = start()
    assert (
        rejection(lambda: b.control(3).__enter__()).message == "3 is not an operation or a tensor"
    )
