"""Rooms that a value enters on its way through a call, and returns to rooms that it had left."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.walks import WALKS, Walk

# rooms and returns
MOST = {
    "outcome_of_run": (2, 0),
    "feeds_of_run": (4, 1),
    "fetches_of_run": (5, 1),
    "devices_of_partition": (4, 6),
    "ys_of_gradients": (3, 3),
    "while_by_xla": (5, 5),
}


@pytest.mark.parametrize("name", MOST)
def test_a_value_enters_few_rooms_and_seldom_returns(name: str) -> None:
    if name == "while_by_xla" and find_spec("jax") is None:
        pytest.skip("the extra `xla` is not installed")
    walk = WALKS[name]()
    rooms, returns = MOST[name]
    assert len(walk.rooms) <= rooms, walk
    assert walk.returns <= returns, walk


def test_a_return_to_a_room_is_counted() -> None:
    walk = Walk()
    for room in ("cli", "cli", "passes", "cli", "ir", "ir", "passes"):
        walk.enter(room)
    assert (walk.rooms, walk.calls, walk.returns) == (["cli", "passes", "ir"], 7, 2)
