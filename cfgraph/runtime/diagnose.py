"""Why a fetch has no value: the Switch that killed it, or the inputs that never came.

Both answers are read off the counters that the run left in the root frame's iteration.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Node, Output
from cfgraph.runtime.executor import Executor
from cfgraph.runtime.frame_state import DEAD, MASK
from cfgraph.runtime.plan import FramePlan, NodePlan

MAX_LISTED = 5


def dead_fetch(executor: Executor, item: Output) -> ExecutionError:
    """The error of a fetch that is dead, naming what killed it."""
    return ExecutionError(
        f"{item.name} is dead: {_Root(executor).killer(item)}",
        node=item.node,
        device=executor.device,
        hint="fetch the Merge behind both branches, or feed the predicate otherwise",
        code="CFG702",
    )


def starved_fetch(executor: Executor, item: Output) -> ExecutionError:
    """The error of a fetch that nothing computed although the run came to rest."""
    found = list(_Root(executor).missing(item.node))
    more = f"; and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    reason = "; ".join(found[:MAX_LISTED]) + more if found else "no token reached it"
    return ExecutionError(
        f"{item.name} got no value, and nothing is left to run: {reason}",
        node=item.node,
        device=executor.device,
        hint="`cfgraph check` tells what makes a graph starve",
        code="CFG707",
    )


class _Root:
    """The root frame's iteration after a run, with its nodes."""

    def __init__(self, executor: Executor) -> None:
        assert executor.root is not None
        self.plans = executor.plan.nodes
        self.frame = executor.root.plan
        self.iteration = executor.root.newest
        self._enters: defaultdict[FramePlan, list[NodePlan]] = defaultdict(list)
        for plan in self.plans.values():
            if plan.child is not None and plan.frame is self.frame:
                self._enters[plan.child].append(plan)

    def fired(self, plan: NodePlan) -> bool:
        """True if a node of the root frame ran, live or dead."""
        return not self.iteration.pending[plan.counter] & MASK

    def died(self, plan: NodePlan) -> bool:
        """True if a node of the root frame got a dead token (a Merge: nothing else)."""
        inputs = len(plan.node.inputs) if plan.op.role == "merge" else 1
        return self.iteration.pending[plan.counter] >= inputs * DEAD

    def enters(self, plan: NodePlan) -> list[NodePlan]:
        """The Enters in the root frame of the loop that an Exit leaves."""
        return self._enters[plan.frame]

    # -- dead -------------------------------------------------------------------------------------

    def killer(self, item: Output) -> str:
        """What made an output dead, followed through dead inputs to a Switch that ran."""
        seen: set[Node] = set()
        while item.node not in seen:
            seen.add(item.node)
            plan = self.plans[item.node]
            if plan.frame is not self.frame:
                entered = [other for other in self.enters(plan) if self.died(other)]
                if not entered:
                    return f"{item.node.name!r} was live in no iteration of {plan.frame.name!r}"
                item = Output(entered[0].node, 0)
            elif plan.op.role == "switch" and not self.died(plan):
                return self._switch(plan, item.port)
            else:
                item = self._dead_input(plan) or item
        return f"{item.node.name!r} ({item.node.op}) handed on nothing"

    def _switch(self, plan: NodePlan, port: int) -> str:
        index = self.iteration.values[plan.base + 1]
        taken = str(bool(index)).lower() if plan.outputs == 2 else str(index)
        predicate = plan.node.inputs[1].name
        return (
            f"{plan.node.op} {plan.node.name!r} hands nothing to output {port},"
            f" as {predicate} is {taken}"
        )

    def _dead_input(self, plan: NodePlan) -> Output | None:
        """The first source that gave a node a dead token; an Exit where no other did."""
        sources = [*plan.node.inputs, *(Output(node, -1) for node in plan.node.controls)]
        loops: list[Output] = []
        for item in sources:
            source = self.plans.get(item.node)
            if source is None:
                continue
            if source.frame is not self.frame:
                loops.append(item)
            elif self.died(source) or self._untaken(source, item.port):
                return item
        return loops[0] if loops else None

    def _untaken(self, source: NodePlan, port: int) -> bool:
        if source.op.role != "switch" or port < 0:
            return False
        index = int(self.iteration.values[source.base + 1])
        last = source.outputs - 1
        return port != (index if 0 <= index <= last else last)

    # -- starved ----------------------------------------------------------------------------------

    def missing(self, node: Node) -> Iterator[str]:
        """For each place where tokens stopped on their way to `node`, what did not come."""
        seen, queue = {node}, deque([self.plans[node]])
        while queue:
            plan = queue.popleft()
            if plan.frame is not self.frame:
                waiting = [other for other in self.enters(plan) if not self.fired(other)]
                queue += [other for other in waiting if other.node not in seen]
                seen.update(other.node for other in waiting)
                if not waiting:
                    yield self._loop(plan)
                continue
            for source in [*(item.node for item in plan.node.inputs), *plan.node.controls]:
                before = self.plans.get(source)
                if before is None or source in seen:
                    continue
                seen.add(source)
                if before.frame is not self.frame or not self.fired(before):
                    queue.append(before)

    def _loop(self, plan: NodePlan) -> str:
        name, exit_name = plan.frame.name, plan.node.name
        children = self.iteration.children or {}
        running = children.get(plan.frame)
        if running is None:
            return f"{exit_name!r} was live in no iteration of the loop {name!r}"
        where = running.newest.path
        if running.entering:
            return f"{running.entering} Enters of the loop {name!r} never came ({where})"
        return f"the loop {name!r} came to rest at {where} before {exit_name!r} ran"
