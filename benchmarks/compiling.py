"""The share of loops and conditionals of the recorded runs that compile, reasons, and times."""

from __future__ import annotations

import json
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Final

import cfgraph
from benchmarks.coverage import RECORDED
from benchmarks.measurement import Row
from cfgraph.analysis.feeds_and_fetches import fed_tensor, fetched_tensor
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.ir.role import MERGE
from cfgraph.ops.opdef.op import back_edge_of
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.compiled.engine import compile_run
from cfgraph.runtime.engine.plan import Plan, RunSpec
from cfgraph.runtime.preparation.prepare import prepare
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.program import NotCompiled

_TINY: Final = 25


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Each recorded run; a reason counts its loops and conditionals."""
    found = compiled = nodes = 0
    seconds = 0.0
    reasons: Counter[str] = Counter()
    for data, run in list(recorded_runs())[:: _TINY if tiny else 1]:
        try:
            spec, plans = planned(cfgraph.loads(data), run)
        except CfgraphError:
            continue  # not valid on purpose, or with an op that has no kernel
        structures = sum(map(_structures, plans))
        found += structures
        began = time.process_time()
        try:
            compile_run(spec, plans)
        except NotCompiled as error:
            reasons[error.reason] += structures
            continue
        seconds += time.process_time() - began
        compiled += structures
        nodes += sum(len(plan.nodes) for plan in plans)
    name = f"{found} loops and conditionals of recorded runs"
    yield Row(f"{name}: compiled", 100 * compiled / max(found, 1), "%")
    for reason, count in reasons.most_common():
        yield Row(f"on tokens: {reason}", 100 * count / max(found, 1), "%")
    yield Row("generation and compilation", 1e6 * seconds / max(nodes, 1), "µs per node")


def recorded_runs() -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The distinct runs of recorded sessions: a graph, fetches, and feeds."""
    known = set()
    with zipfile.ZipFile(RECORDED) as archive:
        for line in archive.read("cases.jsonl").splitlines():
            for run in json.loads(line).get("runs") or ():
                key = run["graph"], *run["fetches"], *run["feeds"]
                if key not in known:
                    known.add(key)
                    yield archive.read(f"graphs/{run['graph']}.pb"), run


def planned(graph: Graph, run: dict[str, Any]) -> tuple[RunSpec, Sequence[Plan]]:
    """The plans of a run."""
    fetches = tuple(fetched_tensor(graph, name) for name in run["fetches"] if ":" in name)
    targets = tuple(graph[name] for name in run["fetches"] if ":" not in name)
    feeds = tuple(fed_tensor(graph, name) for name in run["feeds"])
    spec = RunSpec(graph, fetches, targets, feeds)
    return prepare(spec, RunConfig(), ClusterRunner())


def _structures(plan: Plan) -> int:
    merges = [known.node for known in plan.nodes.values() if known.op.role is MERGE]
    return len(plan.frames.all) - 1 + sum(back_edge_of(node) is None for node in merges)
