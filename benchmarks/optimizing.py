"""Optimized graphs in TensorFlow: time of a run and nodes left, beside TensorFlow's Grappler.

    python -m benchmarks optimize --models PATH

Each recorded graph is lowered and pruned to what its last run needs. TensorFlow runs this graph,
the one that `optimize` made of it, and the one that Grappler made of it, with its own rewrites off,
and with one thread. The times are processor time, taken in turn, of which the least counts. Without
`--models`, a sample of the recorded sessions of fixtures/ is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

from benchmarks.measurement import Row
from benchmarks.models import ROOT, Recordings

SESSIONS = ROOT / "fixtures" / "conformance" / "tensorflow.zip"
# one session of so many is measured
SAMPLE = 60
ROUNDS = 5
BUDGET = 0.05
_MOST_RUNS = 2000
Run = Callable[[], object]


@dataclass
class Candidate:
    """A graph to run, as bytes, and what a run fetches."""

    name: str
    baseline: bytes
    optimized: bytes
    nodes: int
    nodes_left: int
    fetches: list[str]
    feeds: dict[str, Any]
    inits: list[list[str]]
    handles: list[str]
    variables: Mapping[tuple[str, str], Any]


def measure(tf: ModuleType | None, *, tiny: bool, path: Path | None = None) -> Iterator[Row]:
    """Each graph, and the geometric means of all."""
    totals: dict[str, list[float]] = {}
    for candidate in _candidates(path, tiny=tiny):
        name, left = candidate.name, candidate.nodes_left
        yield Row(f"{name}, nodes, original", left, "nodes", candidate.nodes)
        if tf is None:
            continue
        try:
            yield from _rows(tf, candidate, totals, tiny=tiny)
        except Exception as error:  # a graph that TensorFlow cannot run must not end the others
            text = str(error).splitlines()[0][:200] if str(error) else ""
            print(f"{candidate.name}: {type(error).__name__}: {text}", file=sys.stderr)
    for what, goal in (
        ("a run in TensorFlow, optimized over original", 1.0),
        ("a run in TensorFlow, Grappler's over original", None),
        ("a run in TensorFlow, optimized and then Grappler's over original", None),
        ("nodes, optimized over original", None),
        ("nodes, Grappler's over original", None),
        ("nodes, optimized and then Grappler's over original", None),
    ):
        ratios = totals.get(what, [])
        if ratios:
            mean = exp(sum(map(log, ratios)) / len(ratios))
            yield Row(f"{what}, geometric mean of {len(ratios)}", mean, "x", 1, goal)


@dataclass(frozen=True)
class Section:
    """The section `optimize` on recordings in a folder or an archive."""

    path: Path

    def measure(self, tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
        """The rows of these recordings."""
        return measure(tf, tiny=tiny, path=self.path)


def _candidates(path: Path | None, *, tiny: bool) -> Iterator[Candidate]:
    """The recorded graphs, lowered, and optimized."""
    recordings = Recordings(path or SESSIONS)
    cases = recordings.cases()
    if path is None:
        runnable = [case for case in cases if _is_measured(case)]
        cases = runnable[:: SAMPLE * 10 if tiny else SAMPLE]
    for case in cases:
        yield _candidate(recordings, case, is_session=path is None)


def _is_measured(case: dict[str, Any]) -> bool:
    """True for a session of one successful run that fetches something."""
    if case["kind"] != "session" or {"host", "random"} & {*case["tags"]}:
        return False
    (run, *more) = case["runs"]
    return not more and not run.get("error") and all(":" in name for name in run["fetches"])


def _candidate(recordings: Recordings, case: dict[str, Any], *, is_session: bool) -> Candidate:
    import cfgraph

    state = None
    runs = case["runs"]
    if is_session:
        graph = cfgraph.loads(recordings.read(f"graphs/{runs[0]['graph']}.pb"))
    elif "saved" in case:
        folder = recordings.saved(case["saved"])
        graph = cfgraph.load(folder)
        if Path(folder, "variables", "variables.index").exists():
            state = cfgraph.restore(folder)
    else:
        graph = cfgraph.loads(recordings.read(f"graphs/{case['graph']}"))
    keys = {name: key + ".npy" if is_session else key for name, key in runs[-1]["feeds"].items()}
    feeds = {name: recordings.array(key) for name, key in keys.items()}
    inits = [run["targets"] for run in runs[:-1] if run.get("init")]
    names = [*runs[-1]["fetches"], *(name for targets in inits for name in targets)]
    cfgraph.lower(graph)
    cfgraph.optimize(graph, only=["prune"], fetches=names, feeds=feeds)
    baseline, nodes = cfgraph.dumps(graph), len(graph)
    cfgraph.optimize(graph, fetches=names, feeds=feeds)
    return Candidate(
        case["id"],
        baseline,
        cfgraph.dumps(graph),
        nodes,
        len(graph),
        list(runs[-1]["fetches"]),
        feeds,
        inits,
        list(case.get("handles") or ()),
        {} if state is None else dict(state.variables()),
    )


def _rows(
    tf: ModuleType, candidate: Candidate, totals: dict[str, list[float]], *, tiny: bool
) -> Iterator[Row]:
    grappler = _grappled(tf, candidate, candidate.baseline)
    both = _grappled(tf, candidate, candidate.optimized)
    graphs = [candidate.baseline, candidate.optimized, grappler[0], both[0]]
    runs = [_run_of(tf, candidate, data) for data in graphs]
    original, ours, theirs, combined = _times(runs, rounds=2 if tiny else ROUNDS)
    time, left = "a run in TensorFlow", "nodes"
    for what, ratio in (
        (f"{time}, optimized over original", ours / original),
        (f"{time}, Grappler's over original", theirs / original),
        (f"{time}, optimized and then Grappler's over original", combined / original),
        (f"{left}, optimized over original", candidate.nodes_left / candidate.nodes),
        (f"{left}, Grappler's over original", grappler[1] / candidate.nodes),
        (f"{left}, optimized and then Grappler's over original", both[1] / candidate.nodes),
    ):
        totals.setdefault(what, []).append(ratio)
    name = candidate.name
    yield Row(f"{name}, a run in TensorFlow, original", ours * 1e3, "ms", original * 1e3)
    yield Row(f"{name}, a run in TensorFlow, Grappler's", ours * 1e3, "ms", theirs * 1e3)
    yield Row(f"{name}, nodes, Grappler's", candidate.nodes_left, "nodes", grappler[1])


def _config(tf: ModuleType, *, rewrites: bool) -> Any:
    v1 = tf.compat.v1
    config = v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"CPU": 1}
    )
    config.allow_soft_placement = True
    config.graph_options.rewrite_options.disable_meta_optimizer = not rewrites
    config.graph_options.rewrite_options.min_graph_nodes = -1
    return config


def _grappled(tf: ModuleType, candidate: Candidate, data: bytes) -> tuple[bytes, int]:
    """The graph that Grappler makes of one, and its number of nodes."""
    from tensorflow.python.grappler import tf_optimizer

    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        definition = v1.GraphDef.FromString(data)
        tf.import_graph_def(definition, name="")
        targets = [name for names in candidate.inits for name in names]
        for name in (*candidate.fetches, *targets, *candidate.feeds):
            node = graph.get_operation_by_name(name.partition(":")[0])
            graph.add_to_collection("train_op", node)
        exported = v1.train.export_meta_graph(graph=graph, graph_def=graph.as_graph_def())
    config = _config(tf, rewrites=True)
    made = tf_optimizer.OptimizeGraph(config, exported)
    return made.SerializeToString(), len(made.node)


def _run_of(tf: ModuleType, candidate: Candidate, data: bytes) -> Run:
    """A function that runs a graph as it is."""
    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        definition = v1.GraphDef.FromString(data)
        handles = {
            name: v1.Variable(candidate.feeds[name], use_resource=True)
            for name in candidate.handles
        }
        names = {node.name for node in definition.node}
        inputs = {
            name: variable.handle
            for name, variable in handles.items()
            if name.partition(":")[0] in names
        }
        tf.import_graph_def(definition, input_map=inputs, name="")
        session = v1.Session(graph=graph, config=_config(tf, rewrites=False))
        if handles:
            session.run(v1.variables_initializer(list(handles.values())))
        _restore(tf, graph, session, candidate.variables)
    for targets in candidate.inits:
        session.run([graph.get_operation_by_name(name) for name in targets])
    fed = [name for name in candidate.feeds if name not in handles]
    values = [candidate.feeds[name] for name in fed]
    call = session.make_callable(candidate.fetches, feed_list=fed)
    return lambda: call(*values)


def _restore(
    tf: ModuleType, graph: Any, session: Any, variables: Mapping[tuple[str, str], Any]
) -> None:
    """Give the variables of a graph their values."""
    by_name = {name: variable.value for (_, name), variable in variables.items()}
    for node in list(graph.get_operations()):
        if node.type == "VarHandleOp":
            name = node.get_attr("shared_name").decode() or node.name
            if name in by_name:
                value = tf.compat.v1.placeholder(node.get_attr("dtype"))
                assign = tf.raw_ops.AssignVariableOp(resource=node.outputs[0], value=value)
                session.run(assign, {value: by_name[name]})


def _times(runs: list[Run], rounds: int) -> list[float]:
    """The least processor seconds of each run; all are measured in turn."""
    counts, least = [], [float("inf")] * len(runs)
    for run in runs:
        run()
        start = process_time()
        run()
        took = max(process_time() - start, 1e-5)
        counts.append(max(1, min(_MOST_RUNS, int(BUDGET / took))))
    for _ in range(rounds):
        for place, (run, count) in enumerate(zip(runs, counts, strict=True)):
            start = process_time()
            for _ in range(count):
                run()
            least[place] = min(least[place], (process_time() - start) / count)
    return least
