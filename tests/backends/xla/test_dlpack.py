"""Arrays cross to compiled functions and back over the same memory: DLPack, here on the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla.compile import TraceableFunction
from cfgraph.backends.xla.jax_library import load_jax, xla_context
from cfgraph.backends.xla.transfer import DlpackTransfer
from cfgraph.ir.function_graph import FunctionInstances

pytest.importorskip("jax", reason="the extra `xla` is not installed")

TEXT = b"""
function f(x: float32, y: float32, axis: int32) -> (a: float32, x_out: float32, s: float32) {
  a = AddV2(x, y) {T=float32}
  s = Sum(a:z:0, axis) {T=float32, Tidx=int32, keep_dims=false}
  return a = a:z:0
  return x_out = x
  return s = s:output:0
}
"""


class Foreign(np.ndarray):
    """An array of another library, with the protocol."""

    @property
    def data(self) -> Any:
        """The address of its elements, in CuPy's form."""
        return SimpleNamespace(ptr=self.ctypes.data)


def foreign(value: Any) -> Foreign:
    return np.from_dlpack(value).view(Foreign)


def of_card(value: np.ndarray) -> Foreign:
    """An array that is aligned as GPU arrays are: at a multiple of 256."""
    room = np.empty(value.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    made = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    made[...] = value
    return made.view(Foreign)


def shared() -> DlpackTransfer:
    device = load_jax().local_devices(backend="cpu")[0]
    return DlpackTransfer(load_jax(), device, Foreign, foreign, np.asarray)


def address(value: Any) -> int:
    return int(value.__array_interface__["data"][0])


def test_an_array_crosses_both_ways_without_a_copy() -> None:
    transfer, on_device = shared(), of_card(np.arange(6, dtype=np.float32).reshape(2, 3))
    with xla_context():
        transferred = transfer.to_jax(on_device)
        returned = transfer.from_jax(transferred, False)
    assert transferred.unsafe_buffer_pointer() == address(on_device) == address(returned)
    assert type(returned) is Foreign


def test_a_body_accepts_and_returns_arrays_of_the_library() -> None:
    library = cfgraph.loads(TEXT, "graph").functions
    instances = FunctionInstances(dict(library))
    function = instances.get("f", {})
    x, y = (of_card(np.full((4, 3), value, np.float32)) for value in (1, 2))
    with xla_context():
        body = TraceableFunction(function, 0, instances, shared())
        inputs = [x, y[:, ::-1], np.int32(0)]  # other arrays are made contiguous first
        a, x_out, s = body.compile(inputs).run(inputs)
    assert type(a) is type(s) is Foreign
    assert x_out is x
    assert np.array_equal(a, np.full((4, 3), 3))
    assert np.array_equal(s, np.full(3, 12))


def test_what_holds_nothing_and_what_the_host_has_crosses_too() -> None:
    transfer = shared()
    with xla_context():
        empty = transfer.to_jax(of_card(np.zeros((0, 2), np.float32)))
        assert transfer.from_jax(empty, False).shape == (0, 2)
        assert transfer.from_jax(transfer.to_jax(np.float32(3)), True) == 3
