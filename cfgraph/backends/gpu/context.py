"""The GPU of this machine, and the only module that imports its array library, CuPy.

Nothing here is imported before a run has a GPU device, or `devices` looks for one, and CuPy not
before there is a GPU.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any

from cfgraph.backends.gpu.library import GpuLibrary
from cfgraph.backends.gpu.stream import GpuStream
from cfgraph.backends.xla.jax_library import has_gpu
from cfgraph.errors import Unsupported, install_hint


class GpuContext(GpuLibrary):
    """A GPU whose devices have a `stream` each; several devices of a run share the GPU."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self._streams: dict[str, GpuStream] = {}

    def stream(self, device: str) -> GpuStream:
        """The streams and memory pool of a device, made on first use."""
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = GpuStream(self, device, self.release_all)
        return stream

    def streams(self) -> list[GpuStream]:
        """The streams that were made so far."""
        return list(self._streams.values())

    def release_all(self) -> None:
        """Wait for all devices, and free the memory that they cache."""
        for stream in self.streams():
            stream.release_all()


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
