"""State of a run in which nothing is ready: which nodes fired, and which wait."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import RendezvousKey, rendezvous_key, upstream
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.plan import FramePlan, NodePlan
from cfgraph.runtime.engine.propagate import DEAD, PENDING_MASK, FrameState, Iteration
from cfgraph.runtime.engine.rendezvous import Rendezvous

# late imports: only the explanation of a deadlock needs trip counts

# nodes that one explanation visits
_MAX_VISITED_NODES: Final = 10_000


@dataclass(frozen=True)
class DeviceIteration:
    """One iteration on one device, and the nodes that fired in it."""

    executor: Executor
    iteration: Iteration

    @property
    def frame(self) -> FramePlan:
        """The plan of the frame."""
        return self.iteration.frame.plan

    def fired(self, plan: NodePlan) -> bool:
        """True if a node of this frame ran, live or dead; a Recv may still wait for its message."""
        return not self.iteration.pending[plan.counter] & PENDING_MASK

    def got_dead_token(self, plan: NodePlan) -> bool:
        """True if a node of this frame received a dead token; for a Merge, only dead ones."""
        inputs = len(plan.node.inputs) if plan.op.role is Role.MERGE else 1
        return self.iteration.pending[plan.counter] >= inputs * DEAD

    def child(self, plan: FramePlan) -> FrameState | None:
        """The child frame of a loop, if it was entered from this iteration and has not ended."""
        return (self.iteration.children or {}).get(plan)

    def outer(self) -> DeviceIteration | None:
        """The iteration that entered this loop, or None for the root."""
        parent = self.iteration.frame.parent
        return DeviceIteration(self.executor, parent) if parent else None

    def previous(self) -> DeviceIteration | None:
        """The preceding iteration, if it has not ended."""
        current = self.iteration.frame.first
        while current is not None and current.next is not self.iteration:
            current = current.next
        return DeviceIteration(self.executor, current) if current else None


# a reason, and the nodes to visit next
StopReason = tuple[str, list[tuple[DeviceIteration, NodePlan]]]


class QuiescentState:
    """State of all devices of a run in which nothing is ready."""

    def __init__(self, executors: Sequence[Executor], rendezvous: Rendezvous) -> None:
        self.executors = executors
        self.executor_of: dict[Node, Executor] = {}
        self.sends: dict[RendezvousKey, NodePlan] = {}
        self._enters: defaultdict[FramePlan, list[NodePlan]] = defaultdict(list)
        for executor in executors:
            for node, plan in executor.plan.nodes.items():
                self.executor_of[node] = executor
                if plan.child is not None:
                    self._enters[plan.child].append(plan)
                if plan.op.role is Role.SEND:
                    self.sends[rendezvous_key(node)] = plan
        self.pending_recvs = {(key, id(w.iteration)): w for key, w in rendezvous.waiting()}

    def plan(self, node: Node) -> NodePlan | None:
        """The plan of a node, or None for a node that does not run, such as a fed one."""
        executor = self.executor_of.get(node)
        return executor.plan.nodes[node] if executor else None

    def root(self, node: Node) -> DeviceIteration:
        """The root frame of a node's device."""
        executor = self.executor_of[node]
        assert executor.root is not None
        return DeviceIteration(executor, executor.root.newest)

    def enters(self, frame: FramePlan) -> list[NodePlan]:
        """The Enters of a loop on its device."""
        return self._enters[frame]

    def loops(self, current: DeviceIteration) -> list[FramePlan]:
        """The loops that are entered from a frame."""
        return [plan for plan, enters in self._enters.items() if enters[0].frame is current.frame]

    def is_waiting(self, current: DeviceIteration, plan: NodePlan) -> bool:
        """True for a Recv that fired and whose message has not arrived."""
        return (
            plan.op.role is Role.RECV
            and (rendezvous_key(plan.node), id(current.iteration)) in self.pending_recvs
        )

    def missing(self, current: DeviceIteration, start: NodePlan) -> Iterator[str]:
        """The reasons why a node did not fire: one for each place where tokens stopped."""
        yield from self._search_upstream([(current, start)])

    def missing_exit(self, current: DeviceIteration, exit_: NodePlan) -> Iterator[str]:
        """The reasons why an Exit of a loop that was entered from `current` has no value."""
        reason, more = self._loop_reason(current, exit_)
        if reason:
            yield reason
        yield from self._search_upstream(more, known=(current, exit_))

    def _search_upstream(
        self,
        start: list[tuple[DeviceIteration, NodePlan]],
        known: tuple[DeviceIteration, NodePlan] | None = None,
    ) -> Iterator[str]:
        entries = [*start, known] if known else start
        seen = {(plan.node, id(current.iteration)) for current, plan in entries}
        queue = deque(start)
        while queue and len(seen) < _MAX_VISITED_NODES:
            current, plan = queue.popleft()
            for source in plan.node.predecessors:
                previous = self.plan(source)
                if previous is None or (source, id(current.iteration)) in seen:
                    continue
                reason, more = self._stop_reason(current, previous)
                if reason:
                    yield reason
                    seen.add((source, id(current.iteration)))
                for entry in more:
                    visit = (entry[1].node, id(entry[0].iteration))
                    if visit not in seen:
                        seen.add(visit)
                        queue.append(entry)

    def _stop_reason(self, current: DeviceIteration, plan: NodePlan) -> StopReason:
        """The reason why a source delivered nothing, and the nodes to visit next."""
        role, name = plan.op.role, plan.node.name
        if role is Role.EXIT and plan.frame is not current.frame:
            return self._loop_reason(current, plan)
        if role is Role.NEXT_ITERATION:
            return self._back_edge_reason(current, plan)
        outer = current.outer()
        source_iteration = (
            outer if outer and role is Role.ENTER and plan.child is current.frame else current
        )
        if self.is_waiting(source_iteration, plan):
            return f"{name!r} waits for its message", []
        return "", [] if source_iteration.fired(plan) else [(source_iteration, plan)]

    def _back_edge_reason(self, current: DeviceIteration, plan: NodePlan) -> StopReason:
        """The reason why the preceding iteration forwarded nothing."""
        previous = current.previous()
        if current.iteration.index == 0 or (
            previous and previous.fired(plan) and not previous.got_dead_token(plan)
        ):
            return "", []
        if previous and not previous.fired(plan):
            return "", [(previous, plan)]
        return f"{plan.node.name!r} forwarded nothing to {current.iteration.path}", []

    def _loop_reason(self, current: DeviceIteration, plan: NodePlan) -> StopReason:
        """The reason why a loop has no result: a missing Enter, or an iteration that stopped."""
        missing_enters = [enter for enter in self.enters(plan.frame) if not current.fired(enter)]
        running = current.child(plan.frame)
        if missing_enters:
            reason = self._late_enter_reason(running, missing_enters, plan) if running else ""
            return reason, [(current, enter) for enter in missing_enters]
        name, exit_name = plan.frame.name, plan.node.name
        if running is None:
            return f"{exit_name!r} was live in no iteration of the loop {name!r}", []
        where = f"the loop {name!r} stopped at {running.newest.path}"
        newest = DeviceIteration(current.executor, running.newest)
        if newest.fired(plan):
            return f"{where}, where {exit_name!r} is dead", []
        return f"{where} before {exit_name!r} ran", [(newest, plan)]

    def _late_enter_reason(
        self, running: FrameState, enters: Iterable[NodePlan], exit_: NodePlan
    ) -> str:
        """The reason why an Exit of a loop has no value if one of the Enters waits for it."""
        enter = next((plan for plan in enters if exit_.node in upstream([plan.node])), None)
        if enter is None:
            return ""
        stop = f"the loop {running.plan.name!r} stopped at {running.newest.path}"
        if not running.deferred:
            waits = f"for which its Enter {enter.node.name!r} waits"
            return f"{stop} before {exit_.node.name!r} ran, {waits}"
        from cfgraph.analysis.check_late_enters import needed_parallel_iterations

        plans = (plan for executor in self.executors for plan in executor.plan.nodes.values())
        conds = (p.node for p in plans if p.op.role is Role.LOOP_COND and p.frame is exit_.frame)
        needed = next((needed_parallel_iterations(cond) for cond in conds), None)
        value = f"parallel_iterations={needed}" if needed else "a value above their number"
        return (
            f"{stop}: with parallel_iterations={running.plan.parallel} no iteration starts before "
            f"its Enter {enter.node.name!r} has a value, which waits for {exit_.node.name!r}; "
            f"{value} would run"
        )
