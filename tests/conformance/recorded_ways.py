"""Recorded cases in ways of `agree/ways.py`: passes before each run or gradient, and its engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cfgraph import dumps
from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import node_name
from cfgraph.ir.traversal import ancestors
from cfgraph.runtime.cost_model import CostModel
from tests.backends.gpu.stand_in import library
from tests.backends.workers.uneven_links import UnevenThreads
from tests.conformance import recorded, recorded_gradients
from tests.conformance.agree.ways import GRADIENT, Requirements, Way, apply
from tests.passes.tf_sessions import feeds_of, session_of


def difference(case: dict[str, Any], way: Way, **options: Any) -> str:
    """The difference from the record in a way, or ``."""
    seed = sum(case["id"].encode())
    name, _, argument = way.engine.partition("=")
    if name == "random":
        seed += int(argument or 0)
    options = {**engine_options(name, argument, seed), **options}
    if name == "tensorflow":
        return _difference_in_tensorflow(case, way.stages, seed)
    if case["kind"] == "session":
        return recorded.disagreement(case, _for_each_run(case, way.stages, seed), **options)
    return _gradient_difference(case, way, seed, options)


def engine_options(name: str, argument: str, seed: int) -> dict[str, Any]:
    """The options of a session that has an engine, or a schedule, or devices."""
    match name:
        case "auto":
            return {}
        case "random":
            return {"schedule": "random", "schedule_seed": seed}
        case "jit" | "regions":
            return {"jit": argument, "regions": name == "regions"}
        case "fifo":
            return {"schedule": "fifo"}
        case "simulated":
            return {"costs": CostModel()}
        case "devices":
            return {"devices": argument}
        case "memory":
            return {"memory": {}}
        case "card":
            return {"gpu": GpuContext(library)}
        case "one-card":
            options = {"devices": "gpu:0", "soft_placement": True}
            return options if argument else {**options, "gpu": GpuContext(library)}
        case "workers":
            # links that delay and split what they carry
            workers = UnevenThreads.seeded(int(argument), str(seed))
            return {"devices": "cpu:0-3", "workers": workers}
        case _:
            return {"engine": name}


def _for_each_run(
    case: dict[str, Any], stages: tuple[str, ...], seed: int
) -> Callable[[Graph], Graph]:
    """The stages for what each run fetches and feeds."""
    runs = iter(case["runs"])

    def prepare(graph: Graph) -> Graph:
        run = next(runs)
        for stage in stages:
            if not _is_skipped(graph, stage, run):
                apply(graph, stage, _requirements([run], seed))
        return graph

    return prepare


def _requirements(runs: list[dict[str, Any]], seed: int) -> Requirements:
    names = dict.fromkeys(name for run in runs for name in run["fetches"])
    return Requirements(
        tuple(name for name in names if ":" in name),
        tuple(name for name in names if ":" not in name),
        tuple(dict.fromkeys(name for run in runs for name in run["feeds"])),
        seed,
    )


def _is_skipped(graph: Graph, stage: str, run: dict[str, Any]) -> bool:
    """True where a pass keeps no error of a run, or folds or drops what the run feeds."""
    if stage == "freeze":
        fed = [graph[node_name(name)] for name in run["feeds"]]
        return bool(run.get("error")) or not all(map(is_input, fed))
    if stage == "extract":
        # it drops an input that no fetch needs, though the run feeds it
        needed = ancestors(graph, [graph[node_name(name)] for name in run["fetches"]])
        return any(graph[node_name(name)] not in needed for name in run["feeds"])
    return stage.startswith("functionalize") and bool(run.get("error"))


def _difference_in_tensorflow(case: dict[str, Any], stages: tuple[str, ...], seed: int) -> str:
    """The difference where TensorFlow runs what passes made of the last graph, if they changed it.

    Its runs are in one session, those of the graphs before it without a comparison.
    """
    last = case["runs"][-1]["graph"]
    graph = recorded.graph(last)
    before = dumps(graph)
    runs = [run for run in case["runs"] if all(node_name(n) in graph for n in run["fetches"])]
    try:
        for stage in stages:
            apply(graph, stage, _requirements(runs, seed))
    except CfgraphError as error:
        return "" if any(run.get("error") for run in runs) else str(error)
    if dumps(graph) == before:
        return ""
    with session_of(graph) as session:
        for run in runs:
            try:
                values = session.run(run["fetches"], feeds_of(run))
            except Exception as error:  # of one of TensorFlow's many types
                if run.get("error"):
                    continue
                return str(error)
            pairs = zip(run["fetches"], values, strict=True)
            named = {name: value for name, value in pairs if run["graph"] == last and ":" in name}
            is_random = "random" in case["tags"]
            for name, value in named.items():
                want = recorded.array(run["expected"][name])
                if failure := recorded.compare(value, want, shapes_only=is_random, loosen=10):
                    return f"{name}: {failure}"
    return ""


def _gradient_difference(case: dict[str, Any], way: Way, seed: int, options: dict[str, Any]) -> str:
    """The difference of a gradient, which is the first stage of a way that does not name it."""
    stages = way.stages if way.order else (GRADIENT, *way.stages)
    place = next(n for n, stage in enumerate(stages) if stage.startswith(GRADIENT))
    recompute = stages[place].partition("=")[2]
    weights = [item for item in case["grad_ys"] if isinstance(item, str)]
    named = [*case["ys"], *filter(None, case["xs"]), *weights, *case["stop_gradients"]]

    def forward(graph: Graph) -> None:
        for stage in stages[:place]:
            apply(graph, stage, Requirements(tuple(named), (), (), seed))

    def prepare(graph: Graph, names: list[str | None]) -> None:
        wanted = tuple(filter(None, names))
        for stage in stages[place + 1 :]:
            apply(graph, stage, Requirements(wanted, (), tuple(case["feeds"]), seed))

    return recorded_gradients.disagreement(
        case, prepare, int(recompute) if recompute else None, forward, **options
    )
