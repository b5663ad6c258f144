"""Operators write into buffers of dead operands, and into no buffer that anything else holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.runtime import program
from cfgraph.runtime.compiled.node_writer import REUSING
from cfgraph.runtime.program import FIRST, SECOND, reusing_forms
from cfgraph.runtime.session import Session
from tests.runtime.compiled.agreement import Pair
from tests.runtime.compiled.test_generated_code import GRAPHS, graph_of

SIZE = 1 << 17


def result_address(dead: int, shared: str = "", shape: tuple[int, ...] = (SIZE,)) -> str:
    """The operand whose buffer the sum of `a` and `b` is in; `shared` is read by a view."""
    a, b = np.ones(SIZE), np.ones(shape)
    addresses = {a.ctypes.data: "a", b.ctypes.data: "b"}
    view = {"a": a[1:], "b": b[1:], "": None}[shared]
    result = REUSING["_add"](a, b, dead)
    assert view is None or view[0] == 1
    return addresses.get(result.ctypes.data, "")


@pytest.mark.parametrize(
    ("dead", "shared", "expected"),
    [
        (FIRST, "", "a"),
        (SECOND, "", "b"),
        (FIRST | SECOND, "", "a"),
        (FIRST | SECOND, "a", "b"),
        (FIRST, "a", ""),
        (SECOND, "b", ""),
    ],
)
def test_a_buffer_is_reused_unless_something_holds_it(
    dead: int, shared: str, expected: str
) -> None:
    assert result_address(dead, shared) == expected


def test_a_buffer_of_another_shape_is_not_reused() -> None:
    assert result_address(FIRST | SECOND, shape=(2, 1)) == ""


def test_a_buffer_is_reused_if_the_other_operand_is_repeated() -> None:
    assert result_address(FIRST | SECOND, shape=(1,)) == "a"
    assert result_address(SECOND, shape=(1,)) == ""
    assert result_address(FIRST | SECOND, shape=(1, SIZE)) == "b"


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_buffer_of_a_view_is_reused_unless_another_has_it(is_shared: bool) -> None:
    a = np.ones((2, SIZE)).reshape((SIZE, 2))
    other = a.base if is_shared else None
    address = a.ctypes.data
    result = REUSING["_add"](a, np.ones(2), FIRST)
    assert (result.ctypes.data == address) == (not is_shared)
    assert other is None or (other == 1).all()


LAYER = """
x = Placeholder() {dtype=float32}
bias = Const() {dtype=float32, value=float32[2]:[-1.0, 0.5]}
a = BiasAdd(x, bias)
b = Relu(a)
c = BiasAdd(b, bias)
d = Relu6(c)
shape = Const() {dtype=int32, value=int32[4]:[1, 8, -1, 2]}
image = Reshape(d, shape)
one = Const() {dtype=float32, value=float32[2]:[1.0, 2.0]}
e = FusedBatchNormV3(image, one, bias, one, one) {U=float32, is_training=false}
g = FusedBatchNormV3(e, one, bias, one, one) {U=float32}
"""


@pytest.mark.parametrize(
    "fetches", [["g:0"], ["a:0", "d:0", "g:1"], ["b:0", "c:0", "d:0"], ["d:0", "e:0", "g:0"]]
)
def test_kernels_reuse_buffers_with_the_same_values(fetches: list[str]) -> None:
    x = np.linspace(-9, 9, SIZE, dtype=np.float32).reshape((-1, 2))
    pair, before = Pair(lambda: graph_of(LAYER)), x.copy()
    for _ in range(2):
        pair.run(fetches, {"x:0": x})
    assert (x == before).all()
    assert not pair.fallback


CHAIN = """
x = Placeholder() {dtype=float32}
v = VarHandleOp() {dtype=float32, shape=[?], shared_name="v"}
a = AddV2(x, x)
store = AssignVariableOp(v, a) {dtype=float32}
b = Mul(a, a, ^store)
c = Sub(b, x)
d = AddV2(c, b)
e = Mul(d, c)
f = Reshape(e, shape)
shape = Const() {dtype=int32, value=int32[1]:[-1]}
g = AddV2(e, f)
read = ReadVariableOp(v, ^g) {dtype=float32}
"""


def test_fed_stored_and_fetched_arrays_stay_as_they_are() -> None:
    x = np.linspace(0, 1, SIZE, dtype=np.float32)
    pair = Pair(lambda: graph_of(CHAIN))
    before = x.copy()
    for fetches in (["g:0", "read:0"], ["c:0", "g:0", "e:0", "read:0"]):
        values = pair.run(fetches, {"x:0": x})
        again = pair.run(fetches, {"x:0": x})
        assert (values[-1] == 2 * before).all()
        assert all((a == b).all() for a, b in zip(values, again, strict=True))
    assert (x == before).all()
    assert not pair.fallback


@pytest.mark.parametrize("name", ["lstm", "lstm_grad"])
def test_small_buffers_are_reused_with_the_same_values(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "REUSING_FORMS", reusing_forms(0))
    fetches = ["loss:0", "dW:0"] if name == "lstm_grad" else ["loss:0"]
    random = np.random.default_rng(1)
    feeds: dict[str, Any] = {
        "W:0": random.normal(0, 0.1, (512, 1024)).astype(np.float32),
        "x:0": random.normal(0, 1, (3, 32, 256)).astype(np.float32),
    }
    values = []
    for engine in ("tokens", "compiled"):
        session = Session(cfgraph.load(GRAPHS / f"{name}.pb"), engine=engine, blas_threads=1)
        values.append([value.tobytes() for value in session.run(fetches, feeds)])
    assert values[0] == values[1]
