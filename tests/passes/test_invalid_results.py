"""An invalid graph that a pass makes of a valid one is a bug of the pass, not of the input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import InvalidResult
from tests.passes.golden_file import GoldenFile
from tests.passes.test_golden import FOLDER

GRAPHS = Path(__file__).parents[2] / "fixtures" / "graphs"


def stored(name: str) -> cfgraph.Graph:
    return cfgraph.load(GRAPHS / f"{name}.pb")


def placed() -> cfgraph.Graph:
    graph = stored("counter")
    cfgraph.place(graph, devices="cpu:0-1", seed=1)
    return graph


def nested_loops() -> cfgraph.Graph:
    return GoldenFile.read(FOLDER / "optimize" / "invariants_of_an_inner_loop.graph").graph()


# a valid graph, and a pass that adds nodes to it
PASSES: dict[str, tuple[Callable[[], cfgraph.Graph], Callable[[cfgraph.Graph], Any]]] = {
    "partition": (placed, cfgraph.partition),
    "lower": (partial(stored, "while_functional"), cfgraph.lower),
    "cluster": (partial(stored, "lstm"), cfgraph.cluster),
    "functionalize": (partial(stored, "counter"), cfgraph.functionalize),
    "gradients": (partial(stored, "lstm"), lambda graph: cfgraph.gradients(graph, "loss", "x")),
    "optimize": (nested_loops, cfgraph.optimize),
}


def break_added_nodes(monkeypatch: pytest.MonkeyPatch, broken: cfgraph.Graph) -> None:
    """Give each node that is added to a graph an invalid name."""
    create, numbers = cfgraph.Graph.create, count()

    def create_broken(graph: Any, name: str, op: str, *rest: Any, **options: Any) -> Any:
        name = f"{name}?{next(numbers)}" if graph is broken else name
        return create(graph, name, op, *rest, **options)

    monkeypatch.setattr(cfgraph.Graph, "create", create_broken)


@pytest.mark.parametrize("name", PASSES)
def test_an_invalid_result_names_the_pass_and_the_fault(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, apply = PASSES[name]
    graph = make()
    before = cfgraph.dumps(graph)
    break_added_nodes(monkeypatch, graph)
    with pytest.raises(InvalidResult, match=f"{name} made an invalid graph; this is a bug: CFG102"):
        apply(graph)
    if name != "gradients":
        assert cfgraph.dumps(graph) == before
