"""A partitioned graph sends no more messages than TensorFlow's own partition of the same graph."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.messages import (
    GRAPHS,
    PLACED,
    SEEDS,
    cfgraph_messages,
    messages_in_loops,
    placed,
    tensorflow_messages,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`")


def require_no_more(name: str, seed: int | None, feeds: dict[str, Any], fetches: list[str]) -> None:
    graph = placed(name, seed)
    expected = tensorflow_messages(tf, graph, feeds, fetches)
    actual = cfgraph_messages(graph, fetches)
    assert messages_in_loops(actual) <= messages_in_loops(expected), (
        f"{dict(actual)}, TensorFlow {dict(expected)}"
    )


@pytest.mark.parametrize(("name", "feeds", "fetches"), GRAPHS, ids=lambda value: str(value)[:24])
def test_a_graph_that_requests_devices_sends_no_more_than_tensorflow(
    name: str, feeds: dict[str, Any], fetches: list[str]
) -> None:
    require_no_more(name, None, feeds, fetches)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("name", "feeds", "fetches"), PLACED, ids=lambda value: str(value)[:24])
def test_a_randomly_placed_graph_sends_no_more_per_iteration_than_tensorflow(
    name: str, feeds: dict[str, Any], fetches: list[str], seed: int
) -> None:
    require_no_more(name, seed, feeds, fetches)
