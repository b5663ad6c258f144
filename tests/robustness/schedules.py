"""Runs of random graphs under random schedules and placements: they agree, or race by `check`.

`python -m tests.robustness.schedules --seed S --count N --log FILE` continues where the log ends.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.verify import verify
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from tests.analysis.random_graphs import RECIPES, random_graph
from tests.passes.random_programs import RandomProgram, random_loop_program, random_program

# findings about answers that depend on the schedule
RACES = frozenset({"CFG220", "CFG222", "CFG225"})
# of a program: one as it is, first in first out, then several placements, each under many schedules
_PLACEMENTS = 5
_RUNS_PER_PLACEMENT = 12
# on several devices, a missing value may be one that a Recv waits for
_STANDS_STILL = {"CFG708": "CFG707"}
RUNS_PER_UNIT = 1 + _PLACEMENTS * _RUNS_PER_PLACEMENT
# the loops of programs end earlier
_MAX_ITERATIONS = 12
_CHUNK = 50
_DEVICES = ("cpu:0", "cpu:0-1", "cpu:0-2", "cpu:0-4")


@dataclass(frozen=True)
class Program:
    """A graph with inputs; with `init`, its variables are set before each run."""

    graph: Graph
    feeds: Mapping[str, Any]
    fetches: tuple[str, ...]
    targets: tuple[str, ...] = ()
    has_state: bool = False


@dataclass(frozen=True)
class Unit:
    """The answers of one program under several placements and schedules."""

    name: str
    runs: int
    answers: int
    races: frozenset[str]

    @property
    def is_explained(self) -> bool:
        return self.answers == 1 or bool(self.races)


def run_unit(seed: int, number: int) -> Unit:
    """Run the program of a seed and number, under `RUNS_PER_UNIT` schedules and placements."""
    rng = random.Random(f"schedules:{seed}:{number}")
    kind = rng.choice(list(_PROGRAMS))
    program = _PROGRAMS[kind](rng)
    report = cfgraph.check(program.graph)
    races = RACES & {finding.code for finding in report.findings}
    answers = {_answer(cfgraph.Session(program.graph), program)}
    for _ in range(_PLACEMENTS):
        placed, schedule_seed = _placed(program.graph, rng), rng.randrange(1 << 30)
        session = cfgraph.Session(placed, schedule="random", schedule_seed=schedule_seed)
        # each run of a session draws another schedule
        answers |= {_answer(session, program) for _ in range(_RUNS_PER_PLACEMENT)}
    return Unit(f"{seed}:{number} {kind}", RUNS_PER_UNIT, len(answers), frozenset(races))


def _placed(graph: Graph, rng: random.Random) -> Graph:
    """A copy of the graph that is placed at random and partitioned, or on one device."""
    graph = copy_graph(graph)
    devices, seed = rng.choice(_DEVICES), rng.randrange(1 << 30)
    if devices != _DEVICES[0]:
        cfgraph.place(graph, devices=devices, seed=seed)
        cfgraph.partition(graph)
    return graph


def _answer(session: cfgraph.Session, program: Program) -> tuple[Any, ...]:
    """The bits of all fetched values, or the code of the error."""
    try:
        if program.has_state:
            session.run(targets=["init"])
        values = session.run(
            program.fetches,
            program.feeds,
            program.targets,
            allow_dead=True,
            max_iterations=_MAX_ITERATIONS,
        )
        if program.has_state:
            values += session.run(["memory:0"])
    except CfgraphError as error:
        return type(error).__name__, _STANDS_STILL.get(error.code or "", error.code)
    return tuple(
        None if value is None else (np.asarray(value).dtype.str, np.asarray(value).tobytes())
        for value in values
    )


def _random_graph(kind: str) -> Callable[[random.Random], Program]:
    def make(rng: random.Random) -> Program:
        generated = random_graph(rng.randrange(1 << 30), kind)
        graph = generated.graph
        found = frames(graph)
        fetches = tuple(
            tensor.name
            for node in graph
            if found.of_outputs[node] is found.root
            for tensor in node.outputs
        )
        return Program(graph, generated.feeds(rng), fetches)

    return make


def _stateful(rng: random.Random) -> Program:
    return _with_state(random_program(rng.randrange(1 << 30)))


def _with_state(program: RandomProgram) -> Program:
    return Program(
        program.graph, program.feeds, tuple(program.fetches), tuple(program.targets), True
    )


def _unordered(rng: random.Random) -> Program:
    """A program with a variable whose nodes are lowered and have lost a control edge."""
    program = _stateful(rng)
    cfgraph.lower(program.graph)
    _remove_control(program.graph, list(program.graph), rng)
    return program


def _unordered_loop(rng: random.Random) -> Program:
    """A loop of several iterations that is lowered and has lost a control edge."""
    program = _with_state(random_loop_program(rng.randrange(1 << 30)))
    cfgraph.lower(program.graph)
    found = frames(program.graph)
    inner = [node for node in program.graph if found.of[node] is not found.root]
    _remove_control(program.graph, inner, rng)
    return program


def _remove_control(graph: Graph, nodes: list[Node], rng: random.Random) -> bool:
    """Remove one control edge at random, but none that alone puts a node into its loop."""
    edges = [(node, before) for node in nodes for before in node.controls]
    rng.shuffle(edges)
    for node, before in edges:
        graph.remove_control(node, before)
        if all(finding.level != "error" for finding in verify(graph)):
            return True
        graph.add_control(node, before)
    return False


_PROGRAMS: dict[str, Callable[[random.Random], Program]] = {
    **{kind: _random_graph(kind) for kind in RECIPES if kind != "dense"},
    "stateful": _stateful,
    "stateful again": _stateful,
    "unordered": _unordered,
    "unordered loop": _unordered_loop,
}


def main() -> int:
    """Run the units that a log does not have yet; return 1 for answers without an explanation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=6100, help="number of runs")
    parser.add_argument("--log", type=Path, help="append to this file, and continue from it")
    options = parser.parse_args()
    start, failed = _logged_end(options.log, options.seed), 0
    while start * RUNS_PER_UNIT < options.count:
        began, stop = time.process_time(), start + _CHUNK
        units = [run_unit(options.seed, number) for number in range(start, stop)]
        bad = [unit.name for unit in units if not unit.is_explained]
        failed += len(bad)
        record = {
            "seed": options.seed,
            "start": start,
            "stop": stop,
            "runs": sum(unit.runs for unit in units),
            "named_races": sum(bool(unit.races) for unit in units),
            "races_with_several_answers": sum(unit.answers > 1 for unit in units),
            "unexplained": bad,
            "cpu_seconds": round(time.process_time() - began, 1),
        }
        if options.log:
            with options.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        if bad or not options.log:
            print(json.dumps(record), flush=True)
        start = stop
    return 1 if failed else 0


def _logged_end(path: Path | None, seed: int) -> int:
    if path is None or not path.exists():
        return 0
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return max((record["stop"] for record in records if record["seed"] == seed), default=0)


if __name__ == "__main__":
    sys.exit(main())
