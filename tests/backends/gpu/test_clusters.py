"""Clusters on a GPU, run on the stand-in for CuPy."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cfgraph
from benchmarks.running import GRAPHS, works
from cfgraph.backends.gpu import kernels
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.backends.gpu.kernels import GpuTarget
from cfgraph.backends.gpu.stream import DeviceCopy
from cfgraph.backends.xla import tier
from cfgraph.backends.xla.jax_library import has_jax, load_jax
from cfgraph.backends.xla.transfer import DlpackTransfer
from cfgraph.errors import Unsupported
from tests.backends.gpu.stand_in import Array, library
from tests.backends.xla.tier_fixtures import at_once
from tests.conformance import recorded
from tests.conformance import recorded_gradients as gradients
from tests.sampled import sampled

__all__ = ["at_once"]

LSTM = {work.file: work for work in works(tiny=True) if "lstm" in work.file}
SESSIONS = recorded.parameters("session")
GRADIENTS = recorded.parameters("gradient")


@pytest.fixture
def stand_in() -> GpuContext:
    """A GPU over NumPy arrays."""
    return GpuContext(library)


def need(engine: str, card: GpuContext) -> None:
    """Skip, with the reason, if XLA is requested and jax does not use the GPU."""
    if engine == "xla":
        try:
            GpuTarget(card.stream("gpu:0")).transfer()
        except Unsupported as error:
            pytest.skip(f"{error.message}; {error.hint}")


@pytest.mark.parametrize("file", LSTM)
def test_a_clustered_lstm_on_a_gpu_agrees_with_the_host(file: str, stand_in: GpuContext) -> None:
    work, graph = LSTM[file], cfgraph.load(GRAPHS / file)
    want = cfgraph.Session(graph).run(work.fetches, work.feeds)
    session = cfgraph.Session(graph, devices="gpu:0", jit="numpy", gpu=stand_in)
    got = session.run(work.fetches, work.feeds)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    # the body of the loop, and that of its gradient, is one cluster call per iteration
    calls = [cluster.calls for cluster in session.cluster_runner.clusters.values() if cluster.calls]
    assert sum(calls) >= work.iterations


HALVES = """
x = Placeholder() {dtype=float32, shape=[?,?]}
h = Cast(x) {DstT=bfloat16}
two = Const() {dtype=bfloat16, value=bfloat16[]:2.0}
a = Mul(h, two)
b = AddV2(a, h)
c = Sub(b, two)
d = Mul(c, b)
y = Cast(d) {DstT=float32}
"""


def test_a_cluster_of_bfloat16_on_a_card_rounds_each_step_as_the_host_does(
    stand_in: GpuContext,
) -> None:
    graph, x = cfgraph.loads(HALVES.encode(), "graph"), np.linspace(-3, 3, 96, dtype=np.float32)
    feeds, names = {"x": x.reshape(8, 12)}, ["h:0", "d:0", "y:0"]
    want = cfgraph.Session(graph).run(names, feeds)
    session = cfgraph.Session(graph, devices="gpu:0", jit="numpy", gpu=stand_in)
    for one, other in zip(session.run(names, feeds), want, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("case", sampled(SESSIONS[::6], 20))
def test_a_clustered_session_on_a_card_agrees(case: dict[str, Any], stand_in: GpuContext) -> None:
    difference = recorded.disagreement(case, jit="numpy", devices="gpu:0", gpu=stand_in)
    assert not difference, difference


@pytest.mark.parametrize("case", sampled(GRADIENTS[::6], 16))
def test_a_clustered_gradient_on_a_card_agrees(case: dict[str, Any], stand_in: GpuContext) -> None:
    options = {"jit": "numpy", "regions": True, "devices": "gpu:0", "gpu": stand_in}
    assert not gradients.disagreement(case, **options)


@pytest.mark.card
@pytest.mark.parametrize("jit", ["numpy", "xla"])
@pytest.mark.parametrize("case", sampled(SESSIONS, 120))
def test_a_clustered_session_on_a_real_card_agrees(
    case: dict[str, Any], jit: str, real_card: GpuContext
) -> None:
    need(jit, real_card)
    difference = recorded.disagreement(case, jit=jit, devices="gpu:0", gpu=real_card)
    assert not difference, difference


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA on the stand-in GPU: jax imports its arrays on the CPU."""

    def transfer(target: GpuTarget) -> DlpackTransfer:
        stream = target.stream
        device = load_jax().local_devices(backend="cpu")[0]
        return DlpackTransfer(load_jax(), device, Array, library.from_dlpack, stream.to_host)

    def exported(self: Array, **options: Any) -> Any:
        assert not self.data.ptr % 16, "CUDA_ERROR_MISALIGNED_ADDRESS"
        # arrays from jax are read-only, which the protocol does not report to NumPy
        array = self._a if self._a.flags.writeable else self._a.copy()
        return array.__dlpack__(**options)

    def taken(value: Any) -> Array:
        return Array.over(np.from_dlpack(value))

    monkeypatch.setattr(Array, "__dlpack__", exported, raising=False)
    monkeypatch.setattr(Array, "__dlpack_device__", lambda self: (1, 0), raising=False)
    monkeypatch.setattr(library, "from_dlpack", taken, raising=False)
    monkeypatch.setattr(GpuTarget, "transfer", transfer)


needs_jax = pytest.mark.skipif(not has_jax(), reason="the extra `xla` is not installed")


@needs_jax
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("file", LSTM)
def test_an_lstm_that_xla_compiled_for_a_gpu_agrees_with_the_host(file: str) -> None:
    work, graph = LSTM[file], cfgraph.load(GRAPHS / file)
    want = cfgraph.Session(graph).run(work.fetches, work.feeds)
    session = cfgraph.Session(graph, devices="gpu:0", jit="xla", gpu=GpuContext(library))
    for one, other in zip(session.run(work.fetches, work.feeds), want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    # host kernels of cluster calls are planned, and never called
    called = [cluster for cluster in session.cluster_runner.clusters.values() if cluster.calls]
    assert called
    assert not any(one.refused or one.fused for one in called), [
        (one.refused, one.compilations) for one in called
    ]


@needs_jax
@pytest.mark.usefixtures("shared")
def test_a_row_is_transferred_from_any_offset() -> None:
    transfer = GpuTarget(GpuContext(library).stream("gpu:0")).transfer()
    rows = library.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert rows[1].data.ptr % 16
    np.testing.assert_array_equal(np.asarray(transfer.to_jax(rows[1])), [3, 4, 5])


@needs_jax
@pytest.mark.usefixtures("shared")
def test_products_on_a_card_keep_all_bits_of_float32() -> None:
    transfer, one = (
        GpuTarget(GpuContext(library).stream("gpu:0")).transfer(),
        np.ones((2, 2), np.float32),
    )
    with transfer.device_scope():
        assert "HIGHEST" in str(load_jax().make_jaxpr(lambda x: x @ x)(one))


VARIABLES = b"""
x = Placeholder() {dtype=float32, shape=[2]}
u = VarHandleOp() {dtype=float32, shape=[2], shared_name="u"}
v = VarHandleOp() {dtype=float32, shape=[2], shared_name="v"}
w = VarHandleOp() {dtype=float32, shape=[2], shared_name="w"}
set_u = AssignVariableOp(u, x) {dtype=float32}
set_v = AssignVariableOp(v, x) {dtype=float32}
set_w = AssignVariableOp(w, x) {dtype=float32}
read_u = ReadVariableOp(u) {dtype=float32}
read_v = ReadVariableOp(v) {dtype=float32}
read_w = ReadVariableOp(w) {dtype=float32}
y = Mul(read_u, read_v) {T=float32}
z = AddV2(y, read_w) {T=float32}
t = Neg(z) {T=float32}
"""


@needs_jax
@pytest.mark.usefixtures("shared")
def test_values_of_variables_cross_to_xla_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = cfgraph.loads(VARIABLES, "graph")
    session = cfgraph.Session(graph, engine="xla", devices="gpu:0", gpu=GpuContext(library))

    def assign(targets: list[str], value: float) -> None:
        session.run(targets=targets, feeds={"x:0": np.full(2, value, np.float32)})

    crossed = []
    exported = Array.__dlpack__

    def counted(self: Array, **options: Any) -> Any:
        crossed.append(self)
        return exported(self, **options)

    assign(["set_u", "set_v", "set_w"], 2)
    session.run("z:0")
    monkeypatch.setattr(Array, "__dlpack__", counted)
    for value in (2, 5):
        assign(["set_w"], value)
        for _ in range(2):
            np.testing.assert_array_equal(session.run("z:0"), [[4 + value] * 2])
    # u, whose import orders the streams, in each of four runs, v once, and w per value
    assert len(crossed) <= 4 + 1 + 2


@needs_jax
@pytest.mark.usefixtures("shared")
def test_all_fetches_are_on_their_way_before_the_first_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = cfgraph.loads(VARIABLES, "graph")
    session = cfgraph.Session(graph, engine="xla", devices="gpu:0", gpu=GpuContext(library))
    session.run(targets=["set_u", "set_v", "set_w"], feeds={"x:0": np.full(2, 3, np.float32)})
    copies, awaited = [], []
    get, wait = Array.get, DeviceCopy.wait
    monkeypatch.setattr(Array, "get", lambda *a, **k: copies.append(a) or get(*a, **k))
    monkeypatch.setattr(DeviceCopy, "wait", lambda copy: awaited.append(len(copies)) or wait(copy))
    y, z, t, again = session.run(["y:0", "z:0", "t:0", "y:0"])
    assert [*y, *z, *t, *again] == [9, 9, 12, 12, -12, -12, 9, 9]
    assert awaited[0] >= 3


@needs_jax
@pytest.mark.usefixtures("shared", "at_once")
@pytest.mark.parametrize("has_cuda", [True, False])
def test_repeated_loops_on_a_card_move_to_xla_if_jax_has_cuda(
    has_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "has_jax_cuda", lambda: has_cuda)
    work, graph = LSTM["lstm.pb"], cfgraph.load(GRAPHS / "lstm.pb")
    want = cfgraph.Session(graph).run(work.fetches, work.feeds)
    session = cfgraph.Session(graph, devices="gpu:0", gpu=GpuContext(library))
    for _ in range(12):
        for one, other in zip(session.run(work.fetches, work.feeds), want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert session.tier_choice.startswith("XLA compiled in ") == has_cuda
    assert session.report("gpu").kind == "real"


@needs_jax
@pytest.mark.usefixtures("shared", "at_once")
def test_variables_of_a_card_move_to_xla_with_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tier, "has_jax_cuda", lambda: True)
    names = ["z", *(f"a{number}" for number in range(9))]
    chain = [f"{b} = AddV2({a}, read_u) {{T=float32}}\n" for a, b in pairwise(names)]
    update = "double = AssignAddVariableOp(w, a8) {dtype=float32}\n"
    graph = cfgraph.loads(VARIABLES + "".join([*chain, update]).encode(), "graph")
    sessions = [
        cfgraph.Session(graph, **options)
        for options in ({"engine": "tokens"}, {"devices": "gpu:0", "gpu": GpuContext(library)})
    ]
    for session in sessions:
        session.run(targets=["set_u", "set_v", "set_w"], feeds={"x:0": np.full(2, 3, np.float32)})
    for _ in range(12):
        want, got = (session.run(["a8:0"], targets=["double"]) for session in sessions)
        np.testing.assert_array_equal(want, got)
    assert "XLA compiled in" in sessions[1].tier_choice


def test_memory_of_jax_is_kept_until_the_kernels_that_read_it_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past = False
    monkeypatch.setattr(library.cuda.Event, "done", property(lambda event: past))
    arrays = [Array.over(np.arange(6, dtype=np.float32))]
    monkeypatch.setattr(library, "from_dlpack", lambda value: arrays.pop(), raising=False)
    devices = SimpleNamespace(local_devices=lambda backend: ["the card"])
    monkeypatch.setattr(kernels, "load_jax", lambda: devices)
    stream, theirs = GpuContext(library).stream("gpu:0"), weakref.ref(arrays[0])
    output = SimpleNamespace(devices=lambda: ["the card"], size=6)
    taken = GpuTarget(stream).transfer().from_jax(output, False)
    np.testing.assert_array_equal(taken.get(), np.arange(6))
    del taken
    gc.collect()
    assert theirs() is not None
    past = True
    stream.release_finished()
    assert theirs() is None


@needs_jax
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("case", sampled(SESSIONS[::6], 20))
def test_a_session_that_xla_compiled_for_a_card_agrees(case: dict[str, Any]) -> None:
    difference = recorded.disagreement(case, jit="xla", devices="gpu:0", gpu=GpuContext(library))
    assert not difference, difference
