from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from cfgraph.ir import gc_pause
from cfgraph.ir.gc_pause import MIN_OBJECTS, STARTUP_OBJECTS, paused_gc
from cfgraph.ir.graph import Graph


class Thing:
    pass


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """Objects as a process has them that froze none; conftest.py freezes modules and tests."""
    gc.unfreeze()
    gc_pause._PausedObjects.frozen = False
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_what_is_built_meanwhile_is_not_gone_over_and_counts_as_old() -> None:
    with paused_gc():
        before = gc.get_stats()
        things = [Thing() for _ in range(5000)]
        assert gc.get_stats() == before
    # all of the oldest generation are a million objects
    young = {id(item) for generation in (0, 1) for item in gc.get_objects(generation)}
    assert gc.isenabled()
    assert all(map(gc.is_tracked, things))
    assert not young & {id(thing) for thing in things}


def test_garbage_made_meanwhile_is_collected_later() -> None:
    with paused_gc():
        thing = Thing()
        thing.__dict__["itself"] = thing
        del thing
    assert gc.collect() > 0


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_frozen")
def test_what_was_dropped_is_let_go_of_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_pause._PausedObjects, "survivors", 0)
    alive = weakref.WeakSet[Thing]()
    for _ in range(3 + 2 * (MIN_OBJECTS + len(gc.get_objects())) // 100_000):
        with paused_gc():
            things = [Thing() for _ in range(100_000)]
            things[0].__dict__["all"] = things
            alive.add(things[0])
        del things
    assert len(alive) < 3 + (MIN_OBJECTS + len(gc.get_objects())) // 100_000


@pytest.mark.parametrize(("nodes", "collections"), [(500, 0), (5500, 1)])
def test_garbage_is_collected_before_a_pause_for_a_large_graph(
    monkeypatch: pytest.MonkeyPatch, nodes: int, collections: int
) -> None:
    gc_pause._PausedObjects.forget_collected()
    monkeypatch.setattr(gc_pause._PausedObjects, "created", 200_000)
    monkeypatch.setattr(gc_pause._PausedObjects, "survivors", 0)
    before = gc.get_stats()[2]["collections"]
    with paused_gc(nodes):
        assert gc.get_stats()[2]["collections"] == before + collections


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with pytest.raises(ValueError, match="x"), paused_gc():
            raise ValueError("x")
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.usefixtures("nothing_frozen")
def test_objects_are_counted_without_references_to_those_of_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc, "get_objects", None)
    assert gc_pause._object_count() > 1000
    assert gc.isenabled()
    assert not gc.get_freeze_count()


def test_only_the_objects_of_large_graphs_are_not_gone_over() -> None:
    graph = Graph()
    with graph.paused_gc():
        assert gc.isenabled()
    for number in range(1000):
        graph.add("NoOp", name=f"n{number}")
    with graph.paused_gc():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collection_resets_the_count_of_objects() -> None:
    with paused_gc():
        things = [Thing() for _ in range(5000)]
    assert gc_pause._PausedObjects.created >= len(things)
    gc.collect()
    with paused_gc():
        pass
    assert gc_pause._PausedObjects.created < len(things)


def test_a_large_graph_that_is_gone_does_not_delay_later_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # they are counted, but not gone over
    monkeypatch.setattr(gc_pause._PausedObjects, "has_frozen", lambda: False)
    things = [Thing() for _ in range(200_000)]
    with_things = survivors()
    things.clear()
    # threads of libraries may make objects meanwhile
    assert survivors() < with_things - 150_000


def survivors() -> int:
    """The survivors of a collection, as a pause that is due counts them."""
    gc.collect()
    gc_pause._PausedObjects.forget_collected()
    gc_pause._PausedObjects.outnumber(least=-1)
    assert gc_pause._PausedObjects.survivors is not None
    gc.freeze()
    return gc_pause._PausedObjects.survivors


def test_a_pause_after_a_collection_takes_no_pass_over_all_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc_pause, "_object_count", None)
    gc.collect()
    with paused_gc():
        pass


def test_frozen_objects_are_counted_once_and_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    thing, counts = Thing(), list[int]()
    gc.collect()
    gc.freeze()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(5000) or 5000)
    for _ in range(3):
        with paused_gc():
            pass
    assert counts == [5000]
    assert not any(item is thing for item in gc.get_objects())


def test_the_collector_of_the_command_starts_late_and_goes_on_as_usual() -> None:
    script = (
        "import gc\n"
        "usual = gc.get_threshold()\n"
        "import cfgraph.__main__\n"
        "print(gc.get_threshold()[0])\n"
        f"objects = [[] for _ in range({STARTUP_OBJECTS})]\n"
        "print(gc.get_threshold() == usual, gc.callbacks)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{STARTUP_OBJECTS}\nTrue []\n"
