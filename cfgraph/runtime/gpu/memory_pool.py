"""Memory pool of one GPU device, and recognition of GPU errors.

Values are counted elsewhere. Only the pool knows the workspace of kernels, the buffers of pending
copies, and fragmentation: it enforces a limit with some headroom for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cfgraph.ops.opdef.op import OpError

# names of the runtime, the driver, and the libraries above them
_OUT_OF_MEMORY_CODES: Final = (
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "_ALLOC_FAILED",
)
# fatal for the process: ECC, illegal addresses and instructions, asserts, timeouts
_LOST_DEVICE_CODES: Final = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719}


def is_out_of_memory(error: Exception) -> bool:
    """True if the GPU has no memory left, or the host has none that a GPU can copy from."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        name in str(error) for name in _OUT_OF_MEMORY_CODES
    )


def fatal_error(error: Exception) -> Exception | None:
    """The fatal error to raise, or None if falling back to the host is safe."""
    reason = str(error).partition("\n")[0]
    if is_out_of_memory(error):
        return error if isinstance(error, MemoryError) else MemoryError(reason)
    if getattr(error, "status", 0) in _LOST_DEVICE_CODES:
        return OpError(f"the GPU has failed: {reason}", hint="an earlier kernel may be the cause")
    return None


# headroom above a limit for intermediate values: a fraction of the limit, and a minimum in bytes
_HEADROOM_DIVISOR: Final = 8
_MIN_HEADROOM: Final = 64 << 20


def cannot_free() -> bool:
    """Free nothing: the default."""
    return False


class GpuMemoryPool:
    """Pool of GPU memory; `release_all` frees what all devices of the GPU cache.

    `blocks` is the library's pool.
    """

    def __init__(self, cuda: Any, release_all: Callable[[], None]) -> None:
        self.blocks = cuda.MemoryPool()
        self._release_all = release_all
        self._relieve: Callable[[], bool] = cannot_free
        self._limit: int | None = None
        # bytes lent to other devices, less bytes borrowed from them
        self._lent = 0

    def malloc(self, size: int) -> Any:
        """Allocate memory. Raises MemoryError if none is left and none can be freed."""
        try:
            return self.blocks.malloc(size)
        except MemoryError:
            self._release_all()
        while True:
            try:
                return self.blocks.malloc(size)
            except MemoryError:
                if not self._relieve():
                    raise
                self.free()

    def free(self) -> None:
        """Return unused blocks to the GPU."""
        self.blocks.free_all_blocks()

    def set_limit(self, limit: int | None, relieve: Callable[[], bool] = cannot_free) -> None:
        """Set the limit of the pool; `relieve` frees memory, and returns false if it cannot."""
        changes = limit is not None or self._limit is not None
        self._limit, self._relieve = limit, relieve
        if changes:
            self._apply_limit()

    def lend(self, size: int) -> None:
        """Charge another device for bytes from now on; a negative size ends the loan."""
        self._lent += size
        if self._limit is not None:
            self._apply_limit()

    def _apply_limit(self) -> None:
        if self._limit is None:
            self.blocks.set_limit()
            return
        room = self._limit + max(self._limit // _HEADROOM_DIVISOR, _MIN_HEADROOM)
        # the library takes 0 for no limit
        self.blocks.set_limit(max(room + self._lent, 1))
