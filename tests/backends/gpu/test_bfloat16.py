"""bfloat16 on a GPU: computed there if the library supports it, rounded like NumPy's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cfgraph
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.runtime.memory.accounting import CopyTotals
from tests.backends.gpu.stand_in import Array, library

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# the parts of a training step: casts, products, elementwise work, a stack, a variable, a sum
STEP = """
x = Placeholder() {dtype=float32, shape=[?,?]} @"DEVICE"
small = Cast(x) {DstT=bfloat16} @"DEVICE"
product = MatMul(small, small) @"DEVICE"
tanh = Tanh(product) @"DEVICE"
positive = Greater(tanh, small) @"DEVICE"
chosen = SelectV2(positive, tanh, small) @"DEVICE"
size = Const() {dtype=int32, value=int32[]:2} @"DEVICE"
stack = StackV2(size) {elem_type=bfloat16} @"DEVICE"
push = StackPushV2(stack, chosen) @"DEVICE"
pop = StackPopV2(stack, ^push) {elem_type=bfloat16} @"DEVICE"
v = VarHandleOp() {dtype=bfloat16, shape=[?,?]} @"DEVICE"
assign = AssignVariableOp(v, pop) {dtype=bfloat16} @"DEVICE"
read = ReadVariableOp(v, ^assign) {dtype=bfloat16} @"DEVICE"
axes = Const() {dtype=int32, value=int32[1]:[0]} @"DEVICE"
sum = Sum(read, axes) @"DEVICE"
mean = Mean(read, axes) @"DEVICE"
joined = Pack(sum, mean) @"DEVICE"
wide = Cast(joined) {DstT=float32} @"DEVICE"
"""


def ran(device: str, fetches: list[str], **options: Any) -> tuple[list[Any], cfgraph.Session]:
    graph = cfgraph.loads(STEP.replace("DEVICE", device).encode(), "graph")
    session = cfgraph.Session(graph, devices=device.strip("/"), memory={}, **options)
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    return session.run(fetches, {"x:0": x}), session


def test_what_is_computed_in_bfloat16_stays_on_the_card(card: GpuContext) -> None:
    (want,), _ = ran("/cpu:0", ["wide:0"])
    (got,), session = ran("/gpu:0", ["wide:0"], gpu=card)
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)
    assert not session.report("gpu").on_host
    memory = session.memory["gpu:0"]
    assert memory.to_device == CopyTotals(1, 256)
    assert memory.to_host == CopyTotals(1, 64)
    (cell,) = session.state.objects()
    assert type(cell.value) is card.array
    assert cell.value.dtype == BFLOAT16


def test_each_result_is_bfloat16_and_what_the_host_has(card: GpuContext) -> None:
    names = ["small:0", "product:0", "tanh:0", "positive:0", "chosen:0", "pop:0", "read:0"]
    for name, got, want in zip(
        names, ran("/gpu:0", names, gpu=card)[0], ran("/cpu:0", names)[0], strict=True
    ):
        assert got.dtype == want.dtype == (bool if name == "positive:0" else BFLOAT16)
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-2, err_msg=name)


def test_the_card_has_no_loop_of_its_own_for_what_is_rounded() -> None:
    # with such a loop, no result would have to be rounded
    x = library.asarray(np.ones(2, BFLOAT16))
    assert library.where(library.asarray(np.ones(2, bool)), x, x).dtype == np.float32
    assert (x + x).dtype == BFLOAT16


@pytest.mark.parametrize("value", [BFLOAT16.type(-0.0), np.zeros((0, 2), BFLOAT16)])
def test_a_value_comes_back_as_it_went(card: GpuContext, value: Any) -> None:
    stream = card.stream("gpu:0")
    with stream.current():
        there = stream.to_device(value)
        assert type(there) is card.array
        back = stream.to_host(there)
    assert (back.dtype, back.shape, back.tobytes()) == (BFLOAT16, value.shape, value.tobytes())


def test_without_loops_for_it_bfloat16_is_the_hosts() -> None:
    old = SimpleNamespace(**{**vars(library), "add": SimpleNamespace(types=["ee->e", "ff->f"])})
    card = GpuContext(old)
    assert not card.supports(BFLOAT16)
    assert card.supports(np.dtype(np.float16))
    assert isinstance(card.to_device(np.ones(2, BFLOAT16)), np.ndarray)


def test_arrays_of_other_narrow_types_are_the_hosts() -> None:
    for name in ("float8_e4m3fn", "float8_e5m2", "int4"):
        value = np.ones(2, np.dtype(getattr(ml_dtypes, name)))
        assert not isinstance(GpuContext(library).to_device(value), Array)
