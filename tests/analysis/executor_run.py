"""A run of the executor, and the same run by the liveness oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.engine.plan import Plan, RunSpec, make_plans
from cfgraph.runtime.preparation.prepare import lower_run
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import TraceEvent
from tests.analysis.liveness_oracle import Liveness, Tag, liveness, tag_path
from tests.recorder import Recorder

# a node's name and the tag path that it ran in
NodeAtPath = tuple[str, str]

_OUT_OF_FRAME = (Role.ENTER, Role.EXIT, Role.NEXT_ITERATION)


@dataclass(frozen=True)
class ExecutorRun:
    """The tokens of an executor run; `plan` has the nodes that took part."""

    graph: Graph
    plan: Plan
    events: list[TraceEvent]

    def fired(self) -> dict[NodeAtPath, bool]:
        """The liveness of each token."""
        return {(event.node, event.frame): not event.dead for event in self.events}

    def sent(self) -> dict[tuple[str, str], bool]:
        """The liveness of each output, by name and path."""
        moved = {node.name for node in self.plan.nodes if role_of(node) in _OUT_OF_FRAME}
        return {
            (f"{event.node}:{port}", event.frame): value is not None
            for event in self.events
            if event.node not in moved
            for port, value in enumerate(event.outputs)
        }

    def chosen(self) -> dict[tuple[Output, str], int]:
        """The value of each Switch predicate that was read, by path.

        It is the largest selected branch: a Switch with fewer outputs selects its last one.
        """
        found: dict[tuple[Output, str], int] = {}
        for event in self.events:
            node = self.node(event.node)
            if not event.dead and role_of(node) is Role.SWITCH:
                taken = [port for port, value in enumerate(event.outputs) if value is not None]
                key = node.inputs[1], event.frame
                found[key] = max(taken[0], found.get(key, 0))
        return found

    def node(self, name: str) -> Node:
        return self.graph[name]

    @cached_property
    def simulated(self) -> Liveness:
        """The same run by the liveness oracle."""
        chosen = self.chosen()

        def choose(predicate: Output, tag: Tag) -> int:
            return chosen[predicate, tag_path(tag)]

        return liveness(self.graph, choose, self.plan.nodes, self.plan.feeds.values(), 10**9)


def observe_run(
    session: Session,
    fetches: Iterable[str] = (),
    feeds: Mapping[str, Any] | None = None,
    targets: Iterable[str] = (),
) -> ExecutorRun:
    """Run fetches and targets, and record every token."""
    recorder = Recorder(values=True)
    names, wanted_nodes, fed = list(fetches), list(targets), dict(feeds or {})
    session.run(names, fed, wanted_nodes, trace=recorder, allow_dead=True, timeout=60)
    graph = session.graph
    run = lower_run(
        RunSpec(
            graph,
            tuple(graph.tensor(name) for name in names),
            tuple(graph[name] for name in wanted_nodes),
            tuple(graph.tensor(name) for name in fed),
        )
    )
    plan = make_plans(run, "cpu:0", ClusterRunner())[0]
    return ExecutorRun(run.graph, plan, recorder.events)


def disagreements(observed: ExecutorRun) -> list[str]:
    """The tokens in which the oracle and the executor differ."""
    simulated = observed.simulated
    fired = {(node.name, tag_path(tag)): live for (node, tag), live in simulated.fired.items()}
    sent = {(item.name, tag_path(tag)): live for (item, tag), live in simulated.sent.items()}
    return [
        f"{place}: {mine.get(place)} here, {theirs.get(place)} in the executor"
        for mine, theirs in ((fired, observed.fired()), (sent, observed.sent()))
        for place in sorted(theirs.keys() | (mine.keys() if mine is fired else ()))
        if mine.get(place) is not theirs.get(place)
    ]
