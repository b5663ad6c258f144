"""Random nodes draw the same numbers wherever a pass moves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import cfgraph
from cfgraph.compare.sample_point import EvaluationPoint
from cfgraph.ir.library import copy_graph
from tests.passes.drawing_programs import DrawingProgram, drawing_program
from tests.sampled import half

Drawn = list[list[int]]
Pass = Callable[[cfgraph.Graph, Sequence[str]], object]


def partition(graph: cfgraph.Graph, names: Sequence[str]) -> None:
    cfgraph.place(graph, devices="cpu:0-1", seed=3)
    cfgraph.partition(graph)


PASSES: dict[str, Pass] = {
    "lower": lambda graph, names: cfgraph.lower(graph),
    "lower half": lambda graph, names: (
        graph.functions and cfgraph.lower(graph, functions=sorted(graph.functions)[::2])
    ),
    "lower around calls": lambda graph, names: cfgraph.lower(graph, keep_calls=True),
    "functionalize": lambda graph, names: cfgraph.functionalize(graph),
    "functionalize what is fetched": cfgraph.functionalize,
    "optimize": lambda graph, names: cfgraph.optimize(graph, fetches=names),
    "unroll": lambda graph, names: cfgraph.optimize(graph, fetches=names, unroll=8),
    "cluster": lambda graph, names: cfgraph.cluster(graph),
    "cluster regions": lambda graph, names: cfgraph.cluster(graph, regions=True),
    "extract": lambda graph, names: cfgraph.extract(graph, outputs=names),
    "partition": partition,
}
PIPELINES = (
    ["lower", "functionalize"],
    ["lower", "functionalize what is fetched", "lower"],
    ["lower", "functionalize", "lower", "functionalize what is fetched"],
    ["lower", "functionalize", "unroll", "lower"],
    ["lower", "functionalize", "lower", "optimize", "cluster regions"],
    ["lower", "optimize", "functionalize what is fetched"],
    ["lower", "unroll", "functionalize"],
    ["lower", "extract", "cluster"],
    ["lower", "cluster regions"],
    ["lower", "functionalize", "lower", "partition"],
    ["lower around calls", "functionalize", "unroll", "lower", "functionalize"],
    ["lower around calls", "functionalize", "optimize", "lower"],
    ["lower half", "unroll", "lower", "unroll"],
    ["optimize", "lower", "functionalize"],
    ["unroll", "lower", "partition"],
)
ENGINES: tuple[dict[str, Any], ...] = (
    {"engine": "tokens"},
    {"engine": "compiled"},
    {"schedule": "random", "schedule_seed": 3},
    {"devices": "cpu:0-1"},
)


def drawn(program: DrawingProgram, graph: cfgraph.Graph, **options: Any) -> Drawn:
    """The values of two runs, and the variable after each."""
    session = cfgraph.Session(graph, seed=5, **options)
    session.run(targets=["init"])
    values = []
    for _ in range(2):
        values.append(
            [int(x) for x in session.run(program.fetches, program.feeds, program.targets)]
        )
        values.append([int(x) for x in session.run(["memory:0"])])
    return values


def transformed(program: DrawingProgram, pipeline: Sequence[str]) -> cfgraph.Graph:
    """The graph of a program after some passes."""
    graph = copy_graph(program.graph)
    names = [*program.fetches, *(f"^{name}" for name in program.targets), "^init", "memory:0"]
    for name in pipeline:
        PASSES[name](graph, names)
    return graph


def differing(seed: int) -> Iterator[str]:
    """The passes and engines after or by which a program draws other numbers."""
    program = drawing_program(seed)
    expected = drawn(program, program.graph)
    assert expected[0] != expected[2]
    for options in ENGINES:
        if drawn(program, program.graph, **options) != expected:
            yield f"{seed}: {options}"
    for pipeline in PIPELINES:
        if drawn(program, transformed(program, pipeline)) != expected:
            yield f"{seed}: {', '.join(pipeline)}"
    point = EvaluationPoint(program.graph, program.feeds, ["init"], seed=5)
    values = point.run_functional(program.fetches, program.targets)
    if values is not None and values != point.run(program.fetches, targets=program.targets):
        yield f"{seed}: functional"


@pytest.mark.parametrize("seeds", half(range(8)))
def test_no_pass_and_no_engine_changes_what_a_program_draws(seeds: range) -> None:
    assert [found for seed in seeds for found in differing(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(8, 488, 40))
def test_none_changes_what_many_programs_draw(first: int) -> None:
    assert [found for seed in range(first, first + 40) for found in differing(seed)] == []
