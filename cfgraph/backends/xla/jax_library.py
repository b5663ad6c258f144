"""The library jax: whether it is installed, and its configuration."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from cfgraph.errors import Unsupported, install_hint
from cfgraph.limits import run_interruptibly

_CUDA_VERSIONS: Final = (12, 13)
_DRIVERS: Final = {"win32": "nvcuda.dll"}
# held until jax is configured
_LOADING: Final = threading.Lock()


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


def has_jax() -> bool:
    """True if the extra `xla` is installed."""
    return find_spec("jax") is not None


def has_jax_cuda() -> bool:
    """True if a plugin of jax for CUDA is installed."""
    return any(find_spec(f"jax_cuda{version}_plugin") for version in _CUDA_VERSIONS)


def require_jax() -> None:
    """Raise Unsupported if the extra `xla` is not installed; jax is not imported."""
    if not has_jax():
        raise Unsupported("jax is not installed", hint=install_hint("xla"), code="CFG710")


@cache
def load_jax() -> Any:
    """Load and configure jax. Raises Unsupported if the extra is not installed, RunTimeout."""

    def load() -> Any:
        with _LOADING:
            return _configured_jax()

    # an import that is interrupted cannot be repeated
    return run_interruptibly(load)


def _configured_jax() -> Any:
    first = "jax" not in sys.modules
    # leave GPU memory to others
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError as error:
        message = "jax is not installed" if error.name == "jax" else f"cannot import jax: {error}"
        raise Unsupported(message, hint=install_hint("xla"), code="CFG710") from None
    if first:
        # synchronous dispatch halves the cost of a small cluster
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        if not has_gpu():
            jax.config.update("jax_platforms", "cpu")
    return jax


@contextmanager
def xla_context() -> Iterator[None]:
    """Context for compiling and running: 64-bit types, on the CPU."""
    jax = load_jax()
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield
