"""Positions of running work, read from another thread and in signal handlers."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest

import cfgraph
from cfgraph.runtime import token_driver as driver
from cfgraph.stack_position import (
    LOCATORS,
    StackPosition,
    frame_variables,
    main_thread_position,
    pass_position,
    stack_position,
    thread_frame,
)


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_another_thread_reads_the_iteration_of_a_run(engine: str, counter: Path) -> None:
    # a shell starts its background jobs with this signal ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    positions: list[StackPosition] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            position = main_thread_position()
            if position is not None:
                positions.append(position)
                if position.loops and position.loops[0][1] > 1000 and len(positions) > 5:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                    return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        gc.disable()  # the interrupt is lost in a callback of a collection, such as that of jax
        with (
            cfgraph.limited(timeout=60),
            cfgraph.Session(cfgraph.load(counter), engine=engine) as session,
            pytest.raises(KeyboardInterrupt),
        ):
            session.run("count", {"n": 2_000_000_000})
    finally:
        ended.set()
        thread.join()
        gc.enable()
    loops = [position.loops for position in positions if position.loops]
    names, indices = zip(*(pairs[0] for pairs in loops), strict=True)
    assert set(names) == {"while/while_context"}
    assert list(indices) == sorted(indices)
    assert indices[-1] > 1000
    assert {position.activity for position in positions} == {"run"}
    assert {position.node for position in positions} <= {None, *(n.name for n in session.graph)}


def test_a_run_is_at_its_next_token_between_two_batches(
    counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions: list[StackPosition | None] = []

    def monotonic() -> float:
        positions.append(stack_position(sys._getframe()))
        return time.monotonic()

    clock = SimpleNamespace(monotonic=monotonic, perf_counter_ns=time.perf_counter_ns)
    monkeypatch.setattr(driver, "time", clock)
    with cfgraph.limited(timeout=60):
        cfgraph.Session(cfgraph.load(counter), engine="tokens").run("count", {"n": 100})
    # the last batch leaves nothing ready, and the next one finds that
    texts = [str(position) for position in positions]
    assert texts[0] == "in run, at node 'while/Identity', frame '/while/while_context[1]'"
    assert texts[-2:] == ["in run, frame '/'"] * 2
    assert all("while_context[" in text for text in texts[:-2])


def test_a_pass_is_at_the_node_of_its_innermost_loop(
    counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = cfgraph.load(counter)

    def inner(node: cfgraph.Node) -> StackPosition | None:
        return stack_position(sys._getframe())

    def rewrite(graph: cfgraph.Graph) -> list[StackPosition | None]:
        return [inner(node) for node in graph]

    monkeypatch.setitem(LOCATORS, rewrite.__code__, pass_position)
    positions = rewrite(graph)
    assert [str(position) for position in positions] == [
        f"in rewrite, at node '{node.name}'" for node in graph
    ]
    assert {position.nodes for position in positions if position} == {len(graph)}
    assert stack_position(sys._getframe()) is None


def test_no_collection_begins_while_the_frames_of_threads_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[bool] = []
    frame = sys._getframe()

    def frames() -> dict[int, FrameType]:
        found.append(gc.isenabled())
        return {7: frame}

    monkeypatch.setattr(sys, "_current_frames", frames)
    assert gc.isenabled()
    assert thread_frame(7) is frame
    assert thread_frame(8) is None
    assert (found, gc.isenabled()) == ([False, False], True)


def test_a_locator_that_fails_yields_to_the_outer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(frames: object) -> StackPosition:
        raise KeyError

    def inner() -> StackPosition | None:
        return stack_position(sys._getframe())

    def outer() -> StackPosition | None:
        return inner()

    monkeypatch.setitem(LOCATORS, inner.__code__, fail)
    monkeypatch.setitem(LOCATORS, outer.__code__, lambda frames: StackPosition("outer"))
    assert inner() is None
    assert outer() == StackPosition("outer")


def test_a_frame_does_not_retain_the_values_that_were_read() -> None:
    class Value: ...

    def function() -> int:
        value = Value()
        assert frame_variables(sys._getframe())["value"] is value
        return sys.getrefcount(value)

    def unread() -> int:
        value = Value()
        return sys.getrefcount(value)

    assert function() == unread()
