"""Memory pool of one GPU device, and recognition of GPU errors.

Values are counted elsewhere. Only the pool knows the workspace of kernels, the buffers of pending
copies, and fragmentation: it enforces a limit with some headroom for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cfgraph.ops.opdef.op import OpError

# what the runtime, the driver and the libraries over them call it
_OUT_OF_MEMORY_CODES: Final = (
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "_ALLOC_FAILED",
)
# after these nothing works any more: ECC, illegal addresses and instructions, asserts, timeouts
_LOST_DEVICE_CODES: Final = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719}


def is_out_of_memory(error: Exception) -> bool:
    """True where the card has no memory left, or the host none that a card can copy from."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        name in str(error) for name in _OUT_OF_MEMORY_CODES
    )


def fatal_error(error: Exception) -> Exception | None:
    """What to raise instead where a kernel on the host is no way out, None where it may be one."""
    reason = str(error).partition("\n")[0]
    if is_out_of_memory(error):
        return error if isinstance(error, MemoryError) else MemoryError(reason)
    if getattr(error, "status", 0) in _LOST_DEVICE_CODES:
        return OpError(f"the card has failed: {reason}", hint="a kernel before this one may be why")
    return None


# the part of a limit that intermediate values may take above it, and the bytes that they may anyhow
_HEADROOM_DIVISOR: Final = 8
_MIN_HEADROOM: Final = 64 << 20


def cannot_free() -> bool:
    """Where nobody can make room."""
    return False


class GpuMemoryPool:
    """Blocks of a card; `give_up` has all gpus of the card let go of what they keep for later.

    `blocks` is the library's pool.
    """

    def __init__(self, cuda: Any, release_all: Callable[[], None]) -> None:
        self.blocks = cuda.MemoryPool()
        self._release_all = release_all
        self._relieve: Callable[[], bool] = cannot_free
        self._limit: int | None = None
        # bytes that other gpus have borrowed, less those that are borrowed of them
        self._lent = 0

    def malloc(self, size: int) -> Any:
        """Memory of the card. Raises MemoryError where there is none, nor any that may go."""
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
        """Give back what nobody uses."""
        self.blocks.free_all_blocks()

    def set_limit(self, limit: int | None, relieve: Callable[[], bool] = cannot_free) -> None:
        """Have no more than a limit from now on; `relief` makes room, false if it cannot."""
        changes = limit is not None or self._limit is not None
        self._limit, self._relieve = limit, relieve
        if changes:
            self._apply_limit()

    def lend(self, size: int) -> None:
        """Bytes that another gpu is charged for from now on; less than none are back."""
        self._lent += size
        if self._limit is not None:
            self._apply_limit()

    def _apply_limit(self) -> None:
        if self._limit is None:
            self.blocks.set_limit()
            return
        room = self._limit + max(self._limit // _HEADROOM_DIVISOR, _MIN_HEADROOM)
        # no bytes are no limit to the library
        self.blocks.set_limit(max(room + self._lent, 1))
