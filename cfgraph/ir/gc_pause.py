"""Pause of Python's garbage collector while many objects are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# objects made in pauses before it is worth while to look for garbage among them
MIN_OBJECTS: Final = 500_000
_OLDEST_GENERATION: Final = 2


class _PausedObjects:
    """What Python does not know, for whom the objects of a pause were always old."""

    created = 0  # since all objects were gone over, by us or by somebody else
    survivors = 0  # when we last did so

    @classmethod
    def notice(cls, phase: str, info: dict[str, int]) -> None:
        """Begin to count anew when all generations have been gone over."""
        if phase == "stop" and info["generation"] == _OLDEST_GENERATION:
            cls.created = 0


gc.callbacks.append(_PausedObjects.notice)


@contextmanager
def paused_gc() -> Iterator[None]:
    """Graphs and plans are many objects and no garbage, which the collector would go over.

    Afterwards they count as old: it would go over them three times until it takes them for that.
    Graphs that were dropped are let go of before a pause, once pauses have made as many objects as
    were left the last time.
    """
    enabled = gc.isenabled()
    if enabled and _PausedObjects.created > max(MIN_OBJECTS, _PausedObjects.survivors):
        gc.collect()
        _PausedObjects.survivors = len(gc.get_objects())
    gc.disable()
    start = gc.get_count()[0]
    try:
        yield
    finally:
        if enabled:
            _PausedObjects.created += max(0, gc.get_count()[0] - start)
            _move_to_oldest_generation()
            gc.enable()


def _move_to_oldest_generation() -> None:
    """Move all objects into the oldest generation, unless some are frozen: they would thaw.

    In constant time: what counts the frozen objects goes over all of them.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
