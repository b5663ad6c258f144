"""The culprit of a wrong mode: what TensorFlow made of a graph, and which of its parts did it.

The executor runs another graph than the one of the request: Grappler rewrote it, and XLA formed
clusters. cfgraph reads that graph, and its analysis of deadness applies to it as well.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cfgraph.analysis.check import check
from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.findings import Finding
from cfgraph.comparison.differences import RunDiff
from cfgraph.errors import CfgraphError
from cfgraph.integrations.tensorflow.mode_oracle import ModeOracle, difference_kind
from cfgraph.integrations.tensorflow.mode_runs import run_message
from cfgraph.integrations.tensorflow.modes import MODES, Mode
from cfgraph.integrations.tensorflow.processes import ModePool
from cfgraph.ir.files import loads
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import role_of
from cfgraph.processes.messages import ProcessMessage

# rewrites of Grappler, as tf.config.optimizer.set_experimental_options names them
OPTIMIZERS: Final = (
    "constant_folding",
    "arithmetic_optimization",
    "shape_optimization",
    "remapping",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
    "common_subgraph_elimination",
)
_CLUSTER: Final = "_XlaCluster"
_DEBUG_FLAG: Final = " --tf_xla_clustering_debug"
_SIDES: Final = re.compile("(live|dead) in A, (live|dead) in B")
AGREES: Final = "agrees with cfgraph"
_DUMPS: Final = "mark_for_compilation_annotated*.pbtxt"


@dataclass(frozen=True, slots=True)
class FormedCluster:
    """A cluster that XLA formed: its nodes, inputs that may be dead with conditions, and roles."""

    name: str
    members: tuple[str, ...]
    may_be_dead: Mapping[str, str]
    merges: tuple[str, ...]
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Culprit:
    """Facts about the graph that a mode runs.

    `repairing` are the optimizers without which the mode is right, `conditions` the liveness of the
    results, `findings` those of `check` in the graph that TensorFlow runs, and `remarks` lines that
    TensorFlow prints about ops of the graph.
    """

    graph: Graph | None = None
    repairing: tuple[str, ...] = ()
    conditions: Mapping[str, str] | None = None
    findings: tuple[Finding, ...] = ()
    clusters: tuple[FormedCluster, ...] = ()
    remarks: tuple[str, ...] = ()


def find_culprit(oracle: ModeOracle, graph: Graph, delta: RunDiff) -> Culprit:
    """Return what TensorFlow made of a graph in which a mode differs."""
    message = run_message(graph, delta.fetches, delta.inputs, delta.targets)
    rewritten, log = rewritten_graph(oracle.pool, oracle.mode, message)
    bodies = (function.definition.nodes for function in graph.functions.values())
    ops = graph.ops.union(node.op for body in bodies for node in body)
    remarks = tuple(dict.fromkeys(line for line in log if any(op in line for op in ops)))
    repairing = tuple(repairing_optimizers(oracle, graph)) if oracle.mode.rewrites else ()
    if rewritten is None:
        return Culprit(repairing=repairing, remarks=remarks)
    try:
        analysis = deadness(rewritten)
        findings = _causes(check(rewritten).findings)
    except CfgraphError:
        check_deadline()
        return Culprit(rewritten, repairing, remarks=remarks)
    results = [node for node in rewritten if node.op == "_Retval"]
    conditions = {node.name: analysis.describe(analysis.runs(node)) for node in results}
    clusters = tuple(formed_clusters(rewritten, analysis))
    return Culprit(rewritten, repairing, conditions, findings, clusters, remarks)


def _causes(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that may explain a wrong value, those on liveness first."""
    causes = (item for item in findings if item.level != "note" and item.code[:4] != "CFG4")
    return tuple(sorted(causes, key=lambda item: item.code[:4] != "CFG2"))


def rewritten_graph(
    pool: ModePool, mode: Mode, message: ProcessMessage
) -> tuple[Graph | None, tuple[str, ...]]:
    """Return the graph that the executor runs, with a mark per node of a cluster, and the log.

    A mode that compiles or converts the whole function runs no graph.
    """
    collect = mode.has_dead_values
    request = replace(message, header={**message.header, "collect": collect})
    with tempfile.TemporaryDirectory(prefix="cfgraph-culprit-") as folder:
        environment = {"TF_DUMP_GRAPH_PREFIX": folder}
        if mode.flags:
            environment["TF_XLA_FLAGS"] = mode.flags + _DEBUG_FLAG
        answer = pool.request(mode, request, environment)
        dumps = sorted(Path(folder).glob(_DUMPS), key=lambda path: path.stat().st_size)
        data = dumps[-1].read_bytes() if dumps else b""
    if collect and not data and answer.message is not None:
        data = answer.message.arrays["rewritten"].tobytes()
    try:
        return loads(data) if data else None, answer.log
    except CfgraphError:
        return None, answer.log


def repairing_optimizers(oracle: ModeOracle, graph: Graph) -> Iterator[str]:
    """Yield the optimizers of Grappler without which a mode does not differ as before."""
    for name in OPTIMIZERS:
        check_deadline()
        single = replace(oracle, without=(name,))
        try:
            delta = single.compare(graph)
        except CfgraphError:
            continue
        if difference_kind(delta, oracle.mode) != oracle.kind:
            yield name


def formed_clusters(graph: Graph, analysis: Deadness) -> Iterator[FormedCluster]:
    """Yield the clusters of a graph that TensorFlow annotated."""
    members: dict[str, list[Node]] = {}
    for node in graph:
        cluster = node.attrs.get(_CLUSTER)
        if isinstance(cluster, bytes):
            members.setdefault(cluster.decode(), []).append(node)
    for name, nodes in sorted(members.items()):
        inside = set(nodes)
        inputs = dict.fromkeys(
            item for node in nodes for item in node.inputs if item.node not in inside
        )
        dead = {
            item.name: analysis.text(analysis.of_output(item))
            for item in inputs
            if not analysis.always_live(item)
        }
        roles = {
            role: tuple(node.name for node in nodes if role_of(node) is role)
            for role in (Role.MERGE, Role.SWITCH)
        }
        names = tuple(node.name for node in nodes)
        yield FormedCluster(name, names, dead, roles[Role.MERGE], roles[Role.SWITCH])


def agreeing_modes(oracle: ModeOracle, graph: Graph) -> dict[str, str]:
    """Return how each mode compares on a graph: agrees, differs, or its error."""
    verdicts = {}
    for mode in MODES.values():
        check_deadline()
        try:
            delta = replace(oracle, mode=mode, against=None).compare(graph)
        except CfgraphError as error:
            verdicts[mode.name] = f"not compared: {error.message.splitlines()[0]}"
            continue
        verdicts[mode.name] = AGREES
        if delta.failure is not None:
            verdicts[mode.name] = delta.failure.message
        elif delta.gaps:
            gap = delta.gaps[0]
            verdicts[mode.name] = f"{gap.what}: {with_sides(gap.message, 'cfgraph', mode.name)}"
    return verdicts


def with_sides(message: str, before: str, after: str) -> str:
    """Return a message on liveness with names of the sides in place of A and B."""
    found = _SIDES.match(message)  # no search: a message may contain values
    if found is None:
        return message
    return f"{found[1]} in {before}, {found[2]} in {after}{message[found.end() :]}"
