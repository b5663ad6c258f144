"""State of a run in which nothing is ready: which nodes fired, and which wait."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.transfers import RendezvousKey, rendezvous_key
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.frame_state import DEAD, PENDING_MASK, FrameState, Iteration
from cfgraph.runtime.engine.plan import FramePlan, NodePlan
from cfgraph.runtime.engine.rendezvous import Rendezvous

# nodes that one explanation looks at
_MAX_VISITED_NODES: Final = 10_000


@dataclass(frozen=True)
class DeviceIteration:
    """One iteration on one device, and which of its nodes fired in it."""

    executor: Executor
    iteration: Iteration

    @property
    def frame(self) -> FramePlan:
        """The loop, or the root."""
        return self.iteration.frame.plan

    def fired(self, plan: NodePlan) -> bool:
        """True if a node of this frame ran, live or dead; a Recv may wait for its message yet."""
        return not self.iteration.pending[plan.counter] & PENDING_MASK

    def got_dead_token(self, plan: NodePlan) -> bool:
        """True if a node of this frame got a dead token (a Merge: nothing else)."""
        inputs = len(plan.node.inputs) if plan.op.role is Role.MERGE else 1
        return self.iteration.pending[plan.counter] >= inputs * DEAD

    def child(self, plan: FramePlan) -> FrameState | None:
        """The loop that was entered from here, if it has not ended."""
        return (self.iteration.children or {}).get(plan)

    def around(self) -> DeviceIteration | None:
        """Where this loop was entered; None for the root."""
        parent = self.iteration.frame.parent
        return DeviceIteration(self.executor, parent) if parent else None

    def before(self) -> DeviceIteration | None:
        """The iteration before this one, if it has not ended."""
        here = self.iteration.frame.first
        while here is not None and here.next is not self.iteration:
            here = here.next
        return DeviceIteration(self.executor, here) if here else None


# what can be told, and what to look at next
StopReason = tuple[str, list[tuple[DeviceIteration, NodePlan]]]


class QuiescentState:
    """All devices of a run that nothing goes on in."""

    def __init__(self, executors: Sequence[Executor], rendezvous: Rendezvous) -> None:
        self.executors = executors
        self.homes: dict[Node, Executor] = {}
        self.sends: dict[RendezvousKey, NodePlan] = {}
        self._enters: defaultdict[FramePlan, list[NodePlan]] = defaultdict(list)
        for executor in executors:
            for node, plan in executor.plan.nodes.items():
                self.homes[node] = executor
                if plan.child is not None:
                    self._enters[plan.child].append(plan)
                if plan.op.role is Role.SEND:
                    self.sends[rendezvous_key(node)] = plan
        self.waiting = {(key, id(w.iteration)): w for key, w in rendezvous.waiting()}

    def plan(self, node: Node) -> NodePlan | None:
        """What is planned for a node; None for one that does not take part, being fed."""
        home = self.homes.get(node)
        return home.plan.nodes[node] if home else None

    def root(self, node: Node) -> DeviceIteration:
        """The root frame of a node's device."""
        executor = self.homes[node]
        assert executor.root is not None
        return DeviceIteration(executor, executor.root.newest)

    def enters(self, frame: FramePlan) -> list[NodePlan]:
        """The Enters of a loop on its device."""
        return self._enters[frame]

    def loops(self, here: DeviceIteration) -> list[FramePlan]:
        """The loops that are entered from a frame."""
        return [plan for plan, enters in self._enters.items() if enters[0].frame is here.frame]

    def is_waiting(self, here: DeviceIteration, plan: NodePlan) -> bool:
        """True for a Recv that fired, and whose message has not come."""
        return (
            plan.op.role is Role.RECV
            and (rendezvous_key(plan.node), id(here.iteration)) in self.waiting
        )

    def missing(self, here: DeviceIteration, start: NodePlan) -> Iterator[str]:
        """For each place where tokens stopped on their way to a node, what did not come."""
        yield from self._follow([(here, start)])

    def missing_exit(self, here: DeviceIteration, exit_: NodePlan) -> Iterator[str]:
        """Why an Exit handed nothing out of a loop that was entered from `here`."""
        reason, more = self._loop(here, exit_)
        if reason:
            yield reason
        yield from self._follow(more)

    def _follow(self, begin: list[tuple[DeviceIteration, NodePlan]]) -> Iterator[str]:
        seen = {(plan.node, id(here.iteration)) for here, plan in begin}
        queue = deque(begin)
        while queue and len(seen) < _MAX_VISITED_NODES:
            here, plan = queue.popleft()
            for source in [*(item.node for item in plan.node.inputs), *plan.node.controls]:
                before = self.plan(source)
                if before is None or (source, id(here.iteration)) in seen:
                    continue
                reason, more = self._stopped(here, before)
                if reason:
                    yield reason
                    seen.add((source, id(here.iteration)))
                for found in more:
                    mark = (found[1].node, id(found[0].iteration))
                    if mark not in seen:
                        seen.add(mark)
                        queue.append(found)

    def _stopped(self, here: DeviceIteration, plan: NodePlan) -> StopReason:
        """Why a source gave nothing: what can be told, and what else has to be looked at."""
        role, name = plan.op.role, plan.node.name
        if role is Role.EXIT and plan.frame is not here.frame:
            return self._loop(here, plan)
        if role is Role.NEXT_ITERATION:
            return self._back_edge(here, plan)
        around = here.around()
        there = around if around and role is Role.ENTER and plan.child is here.frame else here
        if self.is_waiting(there, plan):
            return f"{name!r} waits for its message", []
        return "", [] if there.fired(plan) else [(there, plan)]

    def _back_edge(self, here: DeviceIteration, plan: NodePlan) -> StopReason:
        """Why the iteration before handed nothing on."""
        before = here.before()
        if here.iteration.index == 0 or (
            before and before.fired(plan) and not before.got_dead_token(plan)
        ):
            return "", []
        if before and not before.fired(plan):
            return "", [(before, plan)]
        return f"{plan.node.name!r} handed nothing on to {here.iteration.path}", []

    def _loop(self, here: DeviceIteration, plan: NodePlan) -> StopReason:
        """Why a loop hands nothing out: not all of it was entered, or it stopped."""
        waiting = [other for other in self.enters(plan.frame) if not here.fired(other)]
        if waiting:
            return "", [(here, other) for other in waiting]
        name, exit_name = plan.frame.name, plan.node.name
        running = here.child(plan.frame)
        if running is None:
            return f"{exit_name!r} was live in no iteration of the loop {name!r}", []
        where = f"the loop {name!r} came to rest at {running.newest.path}"
        inside = DeviceIteration(here.executor, running.newest)
        if inside.fired(plan):
            return f"{where}, where {exit_name!r} is dead", []
        return f"{where} before {exit_name!r} ran", [(inside, plan)]
