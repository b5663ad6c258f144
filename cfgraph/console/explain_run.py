"""Runs made for `explain`: live and dead counts of a node, and iteration times of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.feeds_and_fetches import require_feeds
from cfgraph.analysis.loops.frame import Frame
from cfgraph.console.comparison_inputs import VariableSource
from cfgraph.console.graph_files import Source
from cfgraph.console.signatures import SignatureNames
from cfgraph.errors import ExecutionError, UsageError
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node
from cfgraph.runtime.compiled_cluster import Compilation
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.propagate import DEFAULT_MAX_ITERATIONS
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.parse_feeds import read_feeds
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.summary import IterationTimes

# errors of a fetch that is dead or has no value
_MISSING_VALUE_CODES: Final = ("CFG702", "CFG707")


@dataclass
class NodeOutcome:
    """An observer that counts live and dead tokens of a node.

    `why` is the cause of deadness, or of a wait without end: its own if `waits`, else of others.
    `compilations` are those by XLA of a cluster that the node calls.
    """

    name: str
    live: int = 0
    dead: int = 0
    why: str = ""
    waits: bool = False
    fed: bool = False
    compilations: tuple[Compilation, ...] = ()

    @property
    def only_node(self) -> str:
        """The name of the node whose events are needed."""
        return self.name

    def event(self, event: TraceEvent) -> None:
        """Count the event if it is a token of the node."""
        if event.is_token and event.node == self.name:
            self.dead += event.dead
            self.live += not event.dead

    def explain_failure(self, error: ExecutionError) -> None:
        """Note the reason for which the node has no value."""
        reason = error.waits.get(self.name)
        self.waits = reason is not None
        if reason is not None:
            self.why = reason
        elif error.waits:
            self.why = "; ".join(f"{name!r} {reason}" for name, reason in error.waits.items())
        elif not self.live:
            self.why = error.message

    @property
    def words(self) -> str:
        """Description of the live and dead executions of the node."""
        if self.fed:
            return "fed"
        if self.waits:
            return "waits, and nothing else is left to run"
        if not self.live and not self.dead:
            return "did not run: its inputs never arrived"
        if not self.live:
            return "dead" if self.dead == 1 else f"dead ({_times(self.dead)})"
        return f"ran {_times(self.live)}" + (f", dead {_times(self.dead)}" if self.dead else "")

    def to_json(self) -> dict[str, Any]:
        """Return the member `run` of the document."""
        result: dict[str, Any] = {"live": self.live, "dead": self.dead, "why": self.why or None}
        if self.compilations:
            result["compilations"] = [
                {
                    "seconds": item.seconds,
                    "changed": item.changed or None,
                    "refused": item.refused or None,
                }
                for item in self.compilations
            ]
        return result


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _is_fetch_error(error: ExecutionError, outcome: NodeOutcome) -> bool:
    """True if a run failed only because the fetch has no value.

    The output may be dead or missing or, if the node ran, refer to an uninitialized variable.
    """
    return error.code in _MISSING_VALUE_CODES or (outcome.live > 0 and error.node == outcome.name)


@dataclass(frozen=True, slots=True)
class ExplainRunOptions:
    """Options of the run; devices are used for loops only."""

    feeds: Sequence[str]
    archives: Sequence[str] = ()
    inits: Sequence[str] = ()
    devices: Sequence[str] = ()
    max_iterations: int | None = None
    variables: str | None = None
    allow_io: bool = False
    seed: int = 0

    def prepare(
        self, source: Source, names: SignatureNames, needed_nodes: Sequence[Node] | None = None
    ) -> RunToExplain:
        """Prepare a run for some nodes or for all. Raises UsageError for invalid feeds."""
        graph = source.graph
        limit = DEFAULT_MAX_ITERATIONS if self.max_iterations is None else self.max_iterations
        feeds = read_feeds(graph, self.feeds, self.archives, self.seed, names.inputs)
        inits = [graph[name.removeprefix("^")].name for name in self.inits]
        devices = ",".join(self.devices)
        needed = None if needed_nodes is None else [*needed_nodes, *(graph[name] for name in inits)]
        variables = VariableSource(self.variables, allow_io=self.allow_io)
        state, io = variables.state(source, needed), variables.io_policy(source)
        return RunToExplain(graph, feeds, state, inits, devices, limit, io, self.seed)


@dataclass(frozen=True, slots=True)
class RunToExplain:
    """A graph with the inputs of its run."""

    graph: Graph
    feeds: Mapping[str, Any]
    state: State | None
    inits: Sequence[str]
    devices: str
    max_iterations: int
    io: IoPolicy
    seed: int = 0

    def initial_state(self) -> State:
        """Run the initializers on the restored variables and return the resulting state."""
        session = Session(
            self.graph,
            state=self.state,
            soft_placement=True,
            seed=self.seed,
            allow_io=self.io,
            blas_threads="auto",
        )
        for name in self.inits:
            session.run([], self.feeds, [name], max_iterations=self.max_iterations)
        return session.state

    def run_node(self, node: Node, *, in_root: bool) -> NodeOutcome:
        """Run the graph for one node. Raises the errors of the run, except a hang."""
        graph, feeds = self.graph, self.feeds
        fed = {graph.tensor(name) for name in feeds}
        outcome = NodeOutcome(node.name, fed=any(item.node is node for item in fed))
        require_feeds(graph, [], [node], fed)
        fetches = [f"{node.name}:0"] if in_root and registry.output_count(node) else []
        session = Session(
            graph,
            state=self.initial_state(),
            soft_placement=True,
            seed=self.seed,
            allow_io=self.io,
            blas_threads="auto",
        )
        limit = self.max_iterations
        try:
            session.run(fetches, feeds, [node.name], trace=outcome, max_iterations=limit)
        except ExecutionError as error:
            if not (error.waits or (fetches and _is_fetch_error(error, outcome))):
                raise
            outcome.explain_failure(error)
        outcome.compilations = tuple(
            item
            for cluster in session.cluster_runner.clusters.values()
            for item in cluster.compilations
            if item.node == node.name
        )
        return outcome

    def iterations(self, frame: Frame) -> IterationTimes:
        """Run the graph in virtual time and measure the iterations of a loop."""
        chain = [frame]
        while chain[0].parent is not None and chain[0].parent.parent is not None:
            chain.insert(0, chain[0].parent)
        times = IterationTimes([item.name for item in chain])
        defaults = Fetches(self.graph)
        defaults.default()
        require_feeds(
            self.graph, defaults.tensors, [], {self.graph.tensor(name) for name in self.feeds}
        )
        names = [item.name for item in defaults.tensors]
        limit, costs = self.max_iterations, CostModel()
        session = Session(
            self.graph,
            self.devices or None,
            self.initial_state(),
            soft_placement=True,
            seed=self.seed,
            costs=costs,
            allow_io=self.io,
            blas_threads="auto",
        )
        session.run(names, self.feeds, trace=times, allow_dead=True, max_iterations=limit)
        if not times.spans:
            raise UsageError(f"loop {frame.path!r} does not run with these feeds")
        return times
