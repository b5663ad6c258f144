"""What went wrong on a card, told from what its libraries raise: each has errors of its own."""

from __future__ import annotations

from typing import Final

from cfgraph.ops.op import OpError

# what the runtime, the driver and the libraries over them call it
_NO_MEMORY: Final = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "_ALLOC_FAILED")
# after these nothing works any more: ECC, illegal addresses and instructions, asserts, timeouts
_LOST: Final = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719}


def no_memory(error: Exception) -> bool:
    """True where the card has no memory left, or the host none that a card can copy from."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(name in str(error) for name in _NO_MEMORY)


def grave(error: Exception) -> Exception | None:
    """What to raise instead where a kernel on the host is no way out, None where it may be one."""
    said = str(error).partition("\n")[0]
    if no_memory(error):
        return error if isinstance(error, MemoryError) else MemoryError(said)
    if getattr(error, "status", 0) in _LOST:
        return OpError(f"the card has failed: {said}", hint="a kernel before this one may be why")
    return None
