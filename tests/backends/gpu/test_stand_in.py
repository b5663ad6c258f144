"""The stand-in separates host and GPU exactly as CuPy does."""

from __future__ import annotations

import inspect
import operator

import numpy as np
import pytest

from cfgraph.backends.gpu.context import GpuContext
from tests.backends.gpu import surface
from tests.backends.gpu.stand_in import library as xp


def test_what_is_recorded_of_cupy_is_what_it_has() -> None:
    cupy = pytest.importorskip("cupy", reason="the extra `gpu` is not installed")
    found, recorded = surface.surface(cupy), surface.recorded()
    # a later version has more; the stand-in has nothing that it lacks
    parts = [*surface.MODULES, "ndarray"]
    missing = [
        f"{part}.{name}" for part in parts for name in recorded[part] if name not in found[part]
    ]
    assert missing == []
    if found["version"] == recorded["version"]:
        assert found == recorded


def test_cupy_compiles_sources_by_the_names_that_are_used() -> None:
    cupy = pytest.importorskip("cupy", reason="the extra `gpu` is not installed")
    compiling = inspect.signature(cupy.cuda.compiler.compile_using_nvrtc)
    assert [*compiling.parameters][:2] == ["source", "options"]
    assert {"load", "get_function"} <= {*dir(cupy.cuda.Module)}
    assert len(cupy.cuda.nvrtc.getVersion()) == 2
    assert hasattr(cupy.cuda.Device, "compute_capability")


# names that the package uses from each module
CUDA = {
    "Stream": ["__enter__", "__exit__", "record", "synchronize", "wait_event"],
    "Event": ["done", "synchronize"],
    "MemoryPool": ["free_all_blocks", "malloc", "set_limit"],
    "Device": ["compute_capability", "synchronize"],
    "UnownedMemory": [],
    "MemoryPointer": [],
}


@pytest.mark.parametrize("name", CUDA)
def test_streams_and_memory_of_the_stand_in_have_the_names_of_cupys(name: str) -> None:
    cupy = pytest.importorskip("cupy", reason="the extra `gpu` is not installed")
    for library in (xp, cupy):
        assert {*CUDA[name]} <= {*dir(getattr(library.cuda, name))}
    if name in ("Stream", "Event"):
        ours, theirs = (
            [*inspect.signature(getattr(library.cuda, name).__init__).parameters]
            for library in (xp, cupy)
        )
        assert {*ours} <= {*theirs}


def test_functions_of_the_runtime_are_cupys() -> None:
    cupy = pytest.importorskip("cupy", reason="the extra `gpu` is not installed")
    for name in ("alloc_pinned_memory", "get_elapsed_time", "using_allocator"):
        assert callable(getattr(cupy.cuda, name))
        assert callable(getattr(xp.cuda, name))
    for name in ("getDeviceCount", "getDeviceProperties"):
        assert callable(getattr(cupy.cuda.runtime, name))
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cupy.cuda.compiler.CompileException, Exception)


def test_no_array_of_the_card_becomes_one_of_numpy_in_passing() -> None:
    here = xp.asarray(np.ones(3))
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(here)
    for call in (operator.add, operator.mul, operator.lt, operator.matmul):
        with pytest.raises(TypeError):
            call(here, np.ones(3))
        with pytest.raises(TypeError):
            call(np.ones(3), here)
    for call in (xp.add, xp.where, xp.maximum):
        with pytest.raises(TypeError):
            call(here, np.ones(3))
    assert (here + np.float64(1)).get().tolist() == [2, 2, 2]


def test_numpy_functions_accept_gpu_arrays() -> None:
    here = xp.asarray(np.arange(3.0))
    for result in (np.exp(here), np.sum(here), np.stack([here, here]), np.float32(2) * here):
        assert type(result) is xp.ndarray
    assert np.sum(here).ndim == 0
    with pytest.raises(TypeError):
        np.add.at(here, [0], 1.0)


def test_what_cupy_lacks_is_missing() -> None:
    for name in ("vecdot", "spacing", "object_"):
        assert not hasattr(xp, name)
    with pytest.raises(TypeError):
        xp.sum(xp.asarray(np.ones(3)), where=True)
    with pytest.raises(TypeError):
        xp.floor(xp.asarray(np.ones(3, complex)))
    with pytest.raises(ValueError, match="Unsupported"):
        xp.asarray(np.array([b"text"], object))


def test_a_copy_is_there_when_its_event_has_passed_and_not_before() -> None:
    stream = GpuContext(xp).stream("gpu:0")
    with stream.current():
        value = np.arange(1 << 15, dtype=np.float64)
        there = stream.to_device(value)
        copy = stream.copy(there)
        assert not np.array_equal(copy.array, value)
        np.testing.assert_array_equal(copy.wait(), value)


def test_a_kernel_of_the_card_that_rounds_otherwise_does_so_here() -> None:
    x, y = xp.asarray(np.array([5.0, 3.0])), xp.asarray(np.array([0.1, np.inf]))
    np.testing.assert_array_equal((x % y).get(), [5 - 50 * 0.1, np.nan])
    large = xp.asarray(np.array([2**62 + 1]))
    assert int(xp.fmod(large, xp.asarray(np.array([2])))[0]) == 0
    far = xp.asarray(np.array([3e9, -3e9, np.nan])).astype(np.int32)
    assert far.get().tolist() == [2**31 - 1, -(2**31), 0]
    # memory is cleared if it is filled with 0
    assert not np.signbit(xp.asarray(np.float32(-0.0)).get())
    assert not np.signbit(xp.full(2, -0.0).get()).any()


def test_methods_that_are_deprecated_warn() -> None:
    here = xp.zeros(3)
    with pytest.warns(DeprecationWarning, match="scatter_add"):
        here.scatter_add(xp.asarray(np.array([1, 1])), xp.ones(2))
    assert here.get().tolist() == [0, 2, 0]
