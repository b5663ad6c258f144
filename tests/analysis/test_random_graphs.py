"""Random graphs are valid and run, and the oracle agrees with the executor on them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfgraph.analysis.verify.verify import verify
from cfgraph.ir.graph import Output
from cfgraph.ir.serde import graph_def
from cfgraph.runtime.session import Session
from tests.analysis.assignments import Assignment, Tables
from tests.analysis.executor_run import disagreements, observe_run
from tests.analysis.liveness_oracle import ROOT
from tests.analysis.random_graphs import RECIPES, WITHOUT_LOOPS, RandomGraph, random_graph


def _ran(made: RandomGraph, seed: int, **options: object) -> list[str]:
    names = [node.name for node in made.graph if node.op != "Placeholder"]
    session = Session(made.graph, **options)  # type: ignore[arg-type]
    return disagreements(observe_run(session, (), made.feeds(random.Random(seed)), names))


@pytest.mark.parametrize("kind", RECIPES)
def test_the_graphs_are_valid_and_have_the_drivers_tokens(kind: str) -> None:
    for seed in range(12):
        made = random_graph(seed, kind)
        assert not [item for item in verify(made.graph) if item.level == "error"]
        assert not _ran(made, seed)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**9), st.sampled_from(sorted(RECIPES)))
def test_tokens_do_not_depend_on_the_schedule(seed: int, kind: str) -> None:
    assert not _ran(random_graph(seed, kind), seed, schedule="random", schedule_seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECIPES)
def test_many_graphs_have_the_drivers_tokens(kind: str) -> None:
    for seed in range(100, 400):
        assert not _ran(random_graph(seed, kind), seed)


@pytest.mark.parametrize("kind", WITHOUT_LOOPS)
def test_tables_say_what_the_driver_says(kind: str) -> None:
    for seed in range(4):
        graph = random_graph(seed, kind).graph
        tables = Tables(graph)
        for bit in random.Random(seed).sample(range(len(tables.cases)), 8):
            run = Assignment(seed, tables.cases[bit]).run(graph)
            for node in graph:
                for port in (-1, 0):
                    output = Output(node, port)
                    assert run.live(output, ROOT) == bool(tables.of.get(output, 0) >> bit & 1)


def test_the_same_seed_gives_the_same_graph() -> None:
    one, other = random_graph(7), random_graph(7)
    assert graph_def.graph_to_bytes(one.graph) == graph_def.graph_to_bytes(other.graph)
    assert graph_def.graph_to_bytes(one.graph) != graph_def.graph_to_bytes(random_graph(8).graph)


def test_the_graphs_hold_what_control_flow_there_is() -> None:
    ops = {
        node.op for kind in RECIPES for seed in range(10) for node in random_graph(seed, kind).graph
    }
    assert ops >= {
        "ControlTrigger",
        "Enter",
        "Equal",
        "Exit",
        "LogicalAnd",
        "LogicalNot",
        "LogicalOr",
        "LoopCond",
        "Merge",
        "NextIteration",
        "Switch",
        "_SwitchN",
    }
