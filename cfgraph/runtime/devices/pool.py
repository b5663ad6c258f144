"""The memory of one gpu on a card: blocks that it keeps for later, and how many it may have.

What a run holds is counted elsewhere, value by value. What kernels need while they run, what copies
under way hold and what lies between blocks is known here alone: a limit is the library's to keep,
with some room for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

# the part of a limit that intermediate values may take above it, and the bytes that they may anyhow
_PART: Final = 8
_LEAST: Final = 64 << 20


def nothing_left() -> bool:
    """Where nobody can make room."""
    return False


class Pool:
    """Blocks of a card; `give_up` has all gpus of the card let go of what they keep for later.

    `blocks` is the library's pool.
    """

    def __init__(self, cuda: Any, give_up: Callable[[], None]) -> None:
        self.blocks = cuda.MemoryPool()
        self._give_up = give_up
        self._relief: Callable[[], bool] = nothing_left
        self._limit: int | None = None
        # bytes that other gpus have borrowed, less those that are borrowed of them
        self._lent = 0

    def malloc(self, size: int) -> Any:
        """Memory of the card. Raises MemoryError where there is none, nor any that may go."""
        try:
            return self.blocks.malloc(size)
        except MemoryError:
            self._give_up()
        while True:
            try:
                return self.blocks.malloc(size)
            except MemoryError:
                if not self._relief():
                    raise
                self.free()

    def free(self) -> None:
        """Give back what nobody uses."""
        self.blocks.free_all_blocks()

    def bound(self, limit: int | None, relief: Callable[[], bool] = nothing_left) -> None:
        """Have no more than a limit from now on; `relief` makes room, false if it cannot."""
        changes = limit is not None or self._limit is not None
        self._limit, self._relief = limit, relief
        if changes:
            self._set()

    def lend(self, size: int) -> None:
        """Bytes that another gpu is charged for from now on; less than none are back."""
        self._lent += size
        if self._limit is not None:
            self._set()

    def _set(self) -> None:
        if self._limit is None:
            self.blocks.set_limit()
            return
        room = self._limit + max(self._limit // _PART, _LEAST)
        # no bytes are no limit to the library
        self.blocks.set_limit(max(room + self._lent, 1))
