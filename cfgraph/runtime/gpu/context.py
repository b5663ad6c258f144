"""The GPU of this machine, and the only module that knows its array library, CuPy.

Nothing here is imported before a run has a GPU device, and CuPy not before there is a GPU.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from cfgraph.errors import Unsupported, UsageError, install_hint
from cfgraph.ir.dtypes import bfloat16
from cfgraph.runtime.gpu.stream import GpuStream

# dtypes that CuPy supports everywhere; compared as dtypes, since other libraries reuse the letters
_GPU_DTYPES: Final = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
# CuPy's signature of a bfloat16 sum; missing if NumPy is too old or ml_dtypes is not installed
_BFLOAT16_ADD: Final = "EE->E"
_DRIVERS: Final = {"win32": "nvcuda.dll"}
GPU_KINDS: Final = ("simulated", "real")


class GpuContext:
    """A GPU: `xp` is the namespace that kernels are bound with, `array` the class of its arrays.

    `library` is CuPy, or a module with its interface. Each GPU device of a run has a `stream`;
    several devices share the GPU.
    """

    def __init__(self, library: Any) -> None:
        self.xp = library
        self.array: type[Any] = library.ndarray
        self._dtypes = _GPU_DTYPES
        if _BFLOAT16_ADD in library.add.types:
            self._dtypes |= {bfloat16.numpy}
        self._streams: dict[str, GpuStream] = {}

    @property
    def name(self) -> str:
        """The name of the GPU."""
        value = self.xp.cuda.runtime.getDeviceProperties(0)["name"]
        return value.decode() if isinstance(value, bytes) else str(value)

    def stream(self, device: str) -> GpuStream:
        """The streams and memory pool of a device, made on first use."""
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = GpuStream(self, device)
        return stream

    def streams(self) -> list[GpuStream]:
        """The streams that were made so far."""
        return list(self._streams.values())

    def release_all(self) -> None:
        """Wait for all devices, and free the memory that they cache."""
        for stream in self.streams():
            stream.release_all()

    def supports(self, dtype: np.dtype[Any]) -> bool:
        """True for element types that the GPU computes with; values of others stay on the host."""
        return dtype in self._dtypes

    def to_device(self, value: Any) -> Any:
        """Copy a NumPy value to the GPU, in the order of the current stream.

        Values that are already on the GPU or that it does not support are returned unchanged.
        """
        if not isinstance(value, np.ndarray | np.generic) or not self.supports(value.dtype):
            return value
        if value.ndim:
            return self.xp.asarray(value)
        # CuPy fills a scalar by a kernel, which turns -0.0 into 0.0
        return self.xp.asarray(value.reshape(1)).reshape(())

    def to_host(self, value: Any) -> Any:
        """The value as a NumPy array, or a scalar of rank 0; waits for all queued work."""
        if type(value) is not self.array:
            return value
        self.xp.cuda.Device().synchronize()
        value = value.get()
        return value if value.ndim else value[()]


@cache
def gpu_context() -> GpuContext:
    """The GPU of this machine. Raises Unsupported without a GPU or without CuPy."""
    try:
        if not has_gpu():
            hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
            lacking = "" if find_spec("cupy") else ", and CuPy is not installed"
            shown = ", for CUDA_VISIBLE_DEVICES is empty" if hidden else ""
            raise _no_gpu_error(f"there is none{shown}{lacking}")
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        why = f"CuPy cannot be imported: {_first_line(error)}; {install_hint('gpu')}"
        raise _no_gpu_error(why) from None
    except RuntimeError as error:
        raise _no_gpu_error(_first_line(error)) from None
    return GpuContext(cupy)


def _first_line(error: Exception) -> str:
    """The first line of CuPy's long error messages."""
    first = error.__cause__ or error
    lines = (line.strip() for line in str(first).splitlines())
    return next((line for line in lines if line.strip("=")), type(first).__name__)


def _no_gpu_error(reason: str) -> Unsupported:
    return Unsupported(f"no real GPU can be used: {reason}; NumPy simulates every gpu")


@cache
def has_gpu() -> bool:
    """True if the driver of a GPU is installed and finds one."""
    try:
        driver = ctypes.CDLL(_DRIVERS.get(sys.platform, "libcuda.so.1"))
        count = ctypes.c_int(0)
        return (
            not driver.cuInit(0)
            and not driver.cuDeviceGetCount(ctypes.byref(count))
            and (count.value > 0)
        )
    except (OSError, AttributeError):
        return False


def requested_gpu(gpu: str | GpuContext | None, costs: Any = None) -> GpuContext | str | None:
    """The GPU that a session requests: a real one, `simulated`, or None for either.

    Raises UsageError for an unknown kind, and for a real GPU with a virtual clock, Unsupported for
    a real GPU that cannot be used.
    """
    if gpu is None or isinstance(gpu, GpuContext):
        return gpu
    if gpu not in GPU_KINDS:
        raise UsageError(f"unknown kind of gpu {gpu!r}", hint=f"one of {', '.join(GPU_KINDS)}")
    if gpu == "real" and costs is not None:
        message = "the virtual clock does not run on a real GPU"
        raise UsageError(message, hint="simulate it")
    return gpu_context() if gpu == "real" else gpu


def available_gpu(gpu: GpuContext | str | None) -> GpuContext | None:
    """The real GPU of a run, None if NumPy simulates it.

    Without a request a real GPU is used if there is one and CuPy is installed.
    """
    if gpu == "simulated":
        return None
    if isinstance(gpu, GpuContext):
        return gpu
    try:
        return gpu_context() if has_gpu() else None
    except Unsupported:
        return None
