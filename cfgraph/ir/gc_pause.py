"""Pauses of Python's garbage collector while many objects are created."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

# objects created in pauses before a full collection is worth its time; before a pause that creates
# a large share of as many, a collection takes a small share of its time
MIN_OBJECTS: Final = 500_000
_MIN_OBJECTS_AT_LARGE: Final = 100_000
_LARGE_SHARE: Final = 2
# what a run of a graph creates
_OBJECTS_PER_NODE: Final = 20
# above the number of objects in the modules of any command
STARTUP_OBJECTS: Final = 100_000
_OLDEST_GENERATION: Final = 2
# CPython 3.12 starts with 375 frozen objects; a program that freezes its modules has thousands
_FROZEN_AT_STARTUP: Final = 1000
_IS_FREE_THREADED: Final = "t" in getattr(sys, "abiflags", "")


class _PausedObjects:
    """Counts of objects that the collector has not seen, since a pause makes them old."""

    created = 0  # since the last full collection
    collections = 0  # full collections of the process when this was last compared
    # of the last full collection, or those of modules; None if they are not counted yet
    survivors: int | None = None
    frozen = False  # true if objects were frozen when this was last found out
    pauses = 0  # pauses that have not ended, in all threads
    enabled = False  # true if the collector was enabled before the first of them
    lock = Lock()

    @classmethod
    def forget_collected(cls) -> None:
        """Reset the counts after a full collection."""
        collections = gc.get_stats()[_OLDEST_GENERATION]["collections"]
        if collections != cls.collections:
            with cls.lock:
                cls.created, cls.collections, cls.survivors = 0, collections, None
                cls.frozen = False

    @classmethod
    def has_frozen(cls) -> bool:
        """Return whether a program froze objects; counting them takes time for each.

        True until the next full collection once it is; false is found again at each call.
        """
        cls.frozen = cls.frozen or gc.get_freeze_count() > _FROZEN_AT_STARTUP
        return cls.frozen

    @classmethod
    def outnumber(cls, least: int) -> bool:
        """Return whether pauses created more than `least` objects, and more than survived.

        The survivors are counted only here, since that takes a pass over all objects.
        """
        if cls.created <= least:
            return False
        if cls.survivors is None:
            cls.survivors = max(0, _object_count() - cls.created)
        return cls.created > cls.survivors


def delay_first_collection() -> None:
    """Skip collections until `STARTUP_OBJECTS` exist: imports make no garbage."""
    thresholds = gc.get_threshold()

    def restore(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(restore)
        gc.set_threshold(*thresholds)

    gc.callbacks.append(restore)
    gc.set_threshold(STARTUP_OBJECTS, *thresholds[1:])


@contextmanager
def paused_gc(nodes: int = 0) -> Iterator[None]:
    """Pause the collector: graphs and plans are many objects and no garbage.

    Afterwards the objects are moved to the oldest generation, which saves three passes over them.
    Garbage is collected before a pause once the objects created in pauses outnumber the survivors
    of the last collection; earlier before a pause for a graph of many `nodes`. The collector is
    enabled again when the last of the pauses of all threads ends.
    """
    paused = _PausedObjects
    paused.forget_collected()
    is_large = nodes * _OBJECTS_PER_NODE * _LARGE_SHARE > paused.created
    least = _MIN_OBJECTS_AT_LARGE if is_large else MIN_OBJECTS
    is_enabled = paused.enabled if paused.pauses else gc.isenabled()
    if is_enabled and paused.outnumber(least):
        gc.collect()
        paused.forget_collected()
    with paused.lock:
        paused.pauses += 1
        if paused.pauses == 1:
            paused.enabled = gc.isenabled()
            gc.disable()
    start = gc.get_count()[0]
    try:
        yield
    finally:
        with paused.lock:
            paused.pauses -= 1
            if paused.enabled and not paused.pauses:
                paused.created += max(0, gc.get_count()[0] - start)
                _move_to_oldest_generation()
                gc.enable()


def _object_count() -> int:
    """The number of objects, or 0 if a program froze some, because these would also be counted.

    `gc.get_objects` would refer to the tuples that other threads are building, and CPython fails to
    resize a tuple with a second reference (bpo-15108).
    """
    if _PausedObjects.has_frozen():
        return 0
    gc.freeze()
    count = gc.get_freeze_count()
    gc.unfreeze()
    return count


def _move_to_oldest_generation() -> None:
    """Move all objects to the oldest generation, unless a program froze some of them.

    Takes constant time. A free-threaded build has one generation, and would pass over all objects.
    """
    if not _IS_FREE_THREADED and not _PausedObjects.has_frozen():
        gc.freeze()
        gc.unfreeze()
