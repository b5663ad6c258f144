"""Runs made for `explain`: live and dead counts of a node, and iteration times of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.feeds_and_fetches import require_feeds
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.cli.transform_options import RunInputs
from cfgraph.console.comparison_inputs import PreparedInputs, prepare_inputs
from cfgraph.console.documents import CompilationReport
from cfgraph.console.explanations.answers import NodeRunReport
from cfgraph.console.graph_files import Source
from cfgraph.console.signatures import SignatureNames
from cfgraph.errors import CfgraphError, ExecutionError, UsageError
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import downstream
from cfgraph.ops.opdef.op import role_of
from cfgraph.runtime.cluster_runner import Compilation
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.summary import IterationTimes

# of iterations that are listed
_MAX_RANGES: Final = 8
# errors of a fetch that is dead or has no value
_MISSING_VALUE_CODES: Final = ("CFG702", "CFG707")


@dataclass
class NodeOutcome:
    """An observer that counts live and dead tokens of a node, with their iterations in a loop.

    In loops in each other, iterations are not listed. `why` is the cause of deadness, or of a wait
    without end: its own if `waits`, else of others. `compilations` are those by XLA of a cluster
    that the node calls.
    """

    name: str
    live: int = 0
    dead: int = 0
    why: str = ""
    waits: bool = False
    fed: bool = False
    compilations: tuple[Compilation, ...] = ()
    live_iterations: list[int] = field(default_factory=list)
    dead_iterations: list[int] = field(default_factory=list)

    @property
    def only_node(self) -> str:
        """The name of the node whose events are needed."""
        return self.name

    def event(self, event: TraceEvent) -> None:
        """Count the event if it is a token of the node."""
        if event.is_token and event.node == self.name:
            self.dead += event.dead
            self.live += not event.dead
            if event.frame.count("[") == 1:
                iterations = self.dead_iterations if event.dead else self.live_iterations
                iterations.append(event.iteration)

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
        live, dead = map(_iterations_text, (self.live_iterations, self.dead_iterations))
        if not self.live:
            return f"dead{dead}" if self.dead == 1 else f"dead ({_times(self.dead)}{dead})"
        ran = f"ran {_times(self.live)}{live}"
        return f"{ran}, dead {_times(self.dead)}{dead}" if self.dead else ran

    def report(self) -> NodeRunReport:
        """Return the member `run` of the document."""
        compilations = [
            CompilationReport(item.seconds, item.changed or None, item.refused or None)
            for item in self.compilations
        ]
        return NodeRunReport(self.live, self.dead, self.why or None, compilations or None)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _iterations_text(iterations: Sequence[int]) -> str:
    """The iterations as ranges, ` in iterations 0-2, 4`, or an empty text if there are none."""
    ranges = list[list[int]]()
    for iteration in sorted(iterations):
        if ranges and iteration <= ranges[-1][1] + 1:
            ranges[-1][1] = iteration
        else:
            ranges.append([iteration, iteration])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    listed = ", ".join(texts[:_MAX_RANGES]) + (", …" if len(texts) > _MAX_RANGES else "")
    noun = "iteration" if len(iterations) == 1 else "iterations"
    return f" in {noun} {listed}" if texts else ""


def _is_fetch_error(error: ExecutionError, outcome: NodeOutcome) -> bool:
    """True if a run failed only because the fetch has no value.

    The output may be dead or missing or, if the node ran, refer to an uninitialized variable.
    """
    return error.code in _MISSING_VALUE_CODES or (outcome.live > 0 and error.node == outcome.name)


@dataclass(frozen=True, slots=True)
class ExplainedRuns:
    """Runs that an explanation needs: of one node, or of a loop in virtual time on devices."""

    source: Source
    names: SignatureNames
    inputs: RunInputs
    devices: Sequence[str]

    def outcome(self, node: Node, *, in_root: bool) -> NodeOutcome:
        """Run the graph for one node. Raises the errors of the run, except a hang."""
        node = self.source.graph[node.name]
        inputs = prepare_inputs(self.inputs, self.source, self.names, [node])
        graph, feeds, limit = inputs.graph, inputs.feeds, inputs.max_iterations
        fed = {graph.tensor(name) for name in feeds}
        outcome = NodeOutcome(node.name, fed=any(item.node is node for item in fed))
        require_feeds(graph, [], [node], fed)
        fetches = [f"{node.name}:0"] if in_root and node.output_count else []
        session = inputs.session(inputs.initial_state())
        try:
            session.run(fetches, feeds, [node.name], trace=outcome, max_iterations=limit)
        except ExecutionError as error:
            if not (error.waits or (fetches and _is_fetch_error(error, outcome))):
                raise
            outcome.explain_failure(error)
        if not fetches and not (outcome.live or outcome.dead or outcome.why):
            self._explain_loop(session, inputs, outcome, node)
        outcome.compilations = tuple(
            item
            for cluster in session.cluster_runner.clusters.values()
            for item in cluster.compilations
            if item.node == node.name
        )
        return outcome

    def _explain_loop(
        self, session: Session, inputs: PreparedInputs, outcome: NodeOutcome, node: Node
    ) -> None:
        """Run the loop of a node that did not run until its Exits lack a value, which says why."""
        loops = frames(inputs.graph)
        exits = [
            item.name
            for item in downstream([node])
            if role_of(item) is Role.EXIT and loops.of_outputs.get(item) is loops.root
        ]
        try:
            session.run(exits, inputs.feeds, allow_dead=True, max_iterations=inputs.max_iterations)
        except CfgraphError as error:  # of another kind if an Exit needs more feeds than the node
            if isinstance(error, ExecutionError) and error.code in _MISSING_VALUE_CODES:
                outcome.explain_failure(error)

    def iterations(self, frame: Frame) -> IterationTimes:
        """Run the graph in virtual time and measure the iterations of a loop."""
        inputs = prepare_inputs(self.inputs, self.source, self.names, None)
        graph, feeds, limit = inputs.graph, inputs.feeds, inputs.max_iterations
        chain = [frame]
        while chain[0].parent is not None and chain[0].parent.parent is not None:
            chain.insert(0, chain[0].parent)
        times = IterationTimes([item.name for item in chain])
        defaults = Fetches(graph, self.names.outputs)
        defaults.default()
        require_feeds(graph, defaults.tensors, [], {graph.tensor(name) for name in feeds})
        names = [item.name for item in defaults.tensors]
        session = inputs.session(inputs.initial_state(), ",".join(self.devices), CostModel())
        session.run(names, feeds, trace=times, allow_dead=True, max_iterations=limit)
        if not times.spans:
            raise UsageError(f"loop {frame.path!r} does not run with these feeds")
        return times
