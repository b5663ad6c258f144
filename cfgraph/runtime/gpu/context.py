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

# the types of elements that CuPy computes with everywhere; types and not their letters, for those
# of other libraries have the same ones
_GPU_DTYPES: Final = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
# how CuPy writes a sum of bfloat16: where NumPy is too old, or ml_dtypes missing, it has none
_BFLOAT16_ADD: Final = "EE->E"
_DRIVERS: Final = {"win32": "nvcuda.dll"}
GPU_KINDS: Final = ("simulated", "real")


class GpuContext:
    """A GPU: `xp` is the namespace that kernels are bound with, `array` the class of its arrays.

    `library` is CuPy, or a module that does what it does. Each gpu of a run has a `lane`: several
    share the card.
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
        """What the card is called."""
        value = self.xp.cuda.runtime.getDeviceProperties(0)["name"]
        return value.decode() if isinstance(value, bytes) else str(value)

    def stream(self, device: str) -> GpuStream:
        """The streams and the memory pool of a gpu, made once."""
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = GpuStream(self, device)
        return stream

    def streams(self) -> list[GpuStream]:
        """Those that were made so far."""
        return list(self._streams.values())

    def release_all(self) -> None:
        """Wait for all gpus, and give back what they keep for later."""
        for stream in self.streams():
            stream.release_all()

    def supports(self, dtype: np.dtype[Any]) -> bool:
        """True for elements that the card computes with; all others stay on the host."""
        return dtype in self._dtypes

    def to_device(self, value: Any) -> Any:
        """A NumPy value as an array of the card, in the order of the current stream.

        What is there already, or cannot be, is handed back as it is.
        """
        if not isinstance(value, np.ndarray | np.generic) or not self.supports(value.dtype):
            return value
        if value.ndim:
            return self.xp.asarray(value)
        # one of rank 0 would be filled by a kernel, and -0.0 with zeros
        return self.xp.asarray(value.reshape(1)).reshape(())

    def to_host(self, value: Any) -> Any:
        """A value as NumPy has it, a scalar of rank 0; waits for all that the card has to do."""
        if type(value) is not self.array:
            return value
        self.xp.cuda.Device().synchronize()
        value = value.get()
        return value if value.ndim else value[()]


@cache
def gpu_context() -> GpuContext:
    """The card of this machine. Raises Unsupported where there is none, or no CuPy."""
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
    """What was amiss: CuPy writes pages around the error that it got."""
    first = error.__cause__ or error
    lines = (line.strip() for line in str(first).splitlines())
    return next((line for line in lines if line.strip("=")), type(first).__name__)


def _no_gpu_error(reason: str) -> Unsupported:
    return Unsupported(f"no real GPU can be used: {reason}; NumPy simulates every gpu")


@cache
def has_gpu() -> bool:
    """True where the driver of a GPU is there, and has one."""
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
